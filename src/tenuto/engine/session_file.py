"""An exported session as bytes.

    magic (8 bytes) · version (4) · frame(header) · frames(token ids) · frames(KV) · frame(nothing)

A frame is its length (4 bytes), so many bytes, and a digest (16 bytes) of everything before it since the beginning
(BLAKE2b, RFC 7693). Numbers are little-endian. The header is JSON; ids are 4 bytes each, `IDS_PER_GROUP` of them in a
group, and the KV lies token by token, `tokens_per_group` of them in a group. A group is as few frames as possible.
KV may end with any group: what is missing is computed when it is needed. A digest proves that nothing was damaged, not
who wrote it.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator

import msgspec
import numpy as np

from tenuto.errors import SessionFileError
from tenuto.ids import TokenId
from tenuto.protocol.engine import MAX_PIECE_BYTES

MAGIC = b"\x89TENUTO\n"  # not ASCII, and with a line end: text modes and 7-bit channels break it visibly
VERSION = 1
DIGEST_BYTES = 16
MAX_PAYLOAD_BYTES = MAX_PIECE_BYTES - 4 - DIGEST_BYTES
MAX_HEADER_BYTES = 64 * 1024
IDS_PER_GROUP = MAX_PAYLOAD_BYTES // 4
_MAX_TOKENS = 1 << 31
_MAX_TOKEN_BYTES = 1 << 30


class SessionHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What an importer must know before it reads on."""

    model: str  # name, for people
    fingerprint: str  # of tokenizer and weights
    kv_form: str  # KV of another form is of no use: its tokens are computed again
    token_bytes: int  # KV of one token
    tokens_per_group: int
    num_tokens: int
    num_computed: int  # of these, at most so many come with KV

    def __post_init__(self) -> None:
        if not 0 <= self.num_computed <= self.num_tokens < _MAX_TOKENS:
            raise ValueError(f"{self.num_computed} computed of {self.num_tokens} tokens make no sense")
        if not (1 <= self.token_bytes <= _MAX_TOKEN_BYTES and 1 <= self.tokens_per_group < _MAX_TOKENS):
            raise ValueError("the sizes of its KV make no sense")
        if self.tokens_per_group > 1 and self.tokens_per_group * self.token_bytes > MAX_PAYLOAD_BYTES:
            raise ValueError("a group of tokens is larger than a piece")

    @property
    def groups(self) -> Iterator[tuple[int, int]]:
        """(first token, end) of each group with KV."""
        for first in range(0, self.num_computed, self.tokens_per_group):
            yield first, min(first + self.tokens_per_group, self.num_computed)


def tokens_per_group(token_bytes: int, block_size: int) -> int:
    """As many whole blocks as fit one piece, or as many tokens, at least one."""
    num_tokens = MAX_PAYLOAD_BYTES // token_bytes
    return max(1, num_tokens // block_size * block_size or num_tokens)


class SessionWriter:
    """Makes the pieces of one export, none longer than MAX_PIECE_BYTES."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=DIGEST_BYTES)

    def begin(self, header: SessionHeader, tokens: list[TokenId]) -> Iterator[bytes]:
        """Header and ids."""
        start = MAGIC + VERSION.to_bytes(4, "little")
        self._digest.update(start)
        yield start + self._frame(msgspec.json.encode(header))
        for first in range(0, len(tokens), IDS_PER_GROUP):
            yield from self.group(np.array(tokens[first : first + IDS_PER_GROUP], dtype="<u4").tobytes())

    def group(self, data: bytes) -> Iterator[bytes]:
        for first in range(0, len(data), MAX_PAYLOAD_BYTES):
            yield self._frame(data[first : first + MAX_PAYLOAD_BYTES])

    def end(self) -> bytes:
        return self._frame(b"")

    def _frame(self, payload: bytes) -> bytes:
        head = len(payload).to_bytes(4, "little")
        self._digest.update(head)
        self._digest.update(payload)
        digest = self._digest.digest()
        self._digest.update(digest)
        return head + payload + digest


class SessionReader:
    """Reads what a `SessionWriter` wrote, cut into pieces anywhere. Trusts nothing, and keeps one frame at a time.

    Every method raises SessionFileError where the bytes are not what must come next.
    """

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = bytearray()
        self._num_read = 0
        self._digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._ended = False

    async def header(self) -> SessionHeader:
        if await self._take(len(MAGIC)) != MAGIC:
            raise SessionFileError("this is no exported session: it does not begin as one")
        version = int.from_bytes(await self._take(4), "little")
        if version != VERSION:
            raise SessionFileError(f"the exported session is of version {version}; this server reads {VERSION}")
        payload = await self._frame(MAX_HEADER_BYTES)
        try:
            return msgspec.json.decode(payload, type=SessionHeader)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise SessionFileError(f"the header of the exported session is unusable: {error}") from error

    async def ids(self, header: SessionHeader) -> list[TokenId]:
        """All ids. They are as many as the header says: check that first."""
        ids: list[TokenId] = []
        while len(ids) < header.num_tokens:
            data = await self.group(4 * min(IDS_PER_GROUP, header.num_tokens - len(ids)))
            if data is None:
                raise SessionFileError(f"the exported session ends after {len(ids)} of {header.num_tokens} tokens")
            ids += np.frombuffer(data, dtype="<u4").tolist()
        return ids

    async def group(self, num_bytes: int) -> bytes | None:
        """So many bytes; None if the session ends instead."""
        parts: list[bytes] = []
        missing = num_bytes
        while missing:
            expected = min(MAX_PAYLOAD_BYTES, missing)
            part = await self._frame(expected)
            if not part and not parts:
                self._ended = True
                return None
            if len(part) != expected:
                raise SessionFileError(
                    f"byte {self._num_read} of the exported session ends a frame of {len(part)} bytes where "
                    f"{expected} are due"
                )
            parts.append(part)
            missing -= expected
        return b"".join(parts)

    async def finish(self) -> None:
        """The end, and nothing after it."""
        if not self._ended and await self._frame(0):
            raise AssertionError("a frame is no longer than it may be")
        self._ended = True
        while not self._rest:
            piece = await anext(self._pieces, None)
            if piece is None:
                return
            self._rest += piece
        raise SessionFileError(f"more follows after the end of the exported session, at byte {self._num_read}")

    async def _frame(self, max_bytes: int) -> bytes:
        length = int.from_bytes(await self._take(4), "little")
        if length > max_bytes:
            raise SessionFileError(
                f"byte {self._num_read} of the exported session begins a frame of {length} bytes; {max_bytes} at most "
                "are due there"
            )
        payload = await self._take(length)
        digest = self._digest.digest()
        if await self._take(DIGEST_BYTES) != digest:
            raise SessionFileError(f"the exported session is damaged before byte {self._num_read}: digests differ")
        return payload

    async def _take(self, num_bytes: int) -> bytes:
        while len(self._rest) < num_bytes:
            piece = await anext(self._pieces, None)
            if piece is None:
                raise SessionFileError(
                    f"the exported session is cut short: it ends after {self._num_read + len(self._rest)} bytes"
                )
            self._rest += piece
        taken = bytes(self._rest[:num_bytes])
        del self._rest[:num_bytes]
        self._num_read += num_bytes
        self._digest.update(taken)
        return taken
