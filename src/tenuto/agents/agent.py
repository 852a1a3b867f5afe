"""An agent: a model, its tools and its instructions, and the runs they make."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import KW_ONLY, dataclass, field

from tenuto.agents.closing import closing
from tenuto.agents.effects import Effects, close_session
from tenuto.agents.events import AgentEvent, RunFinished, RunFinishReason, RunStarted, RunUsage
from tenuto.agents.examples import example_messages
from tenuto.agents.journal import Began, Journal, MemoryJournal
from tenuto.agents.loop import run_loop
from tenuto.agents.state import fold
from tenuto.clock import Clock, RealClock
from tenuto.errors import InvalidRequest
from tenuto.ids import IdSource, RunId, SessionId
from tenuto.protocol.chat import ChatRequest, ModelClient, ToolChoice
from tenuto.protocol.engine import SamplingParams
from tenuto.protocol.hints import RunHints
from tenuto.protocol.messages import Message
from tenuto.tools.registry import ToolRegistry
from tenuto.tools.runtime import ToolRuntime
from tenuto.tools.schema import Tool
from tenuto.tools.threads import WorkerThreads


@dataclass(frozen=True)
class RunResult:
    """A run as a whole, for callers that do not want its events."""

    run: RunId
    reason: RunFinishReason
    text: str
    usage: RunUsage
    messages: tuple[Message, ...]  # the conversation with everything the run added
    error_code: str | None = None
    error: str | None = None
    duration_s: float = 0.0


@dataclass(eq=False)
class Agent:
    """Runs questions through a model that may call tools. Any number of runs at once.

    With `hold`, a run keeps one session in the model from its first turn to its end, so that each turn computes only
    what is new. A run that is cancelled, or whose iterator is closed, frees the session at once.

    Raises ConfigError (tools) and InvalidRequest (settings out of range).
    """

    model: ModelClient
    tools: Sequence[Tool] | ToolRegistry = ()
    instructions: str = ""
    _: KW_ONLY
    max_turns: int = 8  # model calls of one run
    deadline_s: float | None = None  # of a whole run
    tool_deadline_s: float = 30.0  # of a call, for tools that set none of their own
    max_tokens: int | None = None  # of one reply
    sampling: SamplingParams = field(default_factory=SamplingParams)
    tool_choice: ToolChoice = "auto"  # of a run's first turn; a forced choice then goes back to "auto"
    parallel_tool_calls: bool = True
    max_repeats: int = 3  # equal calls with equal results, in as many turns, that end a run
    max_result_chars: int = 16_000  # longer tool results are cut
    examples: bool = True  # show the model the worked examples of the tools
    hold: bool = True
    clock: Clock = field(default_factory=RealClock)
    ids: IdSource = field(default_factory=IdSource)
    threads: WorkerThreads = field(default_factory=WorkerThreads)  # for sync tools; may be shared by agents

    def __post_init__(self) -> None:
        for name in ("max_turns", "tool_deadline_s", "max_repeats", "max_result_chars"):
            if getattr(self, name) <= 0:
                raise InvalidRequest(f"{name} must be above 0, got {getattr(self, name)}", name)
        if self.deadline_s is not None and self.deadline_s <= 0:
            raise InvalidRequest(f"deadline_s must be above 0, got {self.deadline_s}", "deadline_s")
        self._registry = self.tools if isinstance(self.tools, ToolRegistry) else ToolRegistry(self.tools)
        self._examples = example_messages(self._registry) if self.examples else ()
        self._runtime = ToolRuntime(
            self._registry,
            self.clock,
            threads=self.threads,
            deadline_s=self.tool_deadline_s,
            max_result_chars=self.max_result_chars,
        )

    async def run(self, query: str | Sequence[Message]) -> AsyncIterator[AgentEvent]:
        """Stream the events of one run; the last is RunFinished. Closing the iterator cancels the run."""
        session = self.ids.session() if self.hold else None
        try:
            async with closing(self.run_in(session, self.messages_for(query), MemoryJournal())) as events:
                async for event in events:
                    yield event
        finally:
            if session is not None:
                await close_session(self.model, session)

    async def answer(self, query: str | Sequence[Message]) -> RunResult:
        """Run to the end and return the result."""
        journal = MemoryJournal()
        session = self.ids.session() if self.hold else None
        try:
            async with closing(self.run_in(session, self.messages_for(query), journal)) as events:
                finished = [event async for event in events][-1]
        finally:
            if session is not None:
                await close_session(self.model, session)
        assert isinstance(finished, RunFinished), "a run ends with RunFinished"
        return RunResult(
            run=finished.run,
            reason=finished.reason,
            text=finished.text,
            usage=finished.usage,
            messages=fold(await journal.entries()).messages,
            error_code=finished.error_code,
            error=finished.error,
            duration_s=finished.duration_s,
        )

    def messages_for(self, query: str | Sequence[Message]) -> tuple[Message, ...]:
        """The conversation that a query starts: our instructions first, unless it brings a system message."""
        messages = (Message(role="user", content=query),) if isinstance(query, str) else tuple(query)
        if not messages:
            raise InvalidRequest("a run needs at least one message", "messages")
        if self.instructions and not any(message.role == "system" for message in messages):
            return (Message(role="system", content=self.instructions), *messages)
        return messages

    async def run_in(
        self, session: SessionId | None, messages: tuple[Message, ...], journal: Journal
    ) -> AsyncIterator[AgentEvent]:
        """One run of this conversation in a session that the caller closes (None: nothing is held), recorded in a
        fresh journal."""
        run = self.ids.run()
        await journal.append(
            Began(
                run=run,
                messages=messages,
                max_turns=self.max_turns,
                tool_choice=self.tool_choice,
                max_repeats=self.max_repeats,
            )
        )
        yield RunStarted(run=run, session=session)
        async with closing(run_loop(journal, self._effects(run, session))) as events:
            async for event in events:
                yield event

    def _effects(self, run: RunId, session: SessionId | None) -> Effects:
        deadline_s = None if self.deadline_s is None else self.clock.now() + self.deadline_s
        request = ChatRequest(
            messages=(),
            examples=self._examples,
            tools=self._registry.specs(),
            parallel_tool_calls=self.parallel_tool_calls,
            max_tokens=self.max_tokens,
            sampling=self.sampling,
            session=session,
            hints=RunHints(run=run, deadline_s=deadline_s),
        )
        return Effects(self.model, self._runtime, request, self.clock, deadline_s)
