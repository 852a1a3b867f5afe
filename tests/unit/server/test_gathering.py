"""What a pass of the event loop writes leaves in one piece, in order, whole, and before the connection closes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tenuto.server.gathering import GatheringTransport


class Wire(asyncio.Transport):
    """Keeps what is done to it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 7)})
        self.done: list[bytes | str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.done.append(bytes(data))

    def close(self) -> None:
        self.done.append("close")

    def abort(self) -> None:
        self.done.append("abort")

    def is_closing(self) -> bool:
        return "close" in self.done or "abort" in self.done

    def pause_reading(self) -> None:
        self.done.append("pause")

    def resume_reading(self) -> None:
        self.done.append("resume")


def written(use: Callable[[asyncio.Transport], None], *later: Callable[[asyncio.Transport], None]) -> list[bytes | str]:
    """What the wire saw, each use in a pass of its own."""

    async def main() -> list[bytes | str]:
        wire = Wire()
        gathering = GatheringTransport(wire, asyncio.get_running_loop())
        for one in (use, *later):
            one(gathering)
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        return wire.done

    return asyncio.run(main())


def write(*pieces: bytes) -> Callable[[asyncio.Transport], None]:
    def use(transport: asyncio.Transport) -> None:
        for piece in pieces:
            transport.write(piece)

    return use


def test_one_pass_is_one_write_and_the_next_another():
    assert written(write(b"a", b"", "北京".encode()), write(b"c")) == ["a北京".encode(), b"c"]
    assert written(write()) == []


def test_close_comes_after_what_was_written_and_abort_drops_it():
    def end(how: str) -> Callable[[asyncio.Transport], None]:
        def use(transport: asyncio.Transport) -> None:
            transport.write(b"last")
            assert not transport.is_closing()
            getattr(transport, how)()
            assert transport.is_closing()

        return use

    assert written(end("close")) == [b"last", "close"]
    assert written(end("abort")) == ["abort"]


def test_what_is_changed_after_it_was_written_leaves_as_it_was():
    def use(transport: asyncio.Transport) -> None:
        buffer = bytearray(b"abc")
        transport.write(buffer)
        buffer[:] = b"xyz"

    assert written(use) == [b"abc"]


@pytest.mark.parametrize("num_pieces", [1, 3, 40])
def test_much_does_not_gather(num_pieces: int):
    """The transport below tells when to pause; it can only count what it was given."""
    pieces = [bytes([number]) * 30_000 for number in range(num_pieces)]
    seen: list[int] = []

    def use(transport: asyncio.Transport) -> None:
        for piece in pieces:
            transport.write(piece)
            seen.append(len(piece))

    done = written(use)
    assert b"".join(piece for piece in done if isinstance(piece, bytes)) == b"".join(pieces)
    assert all(len(piece) <= 2**16 + 30_000 for piece in done)


def test_the_rest_is_the_transports_own():
    def use(transport: asyncio.Transport) -> None:
        transport.pause_reading()
        transport.resume_reading()
        assert transport.get_extra_info("peername") == ("127.0.0.1", 7)
        assert transport.get_extra_info("socket", "none") == "none"

    assert written(use) == ["pause", "resume"]
