"""Chat in a named session."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import msgspec

from tenuto.protocol.chat import ChatRequest, ModelEvent
from tenuto.server.answers import closable
from tenuto.server.service import Service
from tenuto.server.sessions.names import check_name


async def chat_events(service: Service, asked: ChatRequest, session: str | None) -> AsyncIterator[ModelEvent]:
    """The events of a turn.

    Args:
        session: the name of the session that it continues, of the tenant that the request's hints name; None: a
            stateless request.

    Raises InvalidRequest for what is no name, and QueueFull if the tenant has too many sessions.
    """
    if session is None:
        return service.model.stream(asked)
    directory = service.sessions
    entry = await directory.for_chat(asked.hints.tenant, check_name(session))
    request = msgspec.structs.replace(asked, session=entry.session)

    async def events() -> AsyncGenerator[ModelEvent, None]:
        with directory.using(entry):
            async with aclosing(closable(service.model.stream(request))) as stream:
                async for event in stream:
                    yield event

    return events()
