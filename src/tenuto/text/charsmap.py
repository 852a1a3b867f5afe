"""SentencePiece's compiled normalisation rules.

A `precompiled_charsmap` is the size of a trie (4 bytes, little endian), the trie itself, as a double array of Darts
(Yata, "darts-clone"), and the replacements, ended by zero bytes. The longest rule that begins at a place wins. The
`tokenizers` library applies the same rules grapheme by grapheme, which is not quite the same for stacked marks.
"""

from __future__ import annotations

import struct

from tenuto.errors import ModelFileError

_MAX_RULE_CHARS = 64


class CharsMap:
    """
    Args:
        data: the rules as a model file has them.
        where: names the file, in messages.

    Raises:
        ModelFileError: the sizes do not fit.
    """

    def __init__(self, data: bytes, where: str) -> None:
        size = int.from_bytes(data[:4], "little")
        if len(data) < 4 or size % 4 or size < 4 or size > len(data) - 4:
            raise ModelFileError(f"{where}: the normalisation rules are corrupt")
        self._units = struct.unpack_from(f"<{size // 4}I", data, 4)
        self._replacements = data[4 + size :]
        self._starts: dict[str, bool] = {}  # whether a rule begins with this character
        self._where = where

    def __call__(self, text: str) -> str:
        pieces: list[str] = []
        at = 0
        while at < len(text):
            character = text[at]
            starts = self._starts.get(character)
            if starts is None:
                starts = self._starts[character] = self._leads_on(character)
            found = self._longest(text, at) if starts else None
            if found is None:
                pieces.append(character)
                at += 1
            else:
                pieces.append(found[1])
                at += found[0]
        return "".join(pieces)

    def _leads_on(self, character: str) -> bool:
        return self._walk(self._root(), character) is not None

    def _longest(self, text: str, at: int) -> tuple[int, str] | None:
        """(characters, replacement) of the longest rule that begins here."""
        best = None
        node = self._root()
        for count, character in enumerate(text[at : at + _MAX_RULE_CHARS], 1):
            reached = self._walk(node, character)
            if reached is None:
                break
            node, is_rule = reached
            if is_rule:
                start = self._unit(node) & 0x7FFFFFFF
                end = self._replacements.find(b"\0", start)
                best = (count, self._replacements[start : max(start, end)].decode("utf-8", errors="replace"))
        return best

    def _root(self) -> int:
        return _offset(self._unit(0))

    def _walk(self, node: int, character: str) -> tuple[int, bool] | None:
        """(node after this character, whether a rule ends there); None if no rule goes on so."""
        unit = 0
        for byte in character.encode("utf-8"):
            node ^= byte
            unit = self._unit(node)
            if unit & 0x800000FF != byte:
                return None
            node ^= _offset(unit)
        return node, bool(unit >> 8 & 1)

    def _unit(self, at: int) -> int:
        if at >= len(self._units):
            raise ModelFileError(f"{self._where}: the normalisation rules are corrupt")
        return int(self._units[at])


def _offset(unit: int) -> int:
    return unit >> 10 << ((unit & 0x200) >> 6)
