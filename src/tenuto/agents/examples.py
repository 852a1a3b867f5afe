"""Turns the worked examples that belong to tools into messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenuto.ids import CallId
from tenuto.protocol.messages import Message, ToolCall
from tenuto.tools.schema import Example, Tool

_TALK_ENDS_AT = 0.7  # of all examples


def example_messages(tools: Iterable[Tool]) -> tuple[Message, ...]:
    """All examples as turns: one tool's in its order, those of several spread evenly among each other.

    Small models follow what they have read last. With the examples in one block a tool, the embedded one called the
    last tool whatever it was asked; and with examples that show talk without a call near the end, it only talked.
    Call ids are fixed, so that the same tools always give the same messages and their KV is shared by every run.
    """
    tools = list(tools)
    named = [(tool.name, example) for tool in tools for example in tool.examples]
    messages: list[Message] = []
    for name, example in named if len(tools) == 1 else _spread(tools):
        messages.extend(_turns(name, example, CallId(f"ex{len(messages):07d}")))
    return tuple(messages)


def _spread(tools: Sequence[Tool]) -> list[tuple[str, Example]]:
    placed: list[tuple[float, str, Example]] = []
    for end, with_call in ((_TALK_ENDS_AT, False), (1.0, True)):
        for tool in tools:
            chosen = [example for example in tool.examples if (example.arguments is not None) == with_call]
            for index, example in enumerate(chosen):
                placed.append((end * (index + 0.5) / len(chosen), tool.name, example))
    # Stable: equal places go in the order of the tools.
    return [(name, example) for _, name, example in sorted(placed, key=lambda each: each[0])]


def _turns(name: str, example: Example, id: CallId) -> Iterable[Message]:
    yield Message(role="user", content=example.question)
    if example.arguments is not None:
        call = ToolCall(id=id, name=name, arguments=dict(example.arguments))
        yield Message(role="assistant", tool_calls=(call,))
    if example.result is not None:
        yield Message(role="tool", content=example.result, tool_call_id=id, name=name)
    if example.answer is not None:
        yield Message(role="assistant", content=example.answer)
