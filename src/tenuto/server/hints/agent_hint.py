"""Chat requests that carry edits of KV: some ask for nothing else, and some are answered as well."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any

from tenuto.protocol.chat import ChatUsage, ModelEvent, ReplyFinished
from tenuto.protocol.messages import Message
from tenuto.server.answers import closable
from tenuto.server.sse import ChunkFormat, ChunkWriter

Report = dict[str, Any]


class EditedReply:
    """The events of a reply, and after them the edits: they are done when the reply is whole, so that what it computed
    goes too. A reply that fails leaves them undone."""

    def __init__(self, events: AsyncIterator[ModelEvent], edit: Callable[[], Awaitable[Report]]) -> None:
        self._events = events
        self._edit = edit
        self._report: Report | None = None

    @property
    def report(self) -> Report:
        assert self._report is not None, "the edits are done once all events have been taken"
        return self._report

    async def events(self) -> AsyncGenerator[ModelEvent, None]:
        async with aclosing(closable(self._events)) as events:
            async for event in events:
                yield event
        self._report = await self._edit()

    async def told(self, body: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
        """The whole answer, which was made of `events`, with what became of the edits."""
        return {**await body, "context_management": self.report}


class EditedWriter(ChunkWriter):
    """Before the end of a stream one more chunk, without choices, says what became of the edits."""

    def __init__(self, form: ChunkFormat, num_choices: int, reply: EditedReply) -> None:
        super().__init__(form, num_choices)
        self._reply = reply

    def end(self) -> bytes:
        return self._form.extension("context_management", self._reply.report) + super().end()


async def no_reply() -> AsyncGenerator[ModelEvent, None]:
    """What is answered where only edits were asked for."""
    yield ReplyFinished(reason="stop", message=Message(role="assistant"), usage=ChatUsage())
