"""The requests of `/v1/sessions`, field by field.

They are ours alone, so no client sends another server's extras: a field that is not known is misspelt, and refused.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tenuto.server.sampling_fields import SamplingFields, StopField
from tenuto.server.sessions.names import MAX_NAME_CHARS
from tenuto.server.wire import ResponseFormat
from tenuto.server.wire_shape import Wire

MAX_WAIT_S = 86_400.0
_MAX_INT = 2**31 - 1
_NAME = f"1 to {MAX_NAME_CHARS} letters, digits and ._:~@+=-"


class RunFields(Wire):
    """What the scheduler may know of the run that a session belongs to."""

    run: str | None = Field(None, min_length=1, max_length=200, description="the agent's run; runs are served in turn")
    parent_run: str | None = Field(None, min_length=1, max_length=200, description="the run that spawned this one")
    priority: int | None = Field(None, ge=-10, le=10, description="higher goes first. Default 0")


class SessionCreateBody(RunFields, extra="forbid"):
    """A new session."""

    id: str | None = Field(None, description=f"its name: {_NAME}. Default: a fresh one")
    parent: str | None = Field(None, description="fork this session: its tokens, and its KV shared")


class SessionForkBody(RunFields, extra="forbid"):
    """A fork of the session in the path."""

    id: str | None = Field(None, description=f"the fork's name: {_NAME}. Default: a fresh one")


class InputFields(Wire):
    token_ids: list[int] | None = Field(None, fail_fast=True, description="ids to add; or give `text`")
    text: str | None = Field(None, description="text to add, tokenised once, by itself")
    control: bool | None = Field(
        None,
        description="true: names of control tokens in `text` mean those tokens, so it must be trusted as a whole. "
        "Default false: whatever it says is content",
    )


class SessionAppendBody(InputFields, RunFields, extra="forbid"):
    """Tokens to add and to compute now. `token_ids` or `text` is required."""


class GrammarBody(Wire, extra="forbid"):
    kind: Literal["lark", "json_schema", "regex", "choices"] = Field(description="how `source` is to be read")
    source: str = Field(description="the grammar; JSON text for a schema, and for choices, a list of strings")


class SessionGenerateBody(SamplingFields, StopField, InputFields, RunFields, extra="forbid"):
    """How to go on. Without `token_ids` and `text` the session goes on from where it stands."""

    max_tokens: int | None = Field(
        None, ge=1, le=_MAX_INT, description="most tokens to generate. Default: as many as the context has room for"
    )
    stop_token_ids: list[int] | None = Field(
        None, max_length=1024, description="ids to stop after, besides the model's own; the one that comes is kept"
    )
    ignore_eos: bool | None = Field(None, description="go on past the model's own stop ids")
    response_format: ResponseFormat | None = Field(None, description="what the text must be, as in chat")
    grammar: GrammarBody | None = Field(None, description="or a grammar that it must follow")
    logprobs: bool | None = Field(None, description="send the log-probability of each token")
    top_logprobs: int | None = Field(None, ge=0, le=20, description="only with logprobs: so many of the likeliest")
    stream: bool | None = Field(None, description="send the tokens as server-sent events while they are generated")


class SessionSuspendBody(Wire, extra="forbid"):
    """The session will be idle. The next append or generate resumes it."""

    seconds: float | None = Field(
        None, ge=0, le=MAX_WAIT_S, allow_inf_nan=False, description="how long, as far as is known"
    )
    reason: str | None = Field(None, max_length=200, description="what it waits for, e.g. the tool's name")


class SessionTruncateBody(Wire, extra="forbid"):
    """What is left of the session."""

    num_tokens: int = Field(ge=0, le=_MAX_INT, description="so many tokens stay, from the beginning")


SESSION_BODIES = (
    SessionCreateBody,
    SessionForkBody,
    SessionAppendBody,
    SessionGenerateBody,
    SessionSuspendBody,
    SessionTruncateBody,
)
