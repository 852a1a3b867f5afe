"""The parts of a boundary: errors as data, frames, the gathering of deltas."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tenuto import errors
from tenuto.engine.boundary import messages as m
from tenuto.engine.boundary.errors import MAX_TEXT, ErrorMessage, pack_error, unpack_error
from tenuto.engine.boundary.frames import FrameReader, frame
from tenuto.engine.boundary.link import Link
from tenuto.engine.boundary.outbox import Outbox
from tenuto.errors import ContextLengthError, EngineClosed, InvalidRequest, ModelFileError, StepFailed, TenutoError
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.engine import TokenDelta
from tenuto.testing.boundary import MemoryTransport


def tree(root: type[TenutoError] = TenutoError) -> Iterator[type[TenutoError]]:
    if root.__module__ == errors.__name__:
        yield root
    for child in root.__subclasses__():
        yield from tree(child)


MADE: dict[type[TenutoError], TenutoError] = {
    ContextLengthError: ContextLengthError(9000, 8192, "会话", "缩短"),
    InvalidRequest: InvalidRequest("top_p is 2; it must be at most 1", "top_p"),
    ModelFileError: ModelFileError("a.gguf: 两个问题", ["one", "二"]),
}


def crossed(error: TenutoError) -> TenutoError:
    """As bytes and back."""
    return unpack_error(msgspec.msgpack.decode(msgspec.msgpack.encode(pack_error(error)), type=ErrorMessage))


@pytest.mark.parametrize("kind", sorted(set(tree()), key=lambda k: k.__name__), ids=lambda k: k.__name__)
def test_every_error_of_the_tree_crosses_whole(kind: type[TenutoError]) -> None:
    error = MADE.get(kind) or kind("出了问题: try again")  # type: ignore[call-arg]
    got = crossed(error)
    assert type(got) is kind
    assert str(got) == str(error) and got.args == error.args and got.code == error.code
    assert vars(got) == vars(error)


def test_a_cause_is_told_in_a_note() -> None:
    error = StepFailed("an engine step failed: no memory")
    error.__cause__ = MemoryError("no memory")
    assert crossed(error).__notes__ == ["caused in the engine's process by MemoryError: no memory"]
    assert crossed(crossed(error)).args == error.args


def test_an_error_that_only_the_other_side_knows_is_the_nearest_known() -> None:
    packed = ErrorMessage(("Novelty", "QueueFull", "CapacityError", "TenutoError"), "full", {"retry_after_s": 2.5})
    got = unpack_error(packed)
    assert type(got) is errors.QueueFull and got.retry_after_s == 2.5  # type: ignore[attr-defined]
    assert type(unpack_error(ErrorMessage(("Never",), "x"))) is TenutoError


def test_what_cannot_cross_of_an_error_is_cut_not_refused() -> None:
    error = ModelFileError("坏" * (2 * MAX_TEXT), ["half \ud83d"] * 5000)
    error.extra = {"nested": object()}  # type: ignore[attr-defined]
    error.huge = 2**90  # type: ignore[attr-defined]
    got = crossed(error)
    assert isinstance(got, ModelFileError)
    assert len(str(got)) < MAX_TEXT + 10 and len(got.problems) == 1000 and got.problems[0] == "half ?"
    assert got.huge == str(2**90)  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(20))
def test_frames_are_put_together_however_they_are_cut(seed: int) -> None:
    rng = random.Random(seed)
    payloads = [rng.randbytes(rng.choice([1, 2, 3, 300, 70_000])) for _ in range(20)]
    data = b"".join(frame(payload) for payload in payloads)
    reader, got, at = FrameReader(), [], 0
    while at < len(data):
        size = rng.choice([1, 2, 5, 400, 100_000])
        reader.feed(data[at : at + size])
        at += size
        while (payload := reader.take()) is not None:
            got.append(payload)
    assert got == payloads and not reader.is_inside


@pytest.mark.parametrize("size", [0, 1001, 2**32 - 1])
def test_a_length_that_no_frame_has_is_refused_before_anything_is_kept(size: int) -> None:
    reader = FrameReader(max_frame_bytes=1000)
    reader.feed(frame(b"good") + size.to_bytes(4, "big"))
    assert reader.take() == b"good"
    with pytest.raises(EngineClosed, match=f"a frame of {size} bytes"):
        reader.take()


class Told:
    """A link, and what it tells."""

    def __init__(self, **options: Any) -> None:
        self.messages: list[Any] = []
        self.ends: list[EngineClosed | None] = []
        self.link: Link[Any] = Link(m.decode_from_host, self.messages.append, self.ends.append, **options)
        self.transport = MemoryTransport(self.link)
        self.transport.connect(MemoryTransport(asyncio.Protocol()))


BROKEN = {
    "no msgpack": frame(b"\xc1"),
    "half a message": frame(m.encode(m.Heartbeat())[:-1]),
    "a number": frame(msgspec.msgpack.encode(7)),
    "an unknown tag": frame(msgspec.msgpack.encode(["Explode", 1])),
    "a wrong type": frame(msgspec.msgpack.encode(["Credit", "one", 1])),
    "too few fields": frame(msgspec.msgpack.encode(["Credit"])),
    "a message of the other direction": frame(m.encode(m.Cancel(1))),
    "nested deep": frame(b"\x92\xa6Answer" + b"\x91" * 5000),
    "text that is no UTF-8": frame(msgspec.msgpack.encode(["Failed", 1]).replace(b"Failed", b"Fail\xff\xfe")),
    "an empty frame": b"\0\0\0\0",
    "a frame too large": b"\x7f\xff\xff\xff",
}


@pytest.mark.parametrize("broken", BROKEN)
def test_bytes_that_are_no_messages_end_the_link_with_a_reason(broken: str) -> None:
    async def main() -> None:
        told = Told()
        told.transport.deliver(frame(m.encode(m.Heartbeat())) + BROKEN[broken] + frame(m.encode(m.Heartbeat())))
        await asyncio.sleep(0)
        assert told.messages == [m.Heartbeat()], "what came before counts, what came after does not"
        (end,) = told.ends
        assert isinstance(end, EngineClosed) and "broken" in str(end)
        told.transport.deliver(frame(m.encode(m.Heartbeat())))
        assert len(told.messages) == 1 and len(told.ends) == 1

    asyncio.run(main())


@pytest.mark.parametrize("cut", [1, 4, 5, 8])
def test_an_end_inside_a_frame_is_told_from_a_clean_one(cut: int) -> None:
    async def main() -> list[EngineClosed | None]:
        told = Told()
        told.transport.deliver(frame(m.encode(m.Heartbeat()))[:cut])
        told.transport.close()
        await asyncio.sleep(0)
        return told.ends

    (end,) = asyncio.run(main())
    assert "in the middle of a frame" in str(end)


def delta(token: int) -> TokenDelta:
    return TokenDelta(ids=(TokenId(token),))


def test_deltas_of_one_pass_are_one_frame_and_order_is_kept() -> None:
    async def main() -> list[Any]:
        told = Told()
        outbox = Outbox(Link(m.decode_to_host, lambda _: None, lambda _: None))
        MemoryTransport(outbox._link).connect(MemoryTransport(told.link))
        for call in range(8):
            outbox.add_delta(call, delta(call))
        outbox.add(m.Answer(3, m.NOTHING))
        outbox.add_delta(9, delta(9))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        outbox.add_delta(1, delta(5))
        await asyncio.sleep(0.01)
        return told.messages

    first, answer, *rest = asyncio.run(main())
    assert first == m.Deltas([(call, delta(call)) for call in range(8)])
    assert answer == m.Answer(3, m.NOTHING)
    assert rest == [m.Deltas([(9, delta(9))]), m.Deltas([(1, delta(5))])]


def test_while_the_reader_does_not_keep_up_deltas_gather() -> None:
    async def main() -> tuple[int, list[Any]]:
        told = Told()
        link = Link(m.decode_to_host, lambda _: None, lambda _: None)
        outbox = Outbox(link, max_frame_bytes=2000)
        MemoryTransport(link).connect(MemoryTransport(told.link))
        link.pause_writing()
        for step in range(100):
            outbox.add_delta(1, delta(step))
            await asyncio.sleep(0)
        held = len(told.messages)
        link.resume_writing()
        outbox.flush()
        await asyncio.sleep(0.01)
        return held, told.messages

    held, messages = asyncio.run(main())
    assert held == 0
    assert all(len(m.encode(message)) <= 2000 for message in messages) and 1 < len(messages) < 20
    assert [d.ids[0] for message in messages for _, d in message.items] == list(range(100))


def test_numpy_numbers_cross_and_objects_do_not() -> None:
    import numpy as np

    append = m.Append(SessionId("a"), list(np.arange(3)), m.RunHints())  # type: ignore[arg-type]
    got = m.decode_to_host(m.encode(m.Ask(1, m.raw(append))))
    assert isinstance(got, m.Ask)
    question = m.decode_question(got)
    assert isinstance(question, m.Append) and question.ids == [0, 1, 2]
    with pytest.raises(TypeError, match="object cannot cross a process"):
        m.raw(object())
