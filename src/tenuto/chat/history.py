"""Is this a conversation? Checks the messages of a request and brings them into the one order that templates expect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tenuto.errors import InvalidRequest
from tenuto.ids import CallId
from tenuto.protocol.messages import Message


@dataclass(frozen=True)
class Arranged:
    """Messages in the order they are rendered, and where each stood in the request."""

    messages: tuple[Message, ...]
    sources: tuple[int, ...]


def arrange(messages: Sequence[Message], where: str = "messages") -> Arranged:
    """Put tool results right after the turn that made the calls, one for each call, in call order.

    Results may arrive in any order and with user messages between them; those go after the group. Every call is
    answered before the next assistant or system message and before the end.

    Args:
        where: name of the request's field, for error messages.

    Raises:
        InvalidRequest: names the message by its index.
    """
    order = _Order(messages, where)
    for index, message in enumerate(messages):
        _check_fields(message, f"{where}[{index}]")
        if message.role == "tool":
            order.add_result(index)
        elif message.role == "user" and order.is_open:
            order.deferred.append(index)
        else:
            order.add_turn(index)
    order.check_answered(None)
    return Arranged(tuple(order.arranged), tuple(order.sources))


class _Order:
    """The arranged messages so far, and the group of tool results that is still open."""

    def __init__(self, messages: Sequence[Message], where: str) -> None:
        self._messages = messages
        self._where = where
        self._caller = 0  # index of the message whose calls are being answered
        self._results: dict[CallId, int | None] = {}  # call id -> index of its result, in call order
        self._num_open = 0  # of these, the ones without a result: counted, for a turn may make thousands
        self.deferred: list[int] = []  # user messages that came between results
        self.arranged: list[Message] = []
        self.sources: list[int] = []

    @property
    def is_open(self) -> bool:
        """Whether calls wait for their results."""
        return self._num_open > 0

    def check_answered(self, index: int | None) -> None:
        if self.is_open:
            missing = [call for call, result in self._results.items() if result is None]
            before = "at the end" if index is None else f"before {self._where}[{index}]"
            raise InvalidRequest(
                f"{self._where}[{self._caller}] makes the tool calls {', '.join(missing)}, which have no result "
                f"{before}; add a tool message for each",
                param=f"{self._where}[{self._caller}]",
            )

    def add_turn(self, index: int) -> None:
        self.check_answered(index)
        message = self._messages[index]
        self._put(index, message)
        self._caller = index
        self._results = {call.id: None for call in message.tool_calls}
        self._num_open = len(self._results)
        if len(self._results) < len(message.tool_calls):
            param = f"{self._where}[{index}]"
            raise InvalidRequest(f"{param} makes two tool calls of one id; each needs its own", param=param)

    def add_result(self, index: int) -> None:
        call, param = self._messages[index].tool_call_id, f"{self._where}[{index}]"
        if call is None or call not in self._results:
            raise InvalidRequest(
                f"{param} answers the tool call {call!r}, which the assistant's last turn did not make", param=param
            )
        if self._results[call] is not None:
            raise InvalidRequest(f"{param} is a second result of the tool call {call!r}", param=param)
        self._results[call] = index
        self._num_open -= 1
        if not self.is_open:
            self._close_group()

    def _close_group(self) -> None:
        names = {call.id: call.name for call in self._messages[self._caller].tool_calls}
        for call, index in self._results.items():
            assert index is not None
            self._put(index, msgspec.structs.replace(self._messages[index], name=names[call]))
        for index in self.deferred:
            self._put(index, self._messages[index])
        self.deferred = []

    def _put(self, index: int, message: Message) -> None:
        self.arranged.append(message)
        self.sources.append(index)


def _check_fields(message: Message, param: str) -> None:
    if message.role not in ("system", "user", "assistant", "tool"):
        raise InvalidRequest(f"{param} has the unknown role {message.role!r}", param=param)
    if message.tool_calls and message.role != "assistant":
        raise InvalidRequest(f"{param} makes tool calls, which only an assistant message can", param=param)
    if message.tool_call_id is not None and message.role != "tool":
        raise InvalidRequest(f"{param} has a tool_call_id, which only a tool message can", param=param)
    for call in message.tool_calls:
        if not isinstance(call.arguments, dict):
            raise InvalidRequest(f"{param}: the arguments of {call.name!r} are no object", param=param)
    try:
        msgspec.json.encode(message)
    except (UnicodeEncodeError, TypeError, msgspec.ValidationError) as error:
        raise InvalidRequest(f"{param} cannot be written as UTF-8 JSON: {error}", param=param) from error
