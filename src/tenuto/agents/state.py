"""The state of a run, as the fold of its journal."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tenuto.agents.events import RunUsage
from tenuto.agents.journal import Began, Entry, Failed, Intended, Replied, Returned
from tenuto.agents.step import Finish
from tenuto.ids import RunId
from tenuto.protocol.chat import ToolChoice
from tenuto.protocol.messages import Message, ToolCall

_WARN_REPEATS = 2


@dataclass(frozen=True)
class Repeat:
    """How often one call (name and arguments) gave the same result in a row."""

    text: str
    count: int
    turn: int  # the last turn that counted: equal calls in one turn count once


@dataclass(frozen=True)
class AgentState:
    """Everything `decide` looks at. Never built but by `fold`."""

    run: RunId
    messages: tuple[Message, ...]  # the conversation so far; results of a turn appear when all of them are there
    num_given: int  # of these, how many were there before the run
    max_turns: int
    max_repeats: int
    tool_choice: ToolChoice  # of the next model call
    num_turns: int = 0  # replies so far
    calls: tuple[ToolCall, ...] = ()  # of the last reply, while results are missing
    results: dict[int, Message] = field(default_factory=dict)  # place in `calls` -> result
    repeats: dict[str, Repeat] = field(default_factory=dict)  # by canonical call
    usage: RunUsage = field(default_factory=RunUsage)
    failure: Failed | None = None
    finish: Finish | None = None

    @property
    def text(self) -> str:
        """What the model last said in this run."""
        added = self.messages[self.num_given :]
        said = [message.content for message in added if message.role == "assistant" and message.content]
        return said[-1] if said else ""


def fold(entries: Iterable[Entry]) -> AgentState:
    """The state after these entries, the first of which is Began."""
    state: AgentState | None = None
    for entry in entries:
        if state is None:
            assert isinstance(entry, Began), "a journal starts with Began"
            state = _begin(entry)
        else:
            state = advance(state, entry)
    assert state is not None, "a journal has at least one entry"
    return state


def advance(state: AgentState, entry: Entry) -> AgentState:
    """The state after one more entry. Pure: the old state stays as it was."""
    assert state.finish is None, "nothing follows the end of a run"
    match entry:
        case Intended(step=Finish() as finish):
            return replace(state, finish=finish)
        case Intended():
            return state
        case Replied():
            return _replied(state, entry)
        case Returned():
            return _returned(state, entry)
        case Failed():
            return replace(state, failure=entry)
        case Began():
            raise AssertionError("a run begins once")


def canonical_call(call: ToolCall) -> str:
    """Equal for calls that mean the same, however their arguments were spelled and ordered."""
    return f"{call.name} {json.dumps(call.arguments, sort_keys=True, ensure_ascii=False, default=str)}"


def _begin(entry: Began) -> AgentState:
    return AgentState(
        run=entry.run,
        messages=entry.messages,
        num_given=len(entry.messages),
        max_turns=entry.max_turns,
        max_repeats=entry.max_repeats,
        tool_choice=entry.tool_choice,
    )


def _replied(state: AgentState, entry: Replied) -> AgentState:
    assert not state.calls, "the last reply's calls have no results yet"
    return replace(
        state,
        messages=(*state.messages, entry.message),
        num_turns=entry.turn,
        calls=entry.message.tool_calls,
        results={},
        # A forced choice is for the first call only; kept up, the model could never answer.
        tool_choice="none" if state.tool_choice == "none" else "auto",
        usage=state.usage.with_turn(entry.usage),
    )


def _returned(state: AgentState, entry: Returned) -> AgentState:
    assert entry.index < len(state.calls) and entry.index not in state.results, "a result without its call"
    call = state.calls[entry.index]
    key = canonical_call(call)
    repeat = _counted(state.repeats.get(key), entry)
    text = entry.text
    if repeat.count >= _WARN_REPEATS:
        text += (
            f"\n[{call.name} was called {repeat.count} times with the same arguments and gave the same result. "
            "Do not repeat the call: answer with what you have, or try something else.]"
        )
    message = Message(role="tool", content=text, tool_call_id=call.id, name=call.name)
    results = {**state.results, entry.index: message}
    state = replace(
        state,
        results=results,
        repeats={**state.repeats, key: repeat},
        usage=state.usage.with_call(entry.duration_s),
    )
    if len(results) < len(state.calls):
        return state
    in_order = tuple(results[index] for index in range(len(results)))
    return replace(state, messages=state.messages + in_order, calls=(), results={})


def _counted(before: Repeat | None, entry: Returned) -> Repeat:
    if before is None or before.text != entry.text:
        return Repeat(entry.text, 1, entry.turn)
    if before.turn == entry.turn:
        return before
    return Repeat(entry.text, before.count + 1, entry.turn)
