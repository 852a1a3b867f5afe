"""Reasoning: apart from the answer, kept with its ids, rendered as the template wants it, before any grammar."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chat_harness import END, SESSION, WEATHER, Chat, assistant, call_text, result, run, user
from embedded_tokenizer import embedded_tokenizer, thinking_tokenizer
from tenuto.errors import InvalidRequest
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.chat import (
    ChatRequest,
    ModelEvent,
    NamedTool,
    ReasoningDelta,
    ReplyFinished,
    TextDelta,
    TokensScored,
    ToolCallStarted,
)
from tenuto.protocol.grammar import GrammarSpec, ReasoningFrame
from tenuto.protocol.hints import RunHints
from tenuto.protocol.messages import Message
from tenuto.text.tokenizer import Tokenizer
from thinking_templates import APPENDS, DROPS_EARLIER, OPENS

SPECIAL, SPELLED = thinking_tokenizer(), embedded_tokenizer()
ASK = user("北京天气？")
MENTION = f"some models write {call_text(city='上海')}"
SCHEMA = GrammarSpec(kind="json_schema", source='{"type": "object"}')
KINDS = pytest.mark.parametrize("tokenizer", [SPECIAL, SPELLED], ids=["special", "spelled"])


def said(text: str, tokenizer: Tokenizer = SPECIAL, end: TokenId | None = END) -> list[TokenId]:
    return tokenizer.encode_with_control(text) + ([] if end is None else [end])


def thinking(*replies: str, source: str = APPENDS, tokenizer: Tokenizer = SPECIAL, **chat: object) -> Chat:
    return Chat([said(reply, tokenizer) for reply in replies], source=source, tokenizer=tokenizer, **chat)


def parts(events: Sequence[ModelEvent]) -> tuple[str, str]:
    thoughts = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    return thoughts, "".join(event.text for event in events if isinstance(event, TextDelta))


@KINDS
@pytest.mark.parametrize("ids_per_delta", [1, 4])
@pytest.mark.parametrize(
    ("source", "reply", "expected"),
    [
        (APPENDS, f"<think>\n{MENTION}，想 ☀️\n</think>\n\n晴", (f"{MENTION}，想 ☀️", "晴")),
        (OPENS, f"{MENTION}\n</think>\n\n晴", (MENTION, "晴")),
        (OPENS, f"{MENTION} 没完", (f"{MENTION} 没完", "")),
        (APPENDS, f"<think>{MENTION}", (MENTION, "")),
        (APPENDS, "晴 <think>不是", ("", "晴 <think>不是")),
    ],
)
def test_reasoning_is_told_apart(
    tokenizer: Tokenizer, ids_per_delta: int, source: str, reply: str, expected: tuple[str, str]
) -> None:
    async def main() -> None:
        chat = thinking(reply, source=source, tokenizer=tokenizer, ids_per_delta=ids_per_delta)
        events = await chat.events(ASK, tools=(WEATHER,))
        last = events[-1]
        assert isinstance(last, ReplyFinished) and last.reason == "stop" and not last.message.tool_calls
        assert parts(events) == (last.message.reasoning, last.message.content) == expected
        assert not [event for event in events if isinstance(event, ToolCallStarted)]
        ids = said(reply, tokenizer, None)
        assert list(last.token_ids) == ids
        closes = tokenizer.encode_with_control("</think>")
        places = [n for n in range(len(ids)) if ids[n : n + len(closes)] == closes]
        whole = places[0] + len(closes) if places else len(ids)
        assert last.usage.num_reasoning == (whole if expected[0] else 0)

    run(main())


@KINDS
def test_only_the_call_after_the_reasoning_is_one(tokenizer: Tokenizer) -> None:
    """B05."""

    async def main() -> None:
        chat = thinking(f"<think>{MENTION}</think>\n\n{call_text(city='北京')}", tokenizer=tokenizer)
        last = await chat.ask(ASK, tools=(WEATHER,))
        assert [call.arguments for call in last.message.tool_calls] == [{"city": "北京"}]
        assert (last.message.reasoning, last.message.content, last.reason) == (MENTION, "", "tool_calls")

    run(main())


@KINDS
def test_a_stop_string_counts_only_in_the_answer(tokenizer: Tokenizer) -> None:
    async def main() -> None:
        chat = thinking("<think>停 a</think>\n\n好的停b", tokenizer=tokenizer)
        last = await chat.ask(ASK, stop=("停",))
        assert (last.message.reasoning, last.message.content, last.reason) == ("停 a", "好的", "stop")
        said_and_kept = said("<think>停 a</think>\n\n好的", tokenizer, None)
        assert tokenizer.decode(last.token_ids) == tokenizer.decode(said_and_kept)
        assert chat.tokens()[-len(last.token_ids) :] == last.token_ids

    run(main())


@KINDS
def test_a_stop_string_right_after_the_reasoning_leaves_its_closing_tag(tokenizer: Tokenizer) -> None:
    async def main() -> None:
        chat = thinking("<think>a</think>停", "好", tokenizer=tokenizer)
        last = await chat.ask(ASK, stop=("停",))
        assert (last.message.reasoning, last.message.content) == ("a", "")
        assert tokenizer.decode(last.token_ids) == "<think>a</think>"
        second = await chat.ask(ASK, last.message, user("?"))
        assert second.usage.reuse_break is None

    run(main())


@KINDS
def test_a_reply_cut_anywhere_keeps_what_was_said(tokenizer: Tokenizer) -> None:
    """B33 in reasoning: whole characters only, and the session holds no more."""
    reply = "<think>\n想☀️ </think>\n\n晴☀️"
    ids = said(reply, tokenizer, None)

    async def main() -> None:
        for cut in range(1, len(ids) + 1):
            chat = Chat([ids, said("二", tokenizer)], source=APPENDS, tokenizer=tokenizer)
            events = await chat.events(ASK, session=SESSION, max_tokens=cut)
            last = events[-1]
            assert isinstance(last, ReplyFinished)
            assert parts(events) == (last.message.reasoning, last.message.content)
            if tokenizer is SPECIAL or cut > len(tokenizer.encode("<think>")):
                # Half a closing tag is what it looks like: reasoning.
                assert "想☀️ </think>".startswith(last.message.reasoning) and "晴☀️".startswith(last.message.content)
            assert "\ufffd" not in last.message.reasoning + last.message.content
            assert chat.tokens()[-len(last.token_ids) or len(chat.tokens()) :] == last.token_ids
            assert tokenizer.decode(last.token_ids) == tokenizer.decode(ids[:cut]).rstrip("\ufffd")

    run(main())


@KINDS
@pytest.mark.parametrize("sends_reasoning", [True, False])
def test_with_a_template_that_appends_later_turns_compute_only_what_is_new(
    tokenizer: Tokenizer, sends_reasoning: bool
) -> None:
    async def main() -> None:
        chat = thinking("<think>\n一\n</think>\n\n晴", "<think>\n二\n</think>\n\n雨", tokenizer=tokenizer)
        first = await chat.ask(ASK)
        held = chat.tokens()
        back = first.message if sends_reasoning else assistant(first.message.content)
        second = await chat.ask(ASK, back, user("上海？"))
        assert second.usage.reuse_break is None and chat.tokens()[: len(held)] == held
        assert chat.engine.num_calls["truncate"] == 0
        assert second.usage.num_held >= len(held) - 1

    run(main())


def test_reasoning_that_was_changed_is_not_ours() -> None:
    async def main() -> None:
        chat = thinking("<think>\n一\n</think>\n\n晴", "雨")
        await chat.ask(ASK)
        second = await chat.ask(ASK, Message(role="assistant", content="晴", reasoning="别的"), user("?"))
        assert second.usage.reuse_break == "history differs at message 1"
        assert "<think>\n别的\n</think>" in SPECIAL.decode(chat.tokens())

    run(main())


def test_reasoning_left_in_the_content_is_read() -> None:
    """Clients of servers without a field for it send it back where they found it."""

    async def main() -> None:
        chat = thinking("<think>\n一\n</think>\n\n晴", "雨")
        await chat.ask(ASK)
        second = await chat.ask(ASK, assistant("<think>一</think>晴"), user("?"))
        assert second.usage.reuse_break is None
        assert "<think>\n一\n</think>\n\n晴" in SPECIAL.decode(chat.tokens())

    run(main())


@KINDS
def test_a_template_that_drops_earlier_reasoning_keeps_a_loop_and_says_where_it_rewrites(tokenizer: Tokenizer) -> None:
    async def main() -> None:
        chat = thinking(
            f"<think>\n查\n</think>\n\n{call_text(city='北京')}",
            "<think>\n有了\n</think>\n\n晴",
            "<think>\n再想\n</think>\n\n不客气",
            source=DROPS_EARLIER,
            tokenizer=tokenizer,
        )
        first = await chat.ask(ASK, tools=(WEATHER,))
        history = [ASK, first.message, result(first.message.tool_calls[0].id, "晴")]
        held = chat.tokens()
        second = await chat.ask(*history, tools=(WEATHER,))
        assert second.usage.reuse_break is None and chat.tokens()[: len(held)] == held

        third = await chat.ask(*history, second.message, user("谢谢"), tools=(WEATHER,))
        assert third.usage.reuse_break == "template rewrites history at message 1"
        more = third.usage.num_held - first.usage.num_prompt  # a spelled tag and a call begin alike
        assert 0 <= more <= (tokenizer is SPELLED), "everything up to the first difference is kept"
        assert "查" not in tokenizer.decode(chat.tokens()) and "有了" not in tokenizer.decode(chat.tokens())

    run(main())


def test_thinking_is_turned_off_and_the_grammar_then_begins_at_once() -> None:
    async def main() -> None:
        chat = thinking("晴", "<think>\n想\n</think>\n\n{}", "{}", "{}", source=DROPS_EARLIER)
        last = await chat.ask(ASK, thinking=False, response=SCHEMA)
        assert (last.message.reasoning, last.message.content) == ("", "晴")
        assert "<think>\n\n</think>\n\n晴" in SPECIAL.decode(chat.tokens())
        other = SessionId("b")
        last = await chat.ask(ASK, thinking=True, response=SCHEMA, session=other)
        assert (last.message.reasoning, last.message.content) == ("想", "{}")
        await chat.ask(ASK, tools=(WEATHER,), tool_choice=NamedTool("get_weather"), session=other)
        await chat.ask(ASK, tools=(WEATHER,), tool_choice="required", thinking=False, session=other)
        frames = [params.grammar.reasoning for params in chat.engine.params if params.grammar is not None]
        frame = ReasoningFrame(open="<think>", close="</think>")
        assert frames == [None, frame, frame, None]

    run(main())


@pytest.mark.parametrize(("thinking_on", "is_open"), [(None, True), (True, True), (False, False)])
def test_a_grammar_knows_whether_the_prompt_has_opened_the_thinking(thinking_on: bool | None, is_open: bool) -> None:
    async def main() -> None:
        chat = thinking("{}", source=OPENS)
        await chat.ask(ASK, thinking=thinking_on, response=SCHEMA)
        grammar = chat.engine.params[0].grammar
        assert grammar is not None
        assert grammar.reasoning == (
            ReasoningFrame(open="<think>", close="</think>", is_open=True) if is_open else None
        )

    run(main())


def test_a_switch_that_changes_is_named() -> None:
    async def main() -> None:
        chat = thinking("<think>\n想\n</think>\n\n晴", "雨", source=DROPS_EARLIER)
        first = await chat.ask(ASK)
        second = await chat.ask(ASK, first.message, user("?"), template_options=(("style", "短"),))
        assert second.usage.reuse_break == "template options differ"

    run(main())


@pytest.mark.parametrize(
    "options", [(("messages", "x"),), (("a", 1), ("a", 2)), (("a b", 1),), tuple((f"o{n}", n) for n in range(33))]
)
def test_options_that_are_none_are_refused(options: tuple[tuple[str, int], ...]) -> None:
    with pytest.raises(InvalidRequest, match="template_options"):
        run(thinking("好").ask(ASK, template_options=options))


@KINDS
@pytest.mark.parametrize("ids_per_delta", [1, 5])
def test_scores_say_which_tokens_are_reasoning(tokenizer: Tokenizer, ids_per_delta: int) -> None:
    async def main() -> None:
        reply = "<think>\n想一想\n</think>\n\n晴天"
        events = await thinking(reply, tokenizer=tokenizer, ids_per_delta=ids_per_delta).events(ASK, logprobs=0)
        scores = [score for event in events if isinstance(event, TokensScored) for score in event.tokens]
        last = events[-1]
        assert isinstance(last, ReplyFinished)
        assert tuple(score.token.id for score in scores) == last.token_ids
        assert [score.reasoning for score in scores] == [n < last.usage.num_reasoning for n in range(len(scores))]
        of = {flag: b"".join(s.token.data for s in scores if s.reasoning == flag).decode() for flag in (True, False)}
        assert of == {True: "<think>\n想一想\n</think>", False: "\n\n晴天"}

    run(main())


def test_nobody_is_given_the_reasoning_of_another_tenant() -> None:
    async def main() -> None:
        chat = thinking("<think>\n秘密\n</think>\n\n晴", "一", "二")
        await chat.ask(ASK, session=None, hints=RunHints(tenant="a"))
        await chat.ask(ASK, assistant("晴"), user("?"), session=SessionId("b"), hints=RunHints(tenant="b"))
        assert "秘密" not in SPECIAL.decode(chat.tokens(SessionId("b")))
        await chat.ask(ASK, assistant("晴"), user("?"), session=SessionId("a"), hints=RunHints(tenant="a"))
        assert "秘密" in SPECIAL.decode(chat.tokens(SessionId("a")))

    run(main())


def test_cancelled_while_it_thinks_leaves_the_session_as_it_was() -> None:
    async def main() -> None:
        chat = thinking("<think>想了很久很久</think>晴")
        stream = chat.client.stream(ChatRequest(messages=(ASK,), session=SESSION))
        assert isinstance(await anext(stream), ReasoningDelta)
        await stream.aclose()
        assert "想" not in SPECIAL.decode(chat.tokens())

    run(main())
