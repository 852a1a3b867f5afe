"""The shape in which every conversation reaches a template, whatever order its messages came in."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.protocol.messages import Message


def normalise(messages: Sequence[Message]) -> list[Message]:
    """Two rules, so that templates need not cope:

    - System messages at the start are merged into one, separated by an empty line.
    - Results of tool calls follow the turn that made the calls at once, in the order of the calls, one message each;
      whatever came between them goes after the group.
    """
    ordered = _results_after_calls(_merge_system(messages))
    assert len(ordered) <= len(messages)
    return ordered


def _merge_system(messages: Sequence[Message]) -> list[Message]:
    count = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
    if count < 2:
        return list(messages)
    merged = Message(role="system", content="\n\n".join(m.content for m in messages[:count] if m.content))
    return [merged, *messages[count:]]


def _results_after_calls(messages: list[Message]) -> list[Message]:
    ordered: list[Message] = []
    i = 0
    while i < len(messages):
        message = messages[i]
        i += 1
        ordered.append(message)
        if message.role != "assistant" or not message.tool_calls:
            continue
        following = []
        while i < len(messages) and messages[i].role != "assistant":
            following.append(messages[i])
            i += 1
        place = {call.id: n for n, call in enumerate(message.tool_calls)}
        ours = [m for m in following if m.role == "tool" and m.tool_call_id in place]
        ours.sort(key=lambda m: place[m.tool_call_id] if m.tool_call_id is not None else 0)
        ordered += ours
        ordered += [m for m in following if not (m.role == "tool" and m.tool_call_id in place)]
    return ordered
