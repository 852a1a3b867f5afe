"""Chat in a named session."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import msgspec

from tenuto.protocol.chat import ChatRequest, ModelEvent
from tenuto.server.answers import closable
from tenuto.server.service import Service
from tenuto.server.sessions.names import check_name


def chat_events(service: Service, asked: ChatRequest, session: str | None) -> AsyncIterator[ModelEvent]:
    """The events of a turn.

    Args:
        session: the name of the session that it continues, of the tenant that the request's hints name; None: a
            stateless request.

    Raises InvalidRequest for what is no name. The events raise QueueFull if the tenant has too many sessions.
    """
    if session is None:
        return service.model.stream(asked)
    return _events_in(service, asked, check_name(session))


async def _events_in(service: Service, asked: ChatRequest, name: str) -> AsyncGenerator[ModelEvent, None]:
    directory = service.sessions
    entry = await directory.for_chat(asked.hints.tenant, name)
    with directory.using(entry):  # without a pause in which others could take it for unused
        request = msgspec.structs.replace(asked, session=entry.session)
        try:
            async with aclosing(closable(service.model.stream(request))) as stream:
                async for event in stream:
                    yield event
        finally:
            await directory.close_forgotten(entry)
