"""Text spelled in a Lark grammar, as llguidance reads it."""

from __future__ import annotations

import json


def literal(text: str) -> str:
    """A Lark string that matches the text. The lexer wants every control character escaped; JSON spares U+007F."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def regex_literal(text: str) -> str:
    """A regular expression, as it stands between slashes, that matches the text."""
    return "".join(f"\\{c}" if c in r".^$*+?{}[]\|()/-&~#" else "\\n" if c == "\n" else c for c in text)
