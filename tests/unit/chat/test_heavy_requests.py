"""Requests that would keep the event loop, or a thread, busy for long."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from chat_harness import END, SESSION, TOKENIZER, WEATHER, Chat, assistant, call, result, run, said, user
from tenuto.chat import ChatLimits
from tenuto.chat.history import arrange
from tenuto.errors import ContextLengthError, InvalidRequest
from tenuto.protocol.messages import Message, ToolSpec

FITS = 500


@pytest.mark.parametrize(
    ("messages", "tools"),
    [
        ([user("字" * 1_000_000)], ()),
        ([user("x")] * (FITS + 1), ()),
        ([user("x"), assistant("", *(call(f"c{i}") for i in range(FITS))), user("y")], ()),
        ([user("x")], tuple(ToolSpec(name=f"f{i}", description="", parameters={}) for i in range(FITS))),
        ([user("x")], (ToolSpec(name="f", description="好" * 1_000_000, parameters={}),)),
        ([user("x")], (ToolSpec(name="f", description="", parameters={"enum": ["好" * 1_000_000]}),)),
        ([assistant("", call("c", city="x" * 1_000_000)), result("c", "r")], ()),
    ],
)
def test_what_cannot_fit_is_refused_before_it_is_rendered(messages: list[Message], tools: tuple[ToolSpec, ...]) -> None:
    async def main() -> None:
        chat = Chat([], max_model_tokens=FITS)

        def never(*args: Any, **kwargs: Any) -> Any:
            raise AssertionError("it was rendered")

        chat.client._text.template.render = never  # type: ignore[method-assign]
        with pytest.raises(ContextLengthError, match="at the very least"):
            await chat.ask(*messages, tools=tools)

    run(main())


def test_many_calls_are_answered_in_linear_time() -> None:
    """100 000 calls: looking through all of them at each result would take minutes."""
    ids = [f"c{i}" for i in range(100_000)]
    turn = (user("q"), assistant("", *(call(i) for i in ids)), *(result(i, "晴") for i in ids), user("?"))
    assert len(arrange(turn).messages) == len(turn)


def test_preparing_leaves_the_event_loop_free_and_has_a_deadline() -> None:
    async def main() -> None:
        chat = Chat([said("好")], limits=ChatLimits(prepare_threads=1, prepare_s=0.05))
        gate = threading.Event()
        render = chat.client._text.template.render

        def slow(*args: Any, **kwargs: Any) -> Any:
            assert gate.wait(10)
            return render(*args, **kwargs)

        chat.client._text.template.render = slow  # type: ignore[method-assign]
        with pytest.raises(InvalidRequest, match="to prepare"):
            await chat.ask(user("你好"))
        gate.set()
        while True:
            try:
                reply = await chat.ask(user("你好"))
                break
            except InvalidRequest:  # the first one's thread has not ended yet
                await asyncio.sleep(0.01)
        assert reply.message.content == "好"
        assert chat.tokens(SESSION)[-1] == END

    run(main())


def test_other_requests_go_on_while_one_is_prepared() -> None:
    async def main() -> None:
        chat = Chat([said("好"), said("二")], limits=ChatLimits(prepare_threads=2))
        gate = threading.Event()
        render = chat.client._text.template.render

        def slow(messages: Any, *args: Any, **kwargs: Any) -> Any:
            assert messages[0].content != "慢" or gate.wait(10)
            return render(messages, *args, **kwargs)

        chat.client._text.template.render = slow  # type: ignore[method-assign]
        heavy = asyncio.create_task(chat.ask(user("慢"), session=None))
        await asyncio.sleep(0)
        light = await chat.ask(user("快"), tools=(WEATHER,), session=None)
        assert light.message.content == "好" and not heavy.done()
        gate.set()
        assert (await heavy).message.content == "二"

    run(main())


def test_no_token_is_longer_than_the_tokenizer_says() -> None:
    assert TOKENIZER.max_token_bytes == max(len(TOKENIZER.text_bytes(i)) for i in range(TOKENIZER.vocab_size))  # type: ignore[arg-type]
