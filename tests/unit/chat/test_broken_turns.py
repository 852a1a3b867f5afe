"""Turns that are cancelled or fail, sessions that get lost: the next request goes on from a sound state."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from chat_harness import SESSION, Chat, assistant, result, run, said, user
from tenuto.chat import ChatLimits
from tenuto.errors import Cancelled, EngineClosed, QueueFull, SessionBusy, TenutoError
from tenuto.protocol.chat import ChatRequest, ReplyFinished, TextDelta
from tenuto.protocol.hints import ExpectedWait

ASK = (user("北京今天天气怎么样？"),)


async def two_turns(chat: Chat) -> tuple:
    first = await chat.ask(*ASK)
    return (*ASK, first.message, user("明天呢？"))


def test_closing_the_stream_takes_the_turn_back():
    async def main() -> None:
        chat = Chat([said("晴。"), said("很长的一段话，谁也不想听。"), said("雨。")])
        more = await two_turns(chat)
        held = chat.tokens()
        stream = chat.client.stream(ChatRequest(messages=more, session=SESSION))
        assert isinstance(await anext(stream), TextDelta)
        await stream.aclose()
        assert chat.tokens() == held
        again = await chat.ask(*more)
        assert again.message == assistant("雨。")
        assert again.usage.reuse_break is None
        assert chat.tokens() == (*chat.rendered(*more), *said("雨。"))

    run(main())


@pytest.mark.parametrize("how", ["task", "scope"])
def test_a_cancelled_task_takes_the_turn_back(how):
    """Also under a cancelled scope, where every further await is cancelled too."""

    async def main() -> None:
        chat = Chat([said("晴。"), said("一二三四五"), said("雨。")])
        more = await two_turns(chat)
        held = chat.tokens()
        started = asyncio.Event()

        async def listen() -> None:
            async for _ in chat.client.stream(ChatRequest(messages=more, session=SESSION)):
                started.set()
                await asyncio.sleep(3600)

        if how == "task":
            task = asyncio.create_task(listen())
            await started.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        else:
            async with anyio.create_task_group() as group:
                group.start_soon(listen)
                await started.wait()
                group.cancel_scope.cancel()
        for _ in range(20):  # the generator left behind is closed by the loop
            await asyncio.sleep(0)
        assert chat.tokens() == held
        assert (await chat.ask(*more)).message == assistant("雨。")

    run(main())


def test_whoever_stops_listening_after_the_last_event_keeps_the_turn():
    async def main() -> None:
        chat = Chat([said("晴。"), said("雨。")])
        async for event in chat.client.stream(ChatRequest(messages=ASK, session=SESSION)):
            last = event
        stream = chat.client.stream(ChatRequest(messages=(*ASK, last.message, user("?")), session=SESSION))
        while not isinstance(await anext(stream), ReplyFinished):
            pass
        await chat.client.suspend(SESSION, ExpectedWait(seconds=1.0, reason="weather"))
        assert chat.tokens()[-2:] == tuple(said("雨。")[-2:])
        await stream.aclose()
        assert chat.tokens()[-2:] == tuple(said("雨。")[-2:])

    run(main())


def test_two_streams_on_one_session_are_refused_and_the_first_goes_on():
    async def main() -> None:
        chat = Chat([said("一二三")])
        stream = chat.client.stream(ChatRequest(messages=ASK, session=SESSION))
        events = [await anext(stream)]
        with pytest.raises(SessionBusy):
            await chat.ask(user("别的"))
        events += [event async for event in stream]
        assert events[-1].message == assistant("一二三")
        assert chat.tokens() == (*chat.rendered(*ASK), *said("一二三"))

    run(main())


async def whole_conversation(chat: Chat, stop: tuple[str, ...]) -> int:
    """Three turns, with history edited before the last; each is asked again until it succeeds. How many failed."""
    messages, num_failed = list(ASK), 0
    for turn in range(3):
        if turn == 2:
            messages[1] = assistant("edited")  # so that a truncate is among the calls
        reply = None
        while reply is None:
            try:
                reply = await chat.ask(*messages, stop=stop)
            except QueueFull:
                num_failed += 1
        messages += [reply.message, user(f"第{turn}问")]
    return num_failed


@pytest.mark.parametrize("stop", [(), ("STOP",)])
def test_an_error_at_any_call_leaves_session_and_record_consistent(stop):
    """The engine raises at its n-th question, for every n until a whole conversation has none left to raise at."""

    async def main() -> None:
        replies = [said("好的，一会儿 STOP 就来")] * 4
        sound = Chat(replies)
        assert await whole_conversation(sound, stop) == 0
        number, num_failed = 0, 1
        while num_failed:
            number += 1
            chat = Chat(replies)
            chat.engine.fault = lambda _, asked, n=number: QueueFull("full") if asked == n else None
            num_failed = await whole_conversation(chat, stop)
            assert num_failed <= 1
            assert chat.engine.sessions == sound.engine.sessions, number
        assert number > 30

    run(main())


def test_a_stateless_request_that_fails_leaves_no_session():
    async def main() -> None:
        closed = False
        for number in range(1, 40):
            chat = Chat([said("一二三四")])
            failing: list[str] = []

            def fault(name: str, asked: int, n: int = number, failing: list[str] = failing) -> Exception | None:
                if asked != n:
                    return None
                failing.append(name)
                return QueueFull("full")

            chat.engine.fault = fault
            try:
                await chat.ask(*ASK, session=None)
            except QueueFull:
                assert bool(chat.engine.sessions) == (failing == ["close"])
                closed = closed or failing == ["close"]
            else:
                break
        assert closed and number > 5

    run(main())


def test_when_even_taking_back_fails_the_session_is_opened_anew():
    async def main() -> None:
        chat = Chat([said("晴。"), said("一二三"), said("雨。")])
        more = await two_turns(chat)
        chat.engine.fault = lambda name, _: EngineClosed("gone") if name == "truncate" else None
        stream = chat.client.stream(ChatRequest(messages=more, session=SESSION))
        await anext(stream)
        await stream.aclose()
        chat.engine.fault = None
        reply = await chat.ask(*more)
        assert reply.usage.reuse_break == "session could not be restored after an interrupted turn"
        assert chat.tokens() == (*chat.rendered(*more), *said("雨。"))

    run(main())


def test_a_session_the_engine_lost_is_computed_again_and_that_is_said():
    async def main() -> None:
        chat = Chat([said("晴。"), said("雨。"), said("雪。")])
        more = await two_turns(chat)
        chat.engine.lose(SESSION)
        chat.engine.lose_prefixes()
        reply = await chat.ask(*more)
        assert reply.usage.reuse_break == "session was gone"
        assert reply.usage.num_computed == reply.usage.num_prompt
        assert chat.tokens() == (*chat.rendered(*more), *said("雨。"))
        after = await chat.ask(*more, reply.message, user("?"))
        assert after.usage.reuse_break is None

    run(main())


def test_a_session_lost_while_suspended():
    async def main() -> None:
        chat = Chat([said("晴。"), said("雨。")])
        more = await two_turns(chat)
        chat.engine.lose(SESSION)
        await chat.client.suspend(SESSION, ExpectedWait())
        assert (await chat.ask(*more)).usage.reuse_break == "session was gone"

    run(main())


def test_close_frees_the_session_and_forgets_the_conversation():
    async def main() -> None:
        chat = Chat([said("晴。"), said("雨。")])
        more = await two_turns(chat)
        await chat.client.close(SESSION)
        await chat.client.close(SESSION)
        await chat.client.suspend(SESSION, ExpectedWait())
        assert chat.engine.sessions == {} and chat.engine.suspends == []
        reply = await chat.ask(*more)
        assert reply.usage.num_held == 0 and reply.usage.reuse_break is None

    run(main())


def test_closing_a_conversation_ends_its_stream():
    async def main() -> None:
        chat = Chat([said("一二三"), said("雨。")])
        stream = chat.client.stream(ChatRequest(messages=ASK, session=SESSION))
        await anext(stream)
        await chat.client.close(SESSION)
        reply = await chat.ask(*ASK)
        with pytest.raises(Cancelled):
            await anext(stream)
        assert chat.tokens() == (*chat.rendered(*ASK), *said("雨。")) and reply.message == assistant("雨。")

    run(main())


def test_aclose_closes_every_conversation():
    async def main() -> None:
        chat = Chat([said("一"), said("二")])
        await chat.ask(*ASK)
        await chat.ask(*ASK, session="other")
        assert len(chat.engine.sessions) == 2
        await chat.client.aclose()
        assert chat.engine.sessions == {}

    run(main())


def test_the_longest_idle_conversation_makes_room_and_that_is_said_when_it_returns():
    async def main() -> None:
        chat = Chat([said(text) for text in "一二三四五"], limits=ChatLimits(max_sessions=2))
        first = await chat.ask(*ASK, session="a")
        await chat.ask(*ASK, session="b")
        await chat.ask(*ASK, first.message, user("?"), session="a")
        await chat.ask(*ASK, session="c")
        assert set(chat.engine.sessions) == {"a", "c"}
        assert (await chat.ask(*ASK, session="b")).usage.reuse_break == "session was closed to make room for others"
        assert set(chat.engine.sessions) == {"b", "c"}

    run(main())


def test_no_room_among_busy_conversations():
    async def main() -> None:
        chat = Chat([said("一二三"), said("四")], limits=ChatLimits(max_sessions=1))
        stream = chat.client.stream(ChatRequest(messages=ASK, session=SESSION))
        await anext(stream)
        with pytest.raises(QueueFull, match="try again later"):
            await chat.ask(*ASK, session="other")
        await stream.aclose()
        assert (await chat.ask(*ASK, session="other")).message == assistant("四")

    run(main())


def test_a_session_of_that_name_that_somebody_else_opened_is_taken_over():
    async def main() -> None:
        chat = Chat([said("一")])
        await chat.engine.open(SESSION)
        await chat.engine.append(SESSION, [1, 2, 3])
        reply = await chat.ask(*ASK)
        assert reply.usage.reuse_break == "session holds other tokens than the conversation"
        assert chat.tokens()[:3] != (1, 2, 3)
        await chat.client.close(SESSION)
        assert not chat.engine.sessions

    run(main())


def test_a_refused_turn_changes_nothing():
    async def main() -> None:
        chat = Chat([said("晴。"), said("雨。")])
        more = await two_turns(chat)
        held = chat.tokens()
        for bad in ((), (*more, result("c1", "no such call")), (user("\ud83d"),)):
            with pytest.raises(TenutoError):
                await chat.ask(*bad)
        assert chat.tokens() == held
        assert (await chat.ask(*more)).usage.reuse_break is None

    run(main())


def test_a_turn_cancelled_while_its_session_opens_leaves_a_name_that_can_be_opened():
    async def main() -> None:
        chat = Chat([said("雨。")])
        quick = chat.engine.open

        opened = asyncio.Event()

        async def slow(*args: object, **options: object) -> None:
            await quick(*args, **options)
            opened.set()
            await asyncio.sleep(3600)

        chat.engine.open = slow
        task = asyncio.create_task(chat.ask(*ASK))
        await opened.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        chat.engine.open = quick
        assert (await chat.ask(*ASK)).message == assistant("雨。")

    run(main())
