"""What a run tells its caller, as it happens. Each event is one JSON object whose `type` says what it is."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from tenuto.ids import CallId, RunId, SessionId
from tenuto.protocol.chat import ChatFinishReason, ChatUsage

RunFinishReason: TypeAlias = Literal["answer", "max_turns", "repeated_calls", "error"]
"""`answer`: the model replied without a call. `max_turns`: it still wanted to go on. `repeated_calls`: it kept making
the same call and got the same result. `error`: see error_code and error."""


class RunUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and time of a whole run, summed over its turns; see ChatUsage for the token counts."""

    num_turns: int = 0
    num_tool_calls: int = 0
    num_prompt: int = 0
    num_held: int = 0
    num_shared: int = 0
    num_computed: int = 0
    num_recomputed: int = 0
    num_generated: int = 0
    num_forced: int = 0
    num_accepted: int = 0
    model_s: float = 0.0  # in the model
    tool_s: float = 0.0  # in tools, summed over calls even where they overlapped

    def with_turn(self, turn: ChatUsage) -> RunUsage:
        return RunUsage(
            num_turns=self.num_turns + 1,
            num_tool_calls=self.num_tool_calls,
            num_prompt=self.num_prompt + turn.num_prompt,
            num_held=self.num_held + turn.num_held,
            num_shared=self.num_shared + turn.num_shared,
            num_computed=self.num_computed + turn.num_computed,
            num_recomputed=self.num_recomputed + turn.num_recomputed,
            num_generated=self.num_generated + turn.num_generated,
            num_forced=self.num_forced + turn.num_forced,
            num_accepted=self.num_accepted + turn.num_accepted,
            model_s=self.model_s + turn.total_s,
            tool_s=self.tool_s,
        )

    def with_call(self, duration_s: float) -> RunUsage:
        return msgspec.structs.replace(self, num_tool_calls=self.num_tool_calls + 1, tool_s=self.tool_s + duration_s)


class RunStarted(msgspec.Struct, frozen=True, kw_only=True, tag="run_started"):
    run: RunId
    session: SessionId | None  # None: nothing is held


class TurnStarted(msgspec.Struct, frozen=True, kw_only=True, tag="turn_started"):
    turn: int  # from 1


class Reasoning(msgspec.Struct, frozen=True, kw_only=True, tag="reasoning"):
    """A piece of what the model thinks before it answers or calls a tool."""

    turn: int
    text: str


class Text(msgspec.Struct, frozen=True, kw_only=True, tag="text"):
    """A piece of the model's text; whole characters only."""

    turn: int
    text: str


class ToolCalled(msgspec.Struct, frozen=True, kw_only=True, tag="tool_call"):
    """The model made a call; its arguments are complete."""

    turn: int
    id: CallId
    name: str
    arguments: dict[str, Any]


class ToolAnswered(msgspec.Struct, frozen=True, kw_only=True, tag="tool_result"):
    """A call has its result. Results arrive as tools finish; the model reads them in the order of the calls."""

    turn: int
    id: CallId
    name: str
    text: str
    is_error: bool = False
    error_code: str | None = None
    duration_s: float = 0.0


class TurnFinished(msgspec.Struct, frozen=True, kw_only=True, tag="turn_finished"):
    """The model's reply is whole; its calls, if any, run next."""

    turn: int
    reason: ChatFinishReason  # "length": the reply was cut at max_tokens
    usage: ChatUsage


class RunFinished(msgspec.Struct, frozen=True, kw_only=True, tag="run_finished"):
    """The last event. `text` is the answer or, for another reason than that, what the model last said."""

    run: RunId
    reason: RunFinishReason
    text: str
    usage: RunUsage
    error_code: str | None = None
    error: str | None = None
    duration_s: float = 0.0


AgentEvent: TypeAlias = (
    RunStarted | TurnStarted | Reasoning | Text | ToolCalled | ToolAnswered | TurnFinished | RunFinished
)
