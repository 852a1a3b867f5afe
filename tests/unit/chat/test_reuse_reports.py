"""Requests without a session: what of an earlier turn was not reused is said, and why."""

from __future__ import annotations

import pytest

from chat_harness import CLOCK, WEATHER, Chat, assistant, call_text, result, run, said, system, user
from tenuto.chat.conversation import Conversation
from tenuto.chat.seen import EVICTED, Expectation, SeenConversations
from tenuto.protocol.chat import ReplyFinished
from tenuto.protocol.hints import RunHints
from tenuto.protocol.messages import Message
from tenuto.text.template import TemplateSettings
from thinking_templates import DROPS_EARLIER

SYSTEM = system("你是一个助手，回答要简短。")
ASK = user("北京今天天气怎么样？请详细说明。")
LONG = "北京今天晴，二十度，微风，适合出门走走。"


async def alone(chat: Chat, *messages: Message, **request: object) -> ReplyFinished:
    return await chat.ask(*messages, session=None, **request)


def conversation(*messages: Message, tenant: str = "", **settings: object) -> Conversation:
    made = TemplateSettings(**settings)  # type: ignore[arg-type]
    return Conversation(messages, tuple(range(len(messages))), (), made, tenant)


def test_a_conversation_that_goes_on_needs_no_word() -> None:
    async def main() -> None:
        chat = Chat([said(LONG), said("二"), said("三")], block_size=4)
        messages = [SYSTEM, ASK]
        new = 0
        for number in range(3):
            reply = await alone(chat, *messages)
            assert reply.usage.reuse_break is None, number
            assert number == 0 or reply.usage.num_computed <= new + 4 + 1
            messages += [reply.message, user("然后呢？")]
            new = len(chat.rendered(*messages)) - reply.usage.num_prompt - len(reply.token_ids)

    run(main())


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ((system("今天是星期二。"), ASK, assistant(LONG), user("?")), "history differs at message 0"),
        ((SYSTEM, user("别的"), assistant(LONG), user("?")), "history differs at message 1"),
        ((SYSTEM, ASK, assistant("改过的"), user("?")), "history differs at message 2"),
        ((SYSTEM, ASK, assistant(LONG), user("?")), None),
        ((SYSTEM, user("新的问题")), None),  # a new conversation, with the same system message
        ((SYSTEM, ASK), None),  # asked again
        ((system("x"), user("y"), assistant("z"), user("?")), None),  # never seen
    ],
)
def test_what_was_changed_is_named_by_its_message(changed: tuple[Message, ...], why: str | None) -> None:
    async def main() -> None:
        chat = Chat([said(LONG), said("二")], block_size=4)
        await alone(chat, SYSTEM, ASK)
        assert (await alone(chat, *changed)).usage.reuse_break == why

    run(main())


def test_calls_are_known_by_their_ids_wherever_they_stand() -> None:
    async def main() -> None:
        chat = Chat([said(call_text(city="北京")), said("二")], block_size=4)
        first = await alone(chat, SYSTEM, ASK, tools=(WEATHER,))
        made = first.message.tool_calls[0].id
        other = await alone(chat, system("变了"), ASK, first.message, result(made, "晴"), tools=(WEATHER,))
        assert other.usage.reuse_break == "history differs at message 0"

    run(main())


def test_other_tools_are_named() -> None:
    async def main() -> None:
        chat = Chat([said(LONG), said("二")], block_size=4)
        first = await alone(chat, SYSTEM, ASK, tools=(WEATHER,))
        second = await alone(chat, SYSTEM, ASK, first.message, user("?"), tools=(WEATHER, CLOCK))
        assert second.usage.reuse_break == "tools or template options differ"

    run(main())


def test_what_was_evicted_is_named() -> None:
    async def main() -> None:
        chat = Chat([said(LONG), said("二"), said("三")], block_size=4)
        first = await alone(chat, SYSTEM, ASK)
        chat.engine.lose_prefixes()
        second = await alone(chat, SYSTEM, ASK, first.message, user("?"))
        assert second.usage.reuse_break == EVICTED and second.usage.num_shared == 0
        third = await alone(chat, SYSTEM, ASK, first.message, user("?"), second.message, user("!"))
        assert third.usage.reuse_break is None

    run(main())


def test_a_template_that_rewrites_is_named_once() -> None:
    async def main() -> None:
        replies = [said(f"<think>\n想{n}\n</think>\n\n{LONG}{n}") for n in range(4)]
        chat = Chat(replies, source=DROPS_EARLIER, block_size=4)
        messages = [SYSTEM, ASK]
        found = []
        for _ in range(4):
            reply = await alone(chat, *messages)
            found.append(reply.usage.reuse_break)
            messages += [reply.message, user("然后呢？")]
        # Of each turn's reasoning, when the next question makes it an earlier one.
        assert found == [None, *(f"template rewrites history at message {n}" for n in (2, 4, 6))]

    run(main())


def test_a_new_session_is_told_too() -> None:
    async def main() -> None:
        chat = Chat([said(LONG), said("二")], block_size=4)
        first = await alone(chat, SYSTEM, ASK)
        second = await chat.ask(SYSTEM, user("别的"), first.message, user("?"))
        assert second.usage.reuse_break == "history differs at message 1"

    run(main())


def test_nothing_is_said_of_another_tenant() -> None:
    async def main() -> None:
        chat = Chat([said(LONG), said("二")], block_size=4)
        first = await alone(chat, SYSTEM, ASK, hints=RunHints(tenant="a"))
        changed = (SYSTEM, user("别的"), first.message, user("?"))
        assert (await alone(chat, *changed, hints=RunHints(tenant="b"))).usage.reuse_break is None

    run(main())


def test_worked_examples_are_no_history() -> None:
    async def main() -> None:
        chat = Chat([said(LONG), said("二")], block_size=4)
        examples = (user("例"), assistant("一个足够长的例子，和我们说过的话一样长。"))
        await alone(chat, SYSTEM, ASK, examples=examples)
        assert (await alone(chat, SYSTEM, user("新的问题"), examples=examples)).usage.reuse_break is None

    run(main())


def test_no_more_is_remembered_than_there_is_room_for() -> None:
    seen = SeenConversations(4)
    for number in range(50):
        seen.remember(conversation(user(f"{number}"), assistant(LONG + str(number))))
    assert seen.explain(conversation(user("0"), assistant("changed"), user("?")), None) is None
    assert (
        seen.explain(conversation(user("49"), assistant("changed"), user("?")), None) == "history differs at message 1"
    )
    assert len(seen._places) <= 4 and len(seen._replies) <= 4


@pytest.mark.parametrize(("num_reused", "why"), [(32, None), (31, EVICTED), (48, None), (0, EVICTED)])
def test_up_to_a_block_may_be_computed_again(num_reused: int, why: str | None) -> None:
    assert Expectation(num_known=47, block_size=16).explain(num_reused) == why
    assert Expectation(block_size=16).explain(num_reused) is None
    assert Expectation(47, "history differs at message 1", 16).explain(num_reused) == "history differs at message 1"
