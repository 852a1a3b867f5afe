"""Tools: what the model is told of, what it may call, and what comes back."""

from __future__ import annotations

import json

import pytest

from chat_harness import (
    CLOCK,
    SESSION,
    TOKENIZER,
    WEATHER,
    Chat,
    assistant,
    call,
    call_text,
    result,
    run,
    said,
    system,
    user,
)
from tenuto.errors import InvalidRequest
from tenuto.protocol.chat import AllowedTools, NamedTool, TextDelta, ToolCallDelta, ToolCallFinished, ToolCallStarted
from tenuto.protocol.grammar import GrammarSpec
from tenuto.protocol.messages import COPIED, Message, ToolSpec

ASK = (user("北京和上海的天气？"),)
TWO = call_text(city="北京") + "\n" + call_text(city="上海")


def test_parallel_calls_have_places_and_ids_of_their_own():
    """B12: three calls to one tool."""

    async def main() -> None:
        chat = Chat([said(TWO + "\n" + call_text(city="广州"))])
        events = await chat.events(*ASK, session=SESSION, tools=(WEATHER,))
        started = [event for event in events if isinstance(event, ToolCallStarted)]
        finished = [event for event in events if isinstance(event, ToolCallFinished)]
        assert [event.index for event in started] == [event.index for event in finished] == [0, 1, 2]
        assert len({event.id for event in started}) == 3
        assert [event.call.id for event in finished] == [event.id for event in started]
        assert [event.call.arguments["city"] for event in finished] == ["北京", "上海", "广州"]
        for event in finished:
            pieces = [d.arguments for d in events if isinstance(d, ToolCallDelta) and d.index == event.index]
            assert json.loads("".join(pieces)) == event.call.arguments
        assert events[-1].message.tool_calls == tuple(event.call for event in finished)
        assert events[-1].reason == "tool_calls"

    run(main())


def test_without_parallel_calls_at_most_one_is_made():
    """B13. The session keeps only what was said: the first call."""

    async def main() -> None:
        chat = Chat([said(TWO), said("晴")])
        first = await chat.ask(*ASK, tools=(WEATHER,), parallel_tool_calls=False)
        (made,) = first.message.tool_calls
        assert made.arguments == {"city": "北京"} and first.reason == "tool_calls"
        held = chat.tokens()
        second = await chat.ask(*ASK, first.message, result(made.id, "晴"), tools=(WEATHER,), parallel_tool_calls=False)
        assert second.usage.reuse_break is None and chat.tokens()[: len(held)] == held

    run(main())


def test_choice_none_means_no_tools_no_grammar_and_no_calls():
    async def main() -> None:
        chat = Chat([said(call_text(city="北京"))])
        reply = await chat.ask(*ASK, tools=(WEATHER,), tool_choice="none")
        assert reply.message == assistant(call_text(city="北京")) and reply.reason == "stop"
        assert chat.engine.params[0].grammar is None
        assert chat.tokens()[: reply.usage.num_prompt] == tuple(chat.rendered(*ASK))

    run(main())


def test_allowed_tools_bound_the_calls_and_leave_the_prompt_alone():
    async def main() -> None:
        chat = Chat([said("好")] * 6)
        tools = (WEATHER, CLOCK)
        all_of_them = await chat.ask(*ASK, tools=tools, session=None)
        for mode in ("auto", "required"):
            await chat.ask(*ASK, tools=tools, tool_choice=AllowedTools(("clock",), mode), session=None)
            some = chat.engine.params[-1].grammar
            await chat.ask(*ASK, tools=(CLOCK,), tool_choice=mode, session=None)
            assert some is not None and some == chat.engine.params[-1].grammar
        again = await chat.ask(*ASK, tools=tools, tool_choice=AllowedTools(("clock",)), session=None)
        assert again.usage.num_prompt == all_of_them.usage.num_prompt
        assert again.usage.num_shared > 0
        for choice in (AllowedTools(("nobody",)), AllowedTools(())):
            with pytest.raises(InvalidRequest, match="tool_choice") as caught:
                await chat.ask(*ASK, tools=tools, tool_choice=choice, session=None)
            assert caught.value.param == "tool_choice"

    run(main())


def test_without_tools_there_is_no_grammar():
    async def main() -> None:
        chat = Chat([said("{好}"), said("x")])
        await chat.ask(*ASK)
        await chat.ask(*ASK, tool_choice="none")
        assert [params.grammar for params in chat.engine.params] == [None, None]

    run(main())


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": (WEATHER,), "tool_choice": NamedTool("weather")}, "tool_choice"),
        ({"tool_choice": NamedTool("get_weather")}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": (WEATHER, WEATHER)}, "tools"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"examples": (result("c", "x"),)}, "examples[0]"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_happens(fields, param):
    async def main() -> None:
        chat = Chat()
        with pytest.raises(InvalidRequest) as caught:
            await chat.ask(*ASK, **fields)
        assert caught.value.param == param
        assert chat.engine.sessions == {}

    run(main())


def test_messages_must_not_be_empty():
    async def main() -> None:
        with pytest.raises(InvalidRequest, match="messages is empty"):
            await Chat().ask()

    run(main())


def test_the_grammar_is_that_of_the_tools_and_choice():
    async def main() -> None:
        chat = Chat([said("x"), said("x"), said("x")])
        for choice in ("auto", "required", NamedTool("clock")):
            await chat.ask(*ASK, tools=(WEATHER, CLOCK), tool_choice=choice)
            expected = chat.tool_format.grammar((WEATHER, CLOCK), choice, True, [ASK[0].content])
            assert chat.engine.params[-1].grammar == expected

    run(main())


def test_a_turn_that_must_call_a_tool_has_no_text_that_a_response_could_bind():
    async def main() -> None:
        chat = Chat([said("x"), said("x")])
        schema = GrammarSpec(kind="json_schema", source="{}")
        for choice in ("required", NamedTool("clock")):
            await chat.ask(*ASK, tools=(WEATHER, CLOCK), tool_choice=choice, response=schema)
            expected = chat.tool_format.grammar((WEATHER, CLOCK), choice, True, [ASK[0].content])
            assert chat.engine.params[-1].grammar == expected

    run(main())


def test_copied_arguments_come_from_users_and_tools_alone():
    """Not from the system, not from worked examples."""
    copied = {"type": "object", "properties": {"city": {"type": "string", COPIED: True}}, "required": ["city"]}
    tool = ToolSpec(name="get_weather", description="", parameters=copied)
    examples = (user("Paris?"), assistant("", call("e", city="Paris")), result("e", "Paris"), assistant("Paris"))

    async def main() -> None:
        chat = Chat([said("x")])
        messages = (
            system("Rome"),
            user("北京"),
            assistant("Bonn", call("c", city="北京")),
            result("c", "热"),
            user("Oslo"),
        )
        await chat.ask(*messages, examples=examples, tools=(tool,))
        expected = chat.tool_format.grammar((tool,), "auto", True, ["北京", "热", "Oslo"])
        assert chat.engine.params[-1].grammar == expected

    run(main())


def test_text_around_calls_is_kept_in_order():
    """B06: before, between and after."""

    async def main() -> None:
        text = "before " + call_text(city="A") + " mid " + call_text("clock") + " after"
        chat = Chat([said(text)])
        events = await chat.events(*ASK, session=SESSION, tools=(WEATHER, CLOCK))
        content = events[-1].message.content
        assert content.split() == ["before", "mid", "after"]
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == content
        assert [c.name for c in events[-1].message.tool_calls] == ["get_weather", "clock"]

    run(main())


def test_a_call_that_breaks_off_is_text_and_shares_no_index():
    async def main() -> None:
        broken = '<tool_call>{"name": "get_weather", "arguments": {"city": "北京"]}</tool_call>'
        chat = Chat([said(broken + call_text(city="上海"))])
        events = await chat.events(*ASK, session=SESSION, tools=(WEATHER,))
        assert [event.index for event in events if isinstance(event, ToolCallStarted)] == [0, 1]
        (finished,) = [event for event in events if isinstance(event, ToolCallFinished)]
        assert finished.index == 1 and events[-1].message.tool_calls == (finished.call,)
        assert events[-1].message.content.startswith('<tool_call>{"name": "get_weather"')

    run(main())


def test_arguments_are_rendered_as_an_object_and_absent_content_as_nothing():
    """B14, B15."""

    async def main() -> None:
        chat = Chat([said("x")])
        history = (*ASK, Message(role="assistant", tool_calls=(call("c1", city="Oslo"),)), result("c1", "雪"))
        reply = await chat.ask(*history, tools=(WEATHER,))
        text = TOKENIZER.decode(chat.tokens()[: reply.usage.num_prompt])
        assert '"arguments": {"city": "Oslo"}' in text and "None" not in text and "null" not in text

    run(main())


def test_results_in_any_order_render_the_same():
    async def main() -> None:
        two = assistant("", call("c1", city="北京"), call("c2", city="上海"))
        chat = Chat([said("x"), said("x")])
        one = await chat.ask(*ASK, two, result("c1", "晴"), result("c2", "雨"), user("note"), tools=(WEATHER,))
        held = chat.tokens()
        mixed = (*ASK, two, result("c2", "雨"), user("note"), result("c1", "晴"))
        other = await chat.ask(*mixed, tools=(WEATHER,), session="other")
        assert chat.tokens("other") == held and one.message == other.message

    run(main())
