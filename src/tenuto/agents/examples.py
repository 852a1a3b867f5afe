"""Turns the worked examples that belong to tools into messages."""

from __future__ import annotations

from collections.abc import Iterable

from tenuto.ids import CallId
from tenuto.protocol.messages import Message, ToolCall
from tenuto.tools.schema import Example, Tool


def example_messages(tools: Iterable[Tool]) -> tuple[Message, ...]:
    """All examples as turns, in the order of the tools. Call ids are fixed, so that the same tools always give the
    same messages and their KV is shared by every run."""
    messages: list[Message] = []
    for tool in tools:
        for example in tool.examples:
            messages.extend(_turns(tool.name, example, CallId(f"ex{len(messages):07d}")))
    return tuple(messages)


def _turns(name: str, example: Example, id: CallId) -> Iterable[Message]:
    yield Message(role="user", content=example.question)
    if example.arguments is not None:
        call = ToolCall(id=id, name=name, arguments=dict(example.arguments))
        yield Message(role="assistant", tool_calls=(call,))
    if example.result is not None:
        yield Message(role="tool", content=example.result, tool_call_id=id, name=name)
    if example.answer is not None:
        yield Message(role="assistant", content=example.answer)
