"""Giving up the KV of a conversation or of a run: what goes, what stays, and how the next turn finds it."""

from __future__ import annotations

import pytest

from chat_harness import CLOCK, WEATHER, Chat, assistant, call, call_text, result, run, said, system, user
from tenuto.chat.computed_runs import ComputedRuns, RunLimits
from tenuto.errors import InvalidRequest
from tenuto.ids import RunId, TokenId
from tenuto.protocol.chat import ChatRequest
from tenuto.protocol.hints import RunHints
from tenuto.protocol.messages import Message
from tenuto.protocol.release import KeptPart

RUN = RunHints(run=RunId("跑-1"))
OTHER = RunHints(run=RunId("other"))
HEAD = (system("你是助手。You help."), user("北京今天天气怎么样？Be brief, please."))


def request(*messages: Message, **fields: object) -> ChatRequest:
    fields.setdefault("hints", RUN)
    return ChatRequest(messages=messages, **fields)


async def three_turns(chat: Chat, hints: RunHints = RUN) -> list[Message]:
    """A conversation with a call and a follow-up; everything up to the last reply is returned."""
    messages = list(HEAD)
    reply = await chat.ask(*messages, tools=(WEATHER,), session=None, hints=hints)
    (made,) = reply.message.tool_calls
    messages += [reply.message, result(made.id, "晴，8°C")]
    reply = await chat.ask(*messages, tools=(WEATHER,), session=None, hints=hints)
    messages += [reply.message, user("谢谢。那明天呢？")]
    reply = await chat.ask(*messages, tools=(WEATHER,), session=None, hints=hints)
    return [*messages, reply.message]


def script() -> list[list[int]]:
    return [said(call_text(city="北京")), said("北京晴，8°C。"), said("不知道。")] * 4


def test_messages_from_some_place_on_and_all_that_followed():
    async def main() -> None:
        chat = Chat(script(), block_size=4)
        messages = await three_turns(chat)
        kept = len(chat.rendered(*messages[:2], tools=(WEATHER,), prompt=False))
        whole = await chat.ask(*messages[:-1], tools=(WEATHER,), session=None, hints=RUN)
        assert whole.usage.num_shared >= whole.usage.num_prompt - 4
        freed = await chat.client.releases.release_conversation(
            request(*messages[:-1], tools=(WEATHER,)), KeptPart(num_messages=2)
        )
        again = await chat.ask(*messages[:-1], tools=(WEATHER,), session=None, hints=RUN)
        assert kept - 4 < again.usage.num_shared <= kept + 4
        assert freed >= (whole.usage.num_shared - again.usage.num_shared) // 4

    run(main())


def test_the_beginning_of_a_turn_of_calls_is_not_kept_without_its_results():
    async def main() -> None:
        for num_messages in (3, 4):
            chat = Chat(script(), block_size=4)
            messages = await three_turns(chat)
            await chat.client.releases.release_conversation(
                request(*messages[:-1], tools=(WEATHER,)), KeptPart(num_messages=num_messages)
            )
            kept = messages[: 2 if num_messages == 3 else 4]
            again = await chat.ask(*messages[:-1], tools=(WEATHER,), session=None, hints=RUN)
            num_kept = len(chat.rendered(*kept, tools=(WEATHER,), prompt=False))
            assert num_kept - 4 < again.usage.num_shared <= num_kept + 4

    run(main())


def test_tools_from_some_place_on():
    async def main() -> None:
        chat = Chat([said("好"), said("好")], block_size=4)
        tools = (WEATHER, CLOCK)
        first = await chat.ask(*HEAD, tools=tools, session=None, hints=RUN)
        freed = await chat.client.releases.release_conversation(
            request(*HEAD, tools=tools), KeptPart(num_messages=2, num_tools=1)
        )
        again = await chat.ask(*HEAD, tools=tools, session=None, hints=RUN)
        assert 0 < again.usage.num_shared < first.usage.num_prompt - 8
        assert freed * 4 >= first.usage.num_prompt - again.usage.num_shared - 8

    run(main())


@pytest.mark.parametrize("kept", [KeptPart(num_messages=2), KeptPart(num_messages=9, num_tools=1)])
def test_nothing_is_released_of_what_is_kept_whole(kept: KeptPart):
    async def main() -> None:
        chat = Chat([said("好")], block_size=4)
        await chat.ask(*HEAD, tools=(CLOCK,), session=None, hints=RUN)
        assert await chat.client.releases.release_conversation(request(*HEAD, tools=(CLOCK,)), kept) == 0

    run(main())


def test_a_run_gives_up_all_its_ways_and_leaves_those_of_others():
    async def main() -> None:
        chat = Chat(script(), block_size=4)
        messages = await three_turns(chat)
        rewritten = (*HEAD, assistant("我们谈过天气。"), user("那明天呢？"))
        await chat.ask(*rewritten, tools=(WEATHER,), session=None, hints=RUN)
        other = (*HEAD, assistant("你好。"), user("再见，see you"))
        await chat.ask(*other, tools=(WEATHER,), session=None, hints=OTHER)
        assert await chat.client.releases.release_run(RUN) > 0
        assert await chat.client.releases.release_run(RUN) == 0
        mine = await chat.ask(*messages[:-1], tools=(WEATHER,), session=None)
        kept = len(chat.rendered(*HEAD, tools=(WEATHER,), prompt=False))
        assert mine.usage.num_shared <= kept + 4  # the beginning, which the other run went on from
        others = await chat.ask(*other, tools=(WEATHER,), session=None)
        assert others.usage.num_shared >= others.usage.num_prompt - 4

    run(main())


def test_alone_a_run_leaves_nothing():
    async def main() -> None:
        chat = Chat(script(), block_size=4)
        messages = await three_turns(chat)
        await chat.client.releases.release_run(RUN)
        again = await chat.ask(*messages[:-1], tools=(WEATHER,), session=None)
        assert again.usage.num_shared == 0

    run(main())


def test_of_another_tenant_or_salt_nothing_is_known():
    async def main() -> None:
        chat = Chat(script(), block_size=4)
        await three_turns(chat)
        for hints in (RunHints(run=RUN.run, tenant="t"), RunHints(run=RUN.run, salt="盐"), RunHints(), OTHER):
            assert await chat.client.releases.release_run(hints) == 0

    run(main())


def test_a_cancelled_turn_is_part_of_the_run():
    async def main() -> None:
        chat = Chat([said("一二三四五六七八九十" * 4)], block_size=4)
        stream = chat.client.stream(request(*HEAD))
        await anext(stream)
        await stream.aclose()
        num_prompt = len(chat.rendered(*HEAD))
        assert await chat.client.releases.release_run(RUN) >= num_prompt // 4

    run(main())


def test_what_is_no_conversation_is_refused_and_changes_nothing():
    async def main() -> None:
        chat = Chat([said("好"), said("好")], block_size=4)
        await chat.ask(*HEAD, session=None, hints=RUN)
        for messages in ((), (*HEAD, result("c9", "晴")), (*HEAD, assistant("", call("c1", city="上海")))):
            with pytest.raises(InvalidRequest):
                await chat.client.releases.release_conversation(request(*messages), KeptPart(num_messages=1))
        assert chat.engine.num_calls["release"] == 0
        again = await chat.ask(*HEAD, session=None)
        assert again.usage.num_shared >= again.usage.num_prompt - 4

    run(main())


def ids(*numbers: int) -> list[TokenId]:
    return [TokenId(number) for number in numbers]


def ways(runs: ComputedRuns, hints: RunHints) -> list[list[int]]:
    return [way.tolist() for way in runs.of(hints)]


class TestComputedRuns:
    def test_a_longer_way_takes_the_place_of_its_beginning(self):
        runs = ComputedRuns()
        runs.add(RUN, ids(1, 2), 0.0)
        runs.add(RUN, ids(1, 2, 3), 1.0)
        runs.add(RUN, ids(1, 2), 2.0)
        runs.add(RUN, ids(1, 9), 3.0)
        assert ways(runs, RUN) == [[1, 9], [1, 2, 3]]

    def test_without_a_run_nothing_is_kept(self):
        runs = ComputedRuns()
        runs.add(RunHints(tenant="t"), ids(1), 0.0)
        runs.add(RUN, [], 0.0)
        runs.drop(RunHints())
        assert len(runs) == 0 and runs.of(RunHints()) == ()

    def test_bounds(self):
        runs = ComputedRuns(RunLimits(max_ways=2, max_tokens=5, ttl_s=10))
        for number in range(3):
            runs.add(RUN, ids(number, 0), 0.0)
        assert ways(runs, RUN) == [[2, 0], [1, 0]]
        runs.add(OTHER, ids(7), 1.0)
        assert len(runs) == 2
        runs.add(OTHER, ids(8), 2.0)  # a token too many: the longest idle goes
        assert ways(runs, RUN) == [] and ways(runs, OTHER) == [[8], [7]]
        runs.add(RUN, ids(1), 12.5)
        assert ways(runs, OTHER) == [] and ways(runs, RUN) == [[1]]
        runs.add(RUN, ids(*range(9)), 13.0)
        assert len(runs) == 0
