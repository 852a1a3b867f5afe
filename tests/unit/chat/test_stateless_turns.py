"""Requests without a session: a session of their own, closed at the end; their replies are recognised all the same."""

from __future__ import annotations

import asyncio

from chat_harness import END, TOKENIZER, WEATHER, Chat, result, run, said, user
from tenuto.chat import ChatLimits
from tenuto.chat.encoder import EncodingLimits
from tenuto.protocol.chat import ChatRequest

ASK = (user("北京今天天气怎么样？"),)
ODD = '<tool_call>{"arguments":  {"city":"北京" } , "name":"get_weather"}</tool_call>'


def odd_ids() -> list[int]:
    """Text whose ids are not those that encoding it gives."""
    ids = [token for char in "good weather" for token in TOKENIZER.encode(char)]
    assert TOKENIZER.encode("good weather") != ids
    return [*ids, END]


def test_the_session_is_closed_and_its_blocks_are_found_again():
    async def main() -> None:
        chat = Chat([odd_ids(), said("二")], block_size=4)
        first = await chat.ask(*ASK, session=None)
        assert chat.engine.sessions == {} and first.usage.num_shared == 0
        second = await chat.ask(*ASK, first.message, user("明天？"), session=None)
        # All that had KV, up to the last whole block: the generated ids among them.
        known = len(chat.rendered(*ASK)) + len(odd_ids()) - 1
        assert second.usage.num_shared == known // 4 * 4
        assert second.usage.num_held == 0 and second.usage.reuse_break is None

    run(main())


def test_calls_are_recognised_by_value_over_many_turns():
    async def main() -> None:
        chat = Chat([said(ODD) for _ in range(4)], block_size=1)
        messages = list(ASK)
        num_known = 0
        for turn in range(4):
            reply = await chat.ask(*messages, tools=(WEATHER,), session=None)
            (made,) = reply.message.tool_calls
            assert reply.usage.num_shared == num_known, turn
            num_known = reply.usage.num_prompt + reply.usage.num_generated - 1
            messages += [reply.message, result(made.id, f"第{turn}天，晴")]

    run(main())


def test_an_equal_message_in_another_conversation_is_encoded():
    async def main() -> None:
        chat = Chat([odd_ids(), said("二")], block_size=1)
        first = await chat.ask(*ASK, session=None)
        other = (user("另一个问题"), first.message, user("?"))
        await chat.ask(*other)
        assert chat.tokens() == (*chat.rendered(*other), *said("二"))

    run(main())


def test_a_history_can_be_forked_from_a_held_session():
    async def main() -> None:
        chat = Chat([odd_ids(), said("二"), said("三")], block_size=1)
        first = await chat.ask(*ASK)
        held = chat.tokens()
        fork = await chat.ask(*ASK, first.message, user("甲"), session="fork")
        assert chat.tokens("fork")[: len(held)] == held and fork.usage.num_shared == len(held) - 1
        await chat.ask(*ASK, first.message, user("乙"))
        assert chat.tokens()[: len(held)] == held

    run(main())


def test_a_held_session_keeps_its_own_ids_when_another_said_the_same():
    """Two sessions sample the same words in other ids after the same question."""

    async def main() -> None:
        chat = Chat([odd_ids(), said("good weather"), said("一"), said("二")])
        first = await chat.ask(*ASK, session="a")
        await chat.ask(*ASK, session="b")
        for session in ("a", "b"):
            held = chat.tokens(session)
            reply = await chat.ask(*ASK, first.message, user("?"), session=session)
            assert chat.tokens(session)[: len(held)] == held and reply.usage.reuse_break is None

    run(main())


def test_what_is_remembered_is_bounded_but_never_costs_a_held_session_its_ids():
    async def main() -> None:
        limits = ChatLimits(encoding=EncodingLimits(max_reply_tokens=100, max_piece_chars=10))
        chat = Chat([odd_ids(), said("x"), said("y"), said("z"), said("二"), said("三")], limits=limits, block_size=1)
        first = await chat.ask(*ASK)
        held = chat.tokens()
        for n in range(3):
            await chat.ask(user(f"q{n}"), session=None)
        more = (*ASK, first.message, user("?"))
        assert (await chat.ask(*more)).usage.reuse_break is None
        assert chat.tokens()[: len(held)] == held
        chat.engine.lose_prefixes()
        await chat.ask(user("q"), session=None, max_tokens=5)

    run(main())


def test_cancelling_a_stateless_stream_leaves_nothing():
    async def main() -> None:
        chat = Chat([said("一二三四")])
        stream = chat.client.stream(ChatRequest(messages=ASK))
        await anext(stream)
        assert len(chat.engine.sessions) == 1
        await stream.aclose()
        assert chat.engine.sessions == {}

    run(main())


def test_stateless_requests_run_beside_each_other():
    async def main() -> None:
        chat = Chat(lambda tokens: said("好的。")[(len(tokens) - 1) % 3] if len(tokens) < 60 else END)
        replies = await asyncio.gather(*(chat.ask(user(f"问题{n}"), session=None, max_tokens=9) for n in range(8)))
        assert len(replies) == 8 and chat.engine.sessions == {}

    run(main())


def test_info_is_the_engines():
    async def main() -> None:
        chat = Chat(max_model_tokens=77)
        info = await chat.client.info()
        assert (info.name, info.max_model_tokens) == ("scripted", 77)

    run(main())
