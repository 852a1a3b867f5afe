"""Several runs that continue one conversation in one held session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType

from tenuto.agents.agent import Agent
from tenuto.agents.closing import closing
from tenuto.agents.effects import close_session, suspend_session
from tenuto.agents.events import AgentEvent, RunFinished
from tenuto.agents.journal import MemoryJournal
from tenuto.agents.state import fold
from tenuto.errors import SessionBusy
from tenuto.protocol.hints import ExpectedWait
from tenuto.protocol.messages import Message


class Conversation:
    """Keeps the messages, and with the agent's `hold` the session, from one query to the next.

    A run that fails or is left early is forgotten, so that the next query starts from sound history. Close it, or use
    `async with`, to free the session.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._session = agent.ids.session() if agent.hold else None
        self._messages: tuple[Message, ...] = ()
        self._running = False

    @property
    def messages(self) -> tuple[Message, ...]:
        return self._messages

    async def run(self, query: str) -> AsyncIterator[AgentEvent]:
        """Stream one run, like Agent.run. Raises SessionBusy while another run of this conversation goes on."""
        if self._running:
            raise SessionBusy("this conversation is answering another query; await or cancel that one first")
        self._running = True
        journal = MemoryJournal()
        messages = self._agent.messages_for((*self._messages, Message(role="user", content=query)))
        try:
            async with closing(self._agent.run_in(self._session, messages, journal)) as events:
                async for event in events:
                    if isinstance(event, RunFinished):
                        await self._keep(event, journal)
                    yield event
        finally:
            self._running = False

    async def _keep(self, finished: RunFinished, journal: MemoryJournal) -> None:
        if finished.reason != "error":
            self._messages = fold(await journal.entries()).messages
        if self._session is not None:
            await suspend_session(self._agent.model, self._session, ExpectedWait(reason="user"))

    async def close(self) -> None:
        """Free the session; the messages stay."""
        if self._session is not None:
            await close_session(self._agent.model, self._session)

    async def __aenter__(self) -> Conversation:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
