from __future__ import annotations

from tenuto.agents.examples import example_messages
from tenuto.tools import Example, tool


def examples_of(name: str, count: int) -> list[Example]:
    return [Example(f"{name}{index}", {}, "好") for index in range(count)]


def order(*counts: int) -> list[str]:
    tools = []
    for name, count in zip("abc", counts, strict=False):

        @tool(name=name, examples=examples_of(name, count))
        def act() -> str:
            return "好"

        tools.append(act)
    return [message.content for message in example_messages(tools) if message.role == "user"]


def test_one_tools_examples_keep_their_order():
    assert order(3) == ["a0", "a1", "a2"]


def test_several_tools_examples_are_spread_among_each_other():
    assert order(2, 6) == ["b0", "a0", "b1", "b2", "b3", "a1", "b4", "b5"]
    assert order(2, 2) == ["a0", "b0", "a1", "b1"]
    assert order(0, 1) == ["b0"]


def test_examples_of_talk_come_in_the_first_two_thirds():
    talk = [Example(f"Hi{index}", answer="Hello!") for index in range(2)]

    @tool(examples=[*examples_of("a", 1), *talk])
    def a() -> str:
        return "好"

    @tool(examples=examples_of("b", 4))
    def b() -> str:
        return "好"

    def asked(*tools):
        return [message.content for message in example_messages(tools) if message.role == "user"]

    assert asked(a, b) == ["b0", "Hi0", "b1", "a0", "Hi1", "b2", "b3"]
    assert asked(a) == ["a0", "Hi0", "Hi1"]


def test_the_messages_of_an_example_follow_each_other_and_calls_have_their_own_ids():
    @tool(examples=[Example("时间？", {}, "九点", "九点了。")])
    def clock() -> str:
        return ""

    @tool(examples=[Example("Hi", answer="Hello!"), Example("Paris?", {"city": "Paris"}, "sunny")])
    def weather(city: str) -> str:
        return ""

    messages = example_messages([clock, weather])
    assert [(m.role, m.content) for m in messages] == [
        ("user", "Hi"), ("assistant", "Hello!"),
        ("user", "时间？"), ("assistant", ""), ("tool", "九点"), ("assistant", "九点了。"),
        ("user", "Paris?"), ("assistant", ""), ("tool", "sunny"),
    ]  # fmt: skip
    calls = [m.tool_calls[0] for m in messages if m.tool_calls]
    assert [c.name for c in calls] == ["clock", "weather"] and len({c.id for c in calls}) == 2
    assert [m.tool_call_id for m in messages if m.role == "tool"] == [c.id for c in calls]
    assert messages == example_messages([clock, weather])
