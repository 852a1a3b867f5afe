"""A vocabulary as the tokenizer needs it, whatever file it came from.

Its encoder does not even contain the tokens that have a meaning to the model, so that no text whatever can produce
them; the tokenizer puts those in where a template wrote them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tenuto.text.library_tokenizer import LibraryTokenizer

# Where a space is put before text: nowhere, where a text begins, or after every control token too.
Prefix = Literal["never", "first", "sections"]

MAX_TOKENS = 2**22  # of any vocabulary; the largest in use have 2**18
# What tokens are called that text must not spell: models that see no spaces never see this.
IMPOSSIBLE = " \x00 "

# Gemma has tokens for these, which are spelling like any other word: people write them, and models write them back.
_HTML = {
    *("table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "li"),
    *("blockquote", "strong", "em", "b", "i", "u", "s", "sub", "sup", "code", "a", "html", "body", "img", "span"),
    *("bbox", "div", "iframe", "footer"),
}


@dataclass(frozen=True)
class Vocabulary:
    library: LibraryTokenizer
    token_bytes: tuple[bytes, ...] = field(repr=False)  # by id, of control tokens too
    control: dict[str, int] = field(repr=False)  # strings that mean something to the model, and their ids
    special: frozenset[int] = field(repr=False)  # of these, the ones flagged as special: not text for users
    prefix: Prefix = "never"
    strips_space: bool = False  # decoding leaves out the space that the first token begins with
    strip_left: frozenset[str] = frozenset()  # control strings that swallow white space before them
    strip_right: frozenset[str] = frozenset()


def is_markup(text: str) -> bool:
    """Whether an added token that is not flagged as special nevertheless means structure, as `<tool_call>` does.

    Others, such as runs of spaces and HTML tags, are only spelling and stay readable in content.
    """
    framed = len(text) > 2 and (text[0], text[-1]) in {("<", ">"), ("[", "]"), ("｜", "｜")} and not text.isspace()
    return framed and text.strip("</>") not in _HTML
