"""What the steps of a run do to the world: they ask the model and run tools."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from tenuto.agents.closing import closing
from tenuto.agents.events import AgentEvent, Reasoning, Text, ToolAnswered, ToolCalled, TurnFinished
from tenuto.agents.journal import Failed, Replied, Returned
from tenuto.agents.state import AgentState
from tenuto.agents.step import CallModel, CallTools
from tenuto.clock import Clock
from tenuto.errors import TenutoError
from tenuto.ids import SessionId
from tenuto.protocol.chat import (
    ChatRequest,
    ModelClient,
    ModelEvent,
    ReasoningDelta,
    ReplyFinished,
    TextDelta,
    ToolCallFinished,
)
from tenuto.protocol.hints import ExpectedWait
from tenuto.tools.result_text import mask_secrets
from tenuto.tools.runtime import ToolOutcome, ToolRuntime

_log = logging.getLogger(__name__)
_HOUSEKEEPING_S = 5.0  # how long suspend and close may take

Outcome: TypeAlias = AgentEvent | Replied | Returned | Failed
"""Events go to the caller; the others are facts for the journal."""


@dataclass(frozen=True)
class Effects:
    """Performs steps. One per run."""

    model: ModelClient
    runtime: ToolRuntime
    request: ChatRequest  # what every turn has in common: tools, examples, sampling, session, hints
    clock: Clock
    deadline_s: float | None = None  # clock time by which the run must be finished

    @property
    def deadline_text(self) -> str:
        return "the run's deadline passed before it was finished"

    def deadline_passed(self) -> bool:
        return self.deadline_s is not None and self.clock.now() >= self.deadline_s

    def left_s(self) -> float | None:
        """Seconds until the run's deadline; None: there is none."""
        return None if self.deadline_s is None else max(0.0, self.deadline_s - self.clock.now())

    def perform(self, step: CallModel | CallTools, state: AgentState) -> AsyncIterator[Outcome]:
        """Do the step. Every failure of model or tools is an outcome; only bugs raise."""
        return self._call_model(step, state) if isinstance(step, CallModel) else self._call_tools(step)

    async def _call_model(self, step: CallModel, state: AgentState) -> AsyncIterator[Outcome]:
        request = msgspec.structs.replace(self.request, messages=state.messages, tool_choice=step.tool_choice)
        finished: ReplyFinished | None = None
        try:
            async with closing(self.model.stream(request)) as events:
                # To the very end, also past the last event: leaving a stream early cancels its turn.
                while (event := await self._next(events)) is not None:
                    match event:
                        case ReasoningDelta(text=text):
                            yield Reasoning(turn=step.turn, text=text)
                        case TextDelta(text=text):
                            yield Text(turn=step.turn, text=text)
                        case ToolCallFinished(call=call):
                            yield ToolCalled(turn=step.turn, id=call.id, name=call.name, arguments=call.arguments)
                        case ReplyFinished():
                            finished = event
                        case Failed():
                            yield event
                            return
            if finished is None:
                yield Failed(error_code="engine_closed", error="the model's reply broke off")
                return
            yield Replied(turn=step.turn, reason=finished.reason, message=finished.message, usage=finished.usage)
            yield TurnFinished(turn=step.turn, reason=finished.reason, usage=finished.usage)
        except TenutoError as error:
            _log.info("the model failed in turn %d", step.turn, exc_info=error)
            yield Failed(error_code=error.code, error=mask_secrets(str(error)) or type(error).__name__)

    async def _next(self, events: AsyncIterator[ModelEvent]) -> ModelEvent | Failed | None:
        """The model's next event; None at the end of its stream; Failed when the run's deadline comes first."""
        try:
            async with asyncio.timeout(self.left_s()) as limit:
                return await anext(events, None)
        except TimeoutError:
            if not limit.expired():
                raise
            return Failed(error_code="run_timeout", error=self.deadline_text)

    async def _call_tools(self, step: CallTools) -> AsyncIterator[Outcome]:
        names = ", ".join(dict.fromkeys(call.name for _, call in step.calls))
        if self.request.session is not None:
            await suspend_session(self.model, self.request.session, ExpectedWait(reason=names))
        tasks: dict[asyncio.Task[ToolOutcome], int] = {}
        for index, call in step.calls:
            tasks[asyncio.create_task(self.runtime.run(call, max_wait_s=self.left_s()))] = index
        try:
            pending = set(tasks)
            while pending:
                # The runtime ends every call within its deadline, so this wait has one too.
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=tasks.__getitem__):
                    for outcome in _answered(step.turn, tasks[task], task.result()):
                        yield outcome
        finally:
            unfinished = [task for task in tasks if not task.done()]
            for task in unfinished:
                task.cancel()
            if unfinished:
                await asyncio.wait(unfinished, timeout=_HOUSEKEEPING_S)


def _answered(turn: int, index: int, outcome: ToolOutcome) -> tuple[Returned, ToolAnswered]:
    returned = Returned(
        turn=turn,
        index=index,
        text=outcome.text,
        is_error=outcome.is_error,
        error_code=outcome.error_code,
        duration_s=outcome.duration_s,
    )
    event = ToolAnswered(
        turn=turn,
        id=outcome.call.id,
        name=outcome.call.name,
        text=outcome.text,
        is_error=outcome.is_error,
        error_code=outcome.error_code,
        duration_s=outcome.duration_s,
    )
    return returned, event


async def suspend_session(model: ModelClient, session: SessionId, wait: ExpectedWait) -> None:
    """Tell the model that the session will be idle. Advice only: a failure is logged and the run goes on."""
    await _within(model.suspend(session, wait), f"suspend of session {session}")


async def close_session(model: ModelClient, session: SessionId) -> None:
    """Free the session, also while the caller is being cancelled. A failure is logged: the run's outcome stands."""
    await _within(model.close(session), f"close of session {session}")


async def _within(housekeeping: Awaitable[None], what: str) -> None:
    async def bounded() -> None:
        try:
            async with asyncio.timeout(_HOUSEKEEPING_S):
                await housekeeping
        except (TenutoError, TimeoutError) as error:
            _log.warning("%s failed: %s", what, error or type(error).__name__)

    # A task of its own: cancelling the run must not cut short what frees its blocks.
    await asyncio.shield(asyncio.create_task(bounded()))
