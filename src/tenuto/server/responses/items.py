"""Items of a conversation: to the messages that the model client takes, and to the form in which they are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pydantic import TypeAdapter

from tenuto.errors import InvalidRequest
from tenuto.ids import CallId
from tenuto.protocol.messages import Message, ToolCall
from tenuto.server.limits import ServerLimits
from tenuto.server.responses.wire import (
    CallItem,
    CallOutputItem,
    Item,
    ItemPart,
    ItemReference,
    MessageItem,
    ReasoningItem,
)
from tenuto.server.tool_fields import read_arguments

Said: TypeAlias = MessageItem | CallItem | CallOutputItem | ReasoningItem

_ITEM: TypeAdapter[Said] = TypeAdapter(Said)
PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


@dataclass(frozen=True)
class ReadItems:
    """A request's input."""

    messages: tuple[Message, ...]
    sources: tuple[int, ...]  # of each message: the first item it was made of
    items: tuple[dict[str, Any], ...]  # in wire form, each with an id


def read_input(
    given: str | Sequence[Item], *, name: str, lookup: Callable[[str, str], dict[str, Any]], limits: ServerLimits
) -> ReadItems:
    """
    Args:
        name: what is new in ids made up for items that bring none.
        lookup: a stored item by its id; the second argument is the field that names it. Raises NotStored.

    Raises InvalidRequest.
    """
    if isinstance(given, str):
        given = [_ITEM.validate_python({"type": "message", "role": "user", "content": given})]
    reader = _MessageReader(limits)
    items = []
    for index, item in enumerate(given):
        path = f"input[{index}]"
        said = _ITEM.validate_python(lookup(item.id, path)) if isinstance(item, ItemReference) else item
        reader.add(said, index)
        kept = kept_form(said)
        kept["id"] = said.id or f"{PREFIXES[kept['type']]}_{name}_in{index}"
        items.append(kept)
    messages = reader.messages()
    return ReadItems(messages, tuple(reader.sources), tuple(items))


def kept_form(item: Said) -> dict[str, Any]:
    """An item in wire form, without its id: what is served of it and no more."""
    match item:
        case MessageItem(role="assistant"):
            content = [{"type": "output_text", "text": text_of(item.content, ""), "annotations": []}]
            return {"type": "message", "role": "assistant", "status": item.status or "completed", "content": content}
        case MessageItem():
            content = [{"type": "input_text", "text": text_of(item.content, "")}]
            return {"type": "message", "role": item.role, "status": "completed", "content": content}
        case CallItem():
            arguments = item.arguments or "{}"
            status = item.status or "completed"
            call = {"call_id": item.call_id, "name": item.name, "arguments": arguments}
            return {"type": "function_call", "status": status} | call
        case CallOutputItem():
            output = text_of(item.output, "")
            return {"type": "function_call_output", "status": "completed", "call_id": item.call_id, "output": output}
        case ReasoningItem():
            content = [{"type": "reasoning_text", "text": part.text} for part in item.content or ()]
            return {"type": "reasoning", "status": item.status or "completed", "summary": [], "content": content}


def text_of(content: str | list[ItemPart], path: str) -> str:
    """Raises InvalidRequest where a part is no text."""
    if isinstance(content, str):
        return content
    texts = []
    for index, part in enumerate(content):
        where = f"{path}[{index}]"
        if part.type not in ("input_text", "output_text", "refusal"):
            raise InvalidRequest(f"{where}.type: {part.type[:50]!r} is not served, only text", f"{where}.type")
        name = "refusal" if part.type == "refusal" else "text"
        text = part.refusal if part.type == "refusal" else part.text
        if text is None:
            raise InvalidRequest(f"{where}.{name} is required", f"{where}.{name}")
        texts.append(text)
    return "".join(texts)


@dataclass
class _AssistantTurn:
    """What the assistant said in one turn: text, calls and reasoning are items of their own, but one message."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    last: str = ""  # type of the last item

    def takes(self, kind: str) -> bool:
        """Whether an item of this type goes on with the turn. Our own turns think first, and never have two messages
        in a row."""
        if kind == "reasoning":
            return self.last == "reasoning"
        return not kind == self.last == "message"

    def message(self) -> Message:
        return Message(
            role="assistant",
            content="".join(self.texts),
            reasoning="".join(self.thoughts),
            tool_calls=tuple(self.calls),
        )


class _MessageReader:
    """Items in their order, to messages."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._messages: list[Message] = []
        self.sources: list[int] = []
        self._turn: _AssistantTurn | None = None

    def messages(self) -> tuple[Message, ...]:
        self._end_turn()
        return tuple(self._messages)

    def add(self, item: Said, index: int) -> None:
        path = f"input[{index}]"
        match item:
            case MessageItem(role="assistant"):
                text = text_of(item.content, f"{path}.content")
                self._assistant("message", index).texts.append(text)
            case MessageItem(role=role):
                text = text_of(item.content, f"{path}.content")
                self._put(index, Message(role="user" if role == "user" else "system", content=text))
            case CallItem(status="incomplete"):
                if self._turn is not None:  # its text is the turn's, and goes on after it
                    self._turn.last = "function_call"
            case CallItem():
                arguments = read_arguments(item.arguments, f"{path}.arguments", self._limits)
                call = ToolCall(id=CallId(item.call_id), name=item.name, arguments=arguments)
                self._assistant("function_call", index).calls.append(call)
            case CallOutputItem():
                text = text_of(item.output, f"{path}.output")
                self._put(index, Message(role="tool", content=text, tool_call_id=CallId(item.call_id)))
            case ReasoningItem(content=content):
                if content:
                    self._assistant("reasoning", index).thoughts.extend(part.text for part in content)

    def _put(self, index: int, message: Message) -> None:
        self._end_turn()
        self.sources.append(index)
        self._messages.append(message)

    def _assistant(self, kind: str, index: int) -> _AssistantTurn:
        if self._turn is not None and not self._turn.takes(kind):
            self._end_turn()
        if self._turn is None:
            self._turn = _AssistantTurn()
            self.sources.append(index)
        self._turn.last = kind
        return self._turn

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._messages.append(self._turn.message())
            self._turn = None
