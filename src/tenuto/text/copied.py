"""Strings that must be copied from the conversation: how the texts are cut, and where a copy may begin and end.

A copied value is a run of whole chunks of one line. In scripts with spaces a chunk is a word, in scripts without it is
a character, and anything else is a chunk of its own, so that "New York's" offers "New York". A copy neither begins
nor ends with white space, quotes, brackets or the punctuation of sentences; signs that are part of values, as in
"$5", "-3" or "/etc/hosts", may stand there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

# Han, kana, bopomofo, Thai, Lao, Khmer, Myanmar, Tibetan: written without spaces between words.
_SPACELESS = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035"
    + (
        "\u3040-\u30ff\u3100-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
    )
)
_CHUNK = re.compile(rf"['’](?:s|t|re|ve|m|ll|d)\b|[{_SPACELESS}]|[^\W{_SPACELESS}]+|.", re.IGNORECASE | re.DOTALL)
_LINE_ENDS = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029]+")
_SURROGATES = re.compile("[\ud800-\udfff]")

_NOT_AT_EDGE = r"\s\\\"'`.,;:!?()\[\]{}<>|…·‘’“”„«»‹›、。，；：！？（）【】《》〈〉「」『』〔〕～"
_LINE_BREAK = "\n"  # cannot stand in a JSON string, so no copy runs over it

MAX_COPIED_CHARS = 200_000


def chunks(texts: Sequence[str]) -> list[str]:
    """The texts as chunks of JSON string content, escapes included; a line break between lines and texts.

    Every text counts once. Of texts longer than `MAX_COPIED_CHARS` in all, the last ones count: they are the newest.
    """
    kept: list[str] = []
    room = MAX_COPIED_CHARS
    for text in reversed(list(dict.fromkeys(texts))):
        if room <= 0:
            break
        kept.append(text[-room:])
        room -= len(text)
    cut: list[str] = []
    for text in reversed(kept):
        for line in _LINE_ENDS.split(_SURROGATES.sub("\ufffd", text)):
            found = [json.dumps(c, ensure_ascii=False)[1:-1] for c in _CHUNK.findall(line)]
            if found:
                cut += [*found, _LINE_BREAK]
    return cut


def has_copy(texts: Sequence[str]) -> bool:
    """Whether there is anything to copy."""
    edge = re.compile(f"[^{_NOT_AT_EDGE}]")
    return any(edge.match(chunk) for chunk in chunks(texts))


def terminal(name: str, texts: Sequence[str]) -> str:
    """Lark terminals that match exactly the copies of the texts, as content of a JSON string."""
    listed = json.dumps({"substring_chunks": chunks(texts)}, ensure_ascii=False)
    edge = f"[^{_NOT_AT_EDGE}]"
    inner = r"[^\n]"
    return f"{name}: {name}_RUN & {name}_EDGES\n{name}_RUN: %regex {listed}\n{name}_EDGES: /{edge}({inner}*{edge})?/\n"
