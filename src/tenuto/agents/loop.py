"""The loop of an agent: decide, record the intent, perform, record what came of it, until the run is finished.

`decide` is pure and looks at nothing but the state, and the state is the fold of the journal. So a run can be taken
up from its journal by whoever holds it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from tenuto.agents.closing import closing
from tenuto.agents.effects import Effects
from tenuto.agents.events import AgentEvent, RunFinished, TurnStarted
from tenuto.agents.journal import Entry, Failed, Intended, Journal, Replied, Returned
from tenuto.agents.state import AgentState, advance, fold
from tenuto.agents.step import CallModel, CallTools, Finish, NextStep


def decide(state: AgentState) -> NextStep:
    """The next step of a run in this state."""
    if state.finish is not None:
        return state.finish
    if state.failure is not None:
        return Finish(reason="error", text=state.text, error_code=state.failure.error_code, error=state.failure.error)
    if state.calls:
        missing = tuple((i, call) for i, call in enumerate(state.calls) if i not in state.results)
        return CallTools(turn=state.num_turns, calls=missing)
    if state.num_turns and state.messages[-1].role == "assistant":
        return Finish(reason="answer", text=state.messages[-1].content)
    if any(repeat.count >= state.max_repeats for repeat in state.repeats.values()):
        return Finish(reason="repeated_calls", text=state.text)
    if state.num_turns >= state.max_turns:
        return Finish(reason="max_turns", text=state.text)
    return CallModel(turn=state.num_turns + 1, tool_choice=state.tool_choice)


async def run_loop(journal: Journal, effects: Effects) -> AsyncIterator[AgentEvent]:
    """Carry the journal's run to its end, yielding its events; the last one is RunFinished."""
    state = fold(await journal.entries())

    async def record(entry: Entry) -> None:
        nonlocal state
        await journal.append(entry)
        state = advance(state, entry)

    start_s = effects.clock.now()
    while state.finish is None:
        step = decide(state)
        if not isinstance(step, Finish) and effects.deadline_passed():
            await record(Failed(error_code="run_timeout", error=effects.deadline_text))
            step = decide(state)
        await record(Intended(step=step))
        if isinstance(step, Finish):
            continue
        if isinstance(step, CallModel):
            yield TurnStarted(turn=step.turn)
        async with closing(effects.perform(step, state)) as outcomes:
            async for outcome in outcomes:
                if isinstance(outcome, Replied | Returned | Failed):
                    await record(outcome)
                else:
                    yield outcome
    yield RunFinished(
        run=state.run,
        reason=state.finish.reason,
        text=state.finish.text,
        usage=state.usage,
        error_code=state.finish.error_code,
        error=state.finish.error,
        duration_s=effects.clock.now() - start_s,
    )
