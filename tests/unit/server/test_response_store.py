"""What is kept of responses is bounded in number, bytes and time; what is gone is a typed error."""

from __future__ import annotations

import asyncio

import pytest

from tenuto.clock import VirtualClock, run_virtual
from tenuto.errors import NotStored
from tenuto.protocol.messages import Message
from tenuto.server.limits import StoreLimits
from tenuto.server.responses.store import KeptTurn, ResponseStore

LIMITS = StoreLimits(max_responses=1000, max_bytes=100 * 2**20, ttl_s=60)


def turn(name: str, previous: str | None = None, text: str = "好") -> KeptTurn:
    items = ({"type": "message", "id": f"in_{name}", "role": "user", "content": text},)
    messages = (Message(role="user", content=text), Message(role="assistant", content=name))
    return KeptTurn(id=name, previous=previous, body={"id": name, "output": []}, items=items, messages=messages)


def said(store: ResponseStore, response: str) -> list[str]:
    """The assistant's words of the conversation up to a response; the user's stand between them."""
    history = store.history("", response, "previous_response_id")
    assert [message.role for message in history] == ["user", "assistant"] * (len(history) // 2)
    assert [item["id"] for item in store.input_items("", response)] == [f"in_{one.content}" for one in history[1::2]]
    return [message.content for message in history[1::2]]


def in_time(check: object) -> None:
    async def main() -> None:
        await check(VirtualClock())  # type: ignore[operator]

    run_virtual(main())


def test_ten_thousand_responses_stay_within_bounds():
    """B38"""

    async def check(clock: VirtualClock) -> None:
        store = ResponseStore(LIMITS, clock)
        for number in range(10_000):
            store.put("", turn(f"r{number}"))
        assert store.num_responses == 1000
        with pytest.raises(NotStored):
            store.body("", "r8999")
        assert store.body("", "r9000")["id"] == "r9000"
        small = ResponseStore(StoreLimits(max_responses=10**6, max_bytes=2**20), clock)
        for number in range(3000):
            small.put("", turn(f"r{number}", text="字" * 1000))
        assert 100 < small.num_responses < 400 and small.num_bytes <= 2**20
        small.put("", turn("huge", text="字" * 10**6))
        assert small.num_bytes <= 2**20
        with pytest.raises(NotStored):
            small.body("", "huge")

    in_time(check)


def test_a_response_is_kept_for_so_long_after_its_last_use():
    async def check(clock: VirtualClock) -> None:
        store = ResponseStore(LIMITS, clock)
        store.put("", turn("a"))
        store.put("", turn("b", previous="a"))
        store.put("", turn("c"))
        for _ in range(3):
            await asyncio.sleep(50)
            assert said(store, "b") == ["a", "b"]  # which uses both
        with pytest.raises(NotStored, match="expired"):
            store.body("", "c")
        await asyncio.sleep(60)
        with pytest.raises(NotStored):
            store.history("", "b", "previous_response_id")
        assert store.num_responses == store.num_bytes == 0

    in_time(check)


def test_a_chain_goes_from_its_end():
    """What was said first is needed by all that follows, so the latest turn goes first."""

    async def check(clock: VirtualClock) -> None:
        store = ResponseStore(StoreLimits(max_responses=4), clock)
        for number in range(4):
            store.put("", turn(f"r{number}", previous=f"r{number - 1}" if number else None))
        assert said(store, "r3") == ["r0", "r1", "r2", "r3"]
        store.put("", turn("new"))
        assert said(store, "r2") == ["r0", "r1", "r2"]
        with pytest.raises(NotStored):
            store.body("", "r3")

    in_time(check)


def test_a_tenant_that_keeps_much_pushes_out_its_own():
    async def check(clock: VirtualClock) -> None:
        store = ResponseStore(StoreLimits(max_responses=100), clock)
        store.put("quiet", turn("mine"))
        for number in range(1000):
            store.put("loud", turn(f"r{number}"))
        assert store.body("quiet", "mine")["id"] == "mine"
        assert store.num_responses == 100
        with pytest.raises(NotStored):
            store.body("loud", "mine")
        with pytest.raises(NotStored):
            store.delete("loud", "mine")

    in_time(check)


def test_an_item_is_found_in_the_latest_response_that_brought_it():
    async def check(clock: VirtualClock) -> None:
        store = ResponseStore(LIMITS, clock)
        for name in ("a", "b"):
            one = turn(name)
            item = {**one.items[0], "id": "same", "content": name}
            store.put("", KeptTurn(id=name, previous=None, body=one.body, items=(item,), messages=one.messages))
        assert store.lookup("")("same", "input[0]")["content"] == "b"
        store.delete("", "a")
        assert store.lookup("")("same", "input[0]")["content"] == "b"
        store.delete("", "b")
        with pytest.raises(NotStored) as caught:
            store.lookup("")("same", "input[0]")
        assert caught.value.param == "input[0]"

    in_time(check)
