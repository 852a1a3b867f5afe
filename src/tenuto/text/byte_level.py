"""How vocabularies spell bytes: byte-level ones all of them, SentencePiece's those it has no token for."""

from __future__ import annotations


def _byte_of_character() -> dict[str, int]:
    """Printable stand-ins for the 256 bytes (Radford et al. 2019): printable Latin-1 stands for itself, the rest
    follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in set(printable)]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


BYTE_OF_CHARACTER = _byte_of_character()


def bytes_of(token: str) -> bytes:
    """The bytes that a token of a byte-level vocabulary stands for."""
    try:
        return bytes(map(BYTE_OF_CHARACTER.__getitem__, token))
    except KeyError:
        return token.encode("utf-8")  # an unused filler: nothing encodes to it


def byte_of(token: str) -> int | None:
    """The byte of a byte token such as `<0x0A>`."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return int(token[3:5], 16)
        except ValueError:
            return None
    return None
