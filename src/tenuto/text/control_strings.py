"""Finds the strings of a vocabulary's control tokens in text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

# Unicode White_Space: what `tokenizers` strips around an added token. Python's own `isspace` knows four more.
_WHITE_SPACE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


class ControlStrings:
    """A set of strings, found in one pass however many there are and however the text looks.

    Where several start at one place, the longest counts (as in `tokenizers`).
    """

    def __init__(self, strings: Iterable[str]) -> None:
        self._strings = {s for s in strings if s}
        lengths: dict[str, set[int]] = {}
        for s in self._strings:
            lengths.setdefault(s[:2], set()).add(len(s))
        self._lengths = {head: sorted(found, reverse=True) for head, found in lengths.items()}
        heads = "|".join(map(re.escape, sorted(self._lengths, key=len, reverse=True)))
        # A lookahead finds heads that overlap.
        self._head = re.compile(f"(?=({heads}))") if heads else None

    def __bool__(self) -> bool:
        return bool(self._strings)

    def __iter__(self) -> Iterator[str]:
        return iter(self._strings)

    def everywhere(self, text: str) -> Iterator[tuple[int, str]]:
        """(offset, string) of every occurrence, overlapping ones too; the longest at each offset."""
        for found in self._head.finditer(text) if self._head else ():
            at = found.start()
            for head in (found[1], found[1][:1]):
                longest = next((n for n in self._lengths.get(head, ()) if text[at : at + n] in self._strings), None)
                if longest is not None:
                    yield at, text[at : at + longest]
                    break

    def split(
        self, text: str, strip_left: frozenset[str] = frozenset(), strip_right: frozenset[str] = frozenset()
    ) -> Iterator[tuple[str, str | None]]:
        """Pairs of (text before, control string), the last with None. Occurrences do not overlap; leftmost first.

        Args:
            strip_left: strings that swallow the white space before them.
            strip_right: strings that swallow the white space after them.
        """
        end = 0
        after: str | None = None
        for at, string in self.everywhere(text):
            if at < end:
                continue
            yield _stripped(text[end:at], after in strip_right, string in strip_left), string
            after = string
            end = at + len(string)
        yield _stripped(text[end:], after in strip_right, False), None


def _stripped(text: str, left: bool, right: bool) -> str:
    text = text.lstrip(_WHITE_SPACE) if left else text
    return text.rstrip(_WHITE_SPACE) if right else text
