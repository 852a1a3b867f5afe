"""The items of one response in the making, and the events that tell of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

from tenuto.protocol.chat import TokenScore
from tenuto.server.replies import logprobs_reply
from tenuto.server.responses.wire import ItemStatus

Event: TypeAlias = dict[str, Any]
"""An event's fields but for `sequence_number`."""


class OutputItem(Protocol):
    """`opened`, then what the kind of item adds, then `closed`."""

    def wire(self, status: ItemStatus) -> dict[str, Any]:
        """The item as it stands."""
        ...

    def opened(self) -> list[Event]: ...

    def closed(self, status: ItemStatus) -> list[Event]: ...


class _Item:
    prefix: ClassVar[str]

    def __init__(self, name: str, place: int) -> None:
        self.id = f"{self.prefix}_{name}_{place}"
        self._place = place
        self._pieces: list[str] = []

    @property
    def _whole(self) -> str:
        return "".join(self._pieces)

    def _event(self, kind: str, **fields: Any) -> Event:
        return {"type": f"response.{kind}", "item_id": self.id, "output_index": self._place, **fields}

    def _item_event(self, kind: str, item: dict[str, Any]) -> Event:
        return {"type": f"response.output_item.{kind}", "output_index": self._place, "item": item}


class MessageOutput(_Item):
    """Text for the user: a message with one part."""

    prefix = "msg"

    def __init__(self, name: str, place: int) -> None:
        super().__init__(name, place)
        self._scores: list[TokenScore] = []

    def wire(self, status: ItemStatus) -> dict[str, Any]:
        return self._item(status, [self._part()])

    def _item(self, status: ItemStatus, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.id, "type": "message", "role": "assistant", "status": status, "content": content}

    def _part(self) -> dict[str, Any]:
        logprobs = _logprobs(self._scores)
        return {"type": "output_text", "text": self._whole, "annotations": [], "logprobs": logprobs}

    def opened(self) -> list[Event]:
        return [
            self._item_event("added", self._item("in_progress", [])),
            self._event("content_part.added", content_index=0, part=self._part()),
        ]

    def add(self, text: str, scores: Sequence[TokenScore]) -> list[Event]:
        self._pieces.append(text)
        self._scores.extend(scores)
        return [self._event("output_text.delta", content_index=0, delta=text, logprobs=_logprobs(scores))]

    def closed(self, status: ItemStatus) -> list[Event]:
        part = self._part()
        done = {"content_index": 0, "text": part["text"], "logprobs": part["logprobs"]}
        return [
            self._event("output_text.done", **done),
            self._event("content_part.done", content_index=0, part=part),
            self._item_event("done", self.wire(status)),
        ]


class ReasoningOutput(_Item):
    """What the model thinks, whole: there is no summary of it."""

    prefix = "rs"

    def wire(self, status: ItemStatus) -> dict[str, Any]:
        return self._item(status, [self._part()])

    def _item(self, status: ItemStatus, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.id, "type": "reasoning", "status": status, "summary": [], "content": content}

    def _part(self) -> dict[str, Any]:
        return {"type": "reasoning_text", "text": self._whole}

    def opened(self) -> list[Event]:
        return [
            self._item_event("added", self._item("in_progress", [])),
            self._event("content_part.added", content_index=0, part=self._part()),
        ]

    def add(self, text: str) -> list[Event]:
        self._pieces.append(text)
        return [self._event("reasoning_text.delta", content_index=0, delta=text)]

    def closed(self, status: ItemStatus) -> list[Event]:
        return [
            self._event("reasoning_text.done", content_index=0, text=self._whole),
            self._event("content_part.done", content_index=0, part=self._part()),
            self._item_event("done", self.wire(status)),
        ]


class CallOutput(_Item):
    """A call of a tool."""

    prefix = "fc"

    def __init__(self, name: str, place: int, *, call_id: str, tool: str) -> None:
        super().__init__(name, place)
        self._call = {"call_id": call_id, "name": tool}

    def wire(self, status: ItemStatus) -> dict[str, Any]:
        return {"id": self.id, "type": "function_call", "status": status, **self._call, "arguments": self._whole}

    def opened(self) -> list[Event]:
        return [self._item_event("added", self.wire("in_progress"))]

    def add(self, arguments: str) -> list[Event]:
        self._pieces.append(arguments)
        return [self._event("function_call_arguments.delta", delta=arguments)]

    def closed(self, status: ItemStatus) -> list[Event]:
        done = self._event("function_call_arguments.done", name=self._call["name"], arguments=self._whole)
        return [done, self._item_event("done", self.wire(status))]


def _logprobs(scores: Sequence[TokenScore]) -> list[dict[str, Any]]:
    reply = logprobs_reply(scores)
    return [] if reply is None else list(reply["content"])
