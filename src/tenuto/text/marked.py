"""Text in which control-token strings that came from content are told apart from those of the template.

What a user, a tool or a tool's description says may contain `<|im_end|>`. Read as a control token it would end the
turn and let content speak as the system. So before a template renders, each such string in content is broken by a
mark: a character that occurs nowhere in the content. What is whole in the rendered text came from the template; the
tokenizer takes the marks out again after it has split on the whole ones, and reads the rest as plain text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tenuto.errors import TemplateError
from tenuto.text.control_strings import ControlStrings

_NONCHARACTERS = (*range(0xFDD0, 0xFDF0), *(plane + 0xFFFE for plane in range(0, 0x110000, 0x10000)))
_PRIVATE_USE = range(0xE000, 0xF900)


@dataclass(frozen=True)
class MarkedText:
    """Rendered text, with marks in the control-token strings that came from content."""

    text: str  # with marks
    mark: str  # one character

    def slice(self, start: int, stop: int | None = None) -> MarkedText:
        """The part between two offsets of `text`."""
        return MarkedText(self.text[start:stop], self.mark)

    def startswith(self, prefix: MarkedText) -> bool:
        return self.mark == prefix.mark and self.text.startswith(prefix.text)

    def plain(self) -> str:
        """The text as a person would read it, without marks."""
        return self.text.replace(self.mark, "")


def choose_mark(texts: Iterable[str]) -> str:
    """A character that occurs in none of the texts: the first noncharacter, unless someone uses it.

    Raises:
        TemplateError: the texts use thousands of different noncharacters and private characters, which nothing does
            but an attack.
    """
    seen: set[str] = set()
    for text in texts:
        if not text.isascii():
            seen.update(text)
    for code in chain(_NONCHARACTERS, _PRIVATE_USE):
        if chr(code) not in seen:
            return chr(code)
    raise TemplateError("the messages use every noncharacter and private-use character; remove some of them")


class ControlMarker:
    """Breaks control-token strings in content.

    Args:
        control: the control-token strings of the vocabulary.
    """

    def __init__(self, control: Iterable[str]) -> None:
        self._control = ControlStrings(control)
        # Only strings longer than one character can straddle the border between content and template.
        self._heads = {c[:n] for c in self._control for n in range(1, len(c))}
        self._tails = {c[n:] for c in self._control for n in range(1, len(c))}
        self._max_length = max(map(len, self._control), default=0)

    def mark(self, content: str, mark: str) -> str:
        """The content with a mark inside each control-token string, and inside what could become one at its borders.

        Content without any of these comes back as it is.
        """
        if not self._control:
            return content
        cuts = {
            at + 1 for at, _ in self._control.everywhere(content)
        }  # overlapping ones too: breaking one leaves the other
        lengths = range(1, min(self._max_length, len(content) + 1))
        cuts.update(len(content) - n + 1 for n in lengths if content[-n:] in self._heads)
        cuts.update(n - 1 for n in lengths if content[:n] in self._tails)
        pieces = [content[a:b] for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), len(content)], strict=True)]
        return mark.join(pieces)

    def mark_tree(self, value: Any, mark: str) -> Any:
        """The same for every string in nested dicts and lists, keys too."""
        if isinstance(value, str):
            return self.mark(value, mark)
        if isinstance(value, dict):
            return {self.mark_tree(k, mark): self.mark_tree(v, mark) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.mark_tree(v, mark) for v in value]
        return value


def strings_in(value: Any) -> Iterable[str]:
    """Every string in nested dicts and lists, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from strings_in(key)
            yield from strings_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings_in(item)
