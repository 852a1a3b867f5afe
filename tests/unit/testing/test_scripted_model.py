"""The scripted model keeps the ModelClient contract that agents and servers rely on."""

from __future__ import annotations

import asyncio

import pytest

from tenuto.clock import VirtualClock, run_virtual
from tenuto.errors import QueueFull, SessionBusy
from tenuto.ids import SessionId
from tenuto.protocol.chat import (
    ChatRequest,
    ModelClient,
    ReplyFinished,
    TextDelta,
    TokensScored,
    ToolCallDelta,
    ToolCallFinished,
)
from tenuto.protocol.messages import Message
from tenuto.testing.scripted_model import Reply, ScriptedModel, call

ASK = Message(role="user", content="北京今天天气怎么样？")


async def collect(model: ModelClient, request: ChatRequest) -> list:
    return [event async for event in model.stream(request)]


def test_streams_text_in_pieces_that_concatenate_to_the_reply():
    events = asyncio.run(collect(ScriptedModel(["今天北京晴，二十度。"]), ChatRequest(messages=(ASK,))))
    assert len(events) > 2
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "今天北京晴，二十度。"
    assert events[-1].reason == "stop"
    assert events[-1].message == Message(role="assistant", content="今天北京晴，二十度。")


def test_call_pieces_concatenate_to_the_arguments():
    events = asyncio.run(collect(ScriptedModel([call("weather", city="北京")]), ChatRequest(messages=(ASK,))))
    assert "".join(e.arguments for e in events if isinstance(e, ToolCallDelta)) == '{"city": "北京"}'
    (finished,) = [e for e in events if isinstance(e, ToolCallFinished)]
    assert events[-1].reason == "tool_calls"
    assert events[-1].message.tool_calls == (finished.call,)


def test_held_session_counts_only_what_is_new():
    async def main() -> None:
        model = ScriptedModel(["一", "二"])
        session = SessionId("s")
        (*_, first) = await collect(model, ChatRequest(messages=(ASK,), session=session))
        more = (ASK, first.message, Message(role="user", content="明天呢？"))
        (*_, second) = await collect(model, ChatRequest(messages=more, session=session))
        assert first.usage.num_held == 0
        assert second.usage.num_held > 0
        assert second.usage.num_held + second.usage.num_computed == second.usage.num_prompt
        await model.close(session)
        assert model.sessions == {} and model.seen.closes == [session]

    asyncio.run(main())


def test_obeys_stop_strings_and_max_tokens():
    events = asyncio.run(collect(ScriptedModel(["one END two"]), ChatRequest(messages=(ASK,), stop=("END",))))
    assert (events[-1].message.content, events[-1].reason) == ("one ", "stop")
    model = ScriptedModel(["abcdefgh"], piece_chars=2)
    events = asyncio.run(collect(model, ChatRequest(messages=(ASK,), max_tokens=2)))
    assert (events[-1].message.content, events[-1].reason) == ("abcd", "length")


def test_raises_the_scripted_error_after_the_text():
    async def main() -> None:
        texts = []
        with pytest.raises(QueueFull):
            async for event in ScriptedModel([Reply("abc", error=QueueFull("full"))]).stream(ChatRequest(messages=())):
                assert not isinstance(event, ReplyFinished)
                texts.append(event.text)
        assert texts == ["abc"]

    asyncio.run(main())


def test_delays_on_the_clock_records_cancellation_and_refuses_a_busy_session():
    async def main() -> None:
        clock = VirtualClock()
        model = ScriptedModel(lambda _: Reply("slow answer", delay_s=60.0), clock=clock)
        request = ChatRequest(messages=(ASK,), session=SessionId("s"))
        first = asyncio.create_task(collect(model, request))
        await clock.sleep(1)
        with pytest.raises(SessionBusy):
            await collect(model, request)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert model.seen.cancelled == [request]
        assert clock.now() < 2
        (*_, last) = await collect(model, request)
        assert last.usage.ttft_s == 60.0

    run_virtual(main())


def test_choices_play_one_reply_each_and_count_the_prompt_once():
    events = asyncio.run(
        collect(ScriptedModel(["晴。", call("weather", city="北京")]), ChatRequest(messages=(ASK,), n=2))
    )
    first, second = (event for event in events if isinstance(event, ReplyFinished))
    assert [event.choice for event in events] == sorted(event.choice for event in events)
    assert (first.choice, first.message.content, second.choice, second.reason) == (0, "晴。", 1, "tool_calls")
    assert first.usage.num_prompt > 0 and second.usage.num_prompt == 0


def test_pieces_of_text_are_scored_if_asked():
    events = asyncio.run(collect(ScriptedModel(["今天北京晴"]), ChatRequest(messages=(ASK,), logprobs=1)))
    told = [score.token.data.decode() for event in events if isinstance(event, TokensScored) for score in event.tokens]
    assert told == [event.text for event in events if isinstance(event, TextDelta)]
