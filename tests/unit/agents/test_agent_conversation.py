from __future__ import annotations

import asyncio

import pytest

from tenuto.agents import Agent, Conversation, RunFinished, TurnFinished
from tenuto.clock import VirtualClock, run_virtual
from tenuto.errors import QueueFull, SessionBusy
from tenuto.ids import IdSource
from tenuto.testing.scripted_model import Reply, ScriptedModel, call
from tenuto.testing.scripted_tools import ScriptedTools


async def ask(conversation: Conversation, query: str) -> list:
    return [event async for event in conversation.run(query)]


def test_queries_continue_one_session_and_their_history_is_held():
    async def main() -> None:
        model = ScriptedModel(["你好！", call("find", query="北京"), "晴"])
        agent = Agent(model, [ScriptedTools().make("find", ["晴天"])], "你是助手。", ids=IdSource(1))
        async with Conversation(agent) as conversation:
            await ask(conversation, "你好")
            events = await ask(conversation, "北京天气？")
            assert [m.role for m in conversation.messages] == [
                "system", "user", "assistant", "user", "assistant", "tool", "assistant",
            ]  # fmt: skip
            assert all(e.usage.num_held > 0 for e in events if isinstance(e, TurnFinished))
            assert model.seen.closes == []
            assert [w.reason for _, w in model.seen.suspends] == ["user", "find", "user"]
        assert len({r.session for r in model.seen.requests}) == 1
        assert model.seen.closes == [model.seen.requests[0].session]

    asyncio.run(main())


def test_a_failed_run_leaves_no_trace_in_the_history():
    async def main() -> None:
        model = ScriptedModel(["一", QueueFull("full"), "三"])
        conversation = Conversation(Agent(model, ids=IdSource(1)))
        await ask(conversation, "第一")
        before = conversation.messages
        events = await ask(conversation, "第二")
        assert isinstance(events[-1], RunFinished) and events[-1].reason == "error"
        assert conversation.messages == before
        await ask(conversation, "第三")
        assert [m.content for m in conversation.messages] == ["第一", "一", "第三", "三"]

    asyncio.run(main())


def test_one_run_at_a_time_and_leaving_early_frees_the_conversation():
    async def main() -> None:
        clock = VirtualClock()
        replies = iter([Reply("慢慢说来", delay_s=1.0, piece_delay_s=100.0), Reply("好")])
        model = ScriptedModel(lambda _: next(replies), clock=clock)
        conversation = Conversation(Agent(model, ids=IdSource(1), clock=clock))
        first = asyncio.create_task(ask(conversation, "第一"))
        await clock.sleep(5.0)
        with pytest.raises(SessionBusy):
            await ask(conversation, "第二")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert conversation.messages == ()
        await ask(conversation, "第三")
        assert [m.content for m in conversation.messages] == ["第三", "好"]
        assert clock.now() < 10

    run_virtual(main())


def test_without_hold_there_is_no_session():
    async def main() -> None:
        model = ScriptedModel(["一", "二"])
        async with Conversation(Agent(model, hold=False)) as conversation:
            await ask(conversation, "甲")
            await ask(conversation, "乙")
        assert [r.session for r in model.seen.requests] == [None, None]
        assert len(model.seen.requests[1].messages) == 3
        assert model.seen.closes == model.seen.suspends == []

    asyncio.run(main())
