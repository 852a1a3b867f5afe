"""Every error Tenuto raises on purpose, in one tree.

    TenutoError
    ├── ConfigError              a setting is wrong
    ├── ModelFileError           a model, tokenizer or template file cannot be used
    │   ├── UnsupportedModel     the file is sound, but needs something we do not have yet
    │   └── HubError             a model cannot be got from a hub, or is not in the cache
    ├── RequestError             the caller asked for something we cannot do; nothing changed
    │   ├── InvalidRequest       a field is missing, malformed or out of range
    │   │   └── NotStored        a field names a response or item that is not kept
    │   ├── ContextLengthError   more tokens than the model, or the session, can hold
    │   ├── TemplateError        the chat template refuses these messages
    │   ├── GrammarError         a grammar or JSON Schema cannot be compiled
    │   ├── SessionNotFound · SessionExists · SessionBusy
    │   ├── SessionFileError     bytes that are no exported session, or not one of this model
    │   ├── Unauthorized         no API key was given, or one that is not known
    │   └── UnknownModel         no model of that name is served
    ├── CapacityError            the request is fine, the machine is not big or free enough
    │   ├── NeverFits            it could not run even on an idle machine
    │   └── QueueFull            try again later
    ├── ToolError                a tool failed; becomes the tool's result, not the run's end
    │   ├── UnknownTool · InvalidArguments · ToolTimeout
    ├── StepFailed               the step that computed for the request failed; the engine lives on
    ├── Cancelled                the caller gave up; its blocks are free
    └── EngineClosed             the engine has stopped, or stopped while the request ran

The message names the thing and the fix, in words that are safe to send to a client.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self


class TenutoError(Exception):
    """Root of the tree. `code` is a stable machine-readable name for JSON output."""

    @property
    def code(self) -> str:
        name = type(self).__name__
        return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")


class ConfigError(TenutoError):
    """A setting is wrong: the message names the setting and the accepted values."""


class ModelFileError(TenutoError):
    """A model, tokenizer or template file cannot be used: names the file and, if any, the tensor."""

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems) or (message,)  # each thing that is wrong, as far as it could be seen at once

    @classmethod
    def of(cls, path: Path, problems: Sequence[str]) -> Self:
        """One error for everything that is wrong with one file."""
        return cls(f"{path}: {'; '.join(problems)}", problems)


class UnsupportedModel(ModelFileError):
    """The file is sound but needs a feature this version lacks; the message names the feature."""


class HubError(ModelFileError):
    """A model cannot be got from a hub, or is not in the cache: names the repository and the fix, never a token."""


class RequestError(TenutoError):
    """The caller's request cannot be done as asked. Nothing was changed by it."""


class InvalidRequest(RequestError):
    """A field is missing, malformed or out of range; `param` is the field's path, if known."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class NotStored(InvalidRequest):
    """A response or an item of that id is not kept: it never was, it has expired, or it was deleted."""


class ContextLengthError(RequestError):
    """The tokens asked for exceed the model's context."""

    def __init__(
        self,
        num_tokens: int,
        max_tokens: int,
        what: str = "the request",
        fix: str = "shorten the messages or lower max_tokens",
    ) -> None:
        super().__init__(f"{what} needs {num_tokens} tokens, but the context holds {max_tokens}; {fix}")
        self.num_tokens = num_tokens
        self.max_tokens = max_tokens


class TemplateError(RequestError):
    """The model's chat template refuses these messages; carries the template's own reason."""


class GrammarError(RequestError):
    """A grammar, regular expression or JSON Schema cannot be compiled; says where and why."""


class SessionNotFound(RequestError):
    """No session of that id is open: it was never opened, or was closed."""


class SessionExists(RequestError):
    """A session of that id is already open."""


class SessionBusy(RequestError):
    """The session is computing for another call, or still being opened by one; await or cancel that one first."""


class SessionFileError(RequestError):
    """What is imported is no whole exported session, or one of another model; says what is wrong with it."""


class Unauthorized(RequestError):
    """The caller gave no API key, or one that is not known here. The message never quotes it."""


class UnknownModel(RequestError):
    """No model of that name is served here."""


class CapacityError(TenutoError):
    """The request is fine, the machine is not big enough or not free enough."""


class NeverFits(CapacityError):
    """The request could not run even on an idle machine; says what it needs and what there is."""


class QueueFull(CapacityError):
    """Too much is waiting already; try again later: after `retry_after_s`, if that can be told."""

    def __init__(self, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ToolError(TenutoError):
    """A tool failed. The agent loop hands the message to the model as the tool's result."""


class UnknownTool(ToolError):
    """The model called a tool that was not declared; the message lists the declared names."""


class InvalidArguments(ToolError):
    """The arguments do not fit the tool's schema; the message names the argument."""


class ToolTimeout(ToolError):
    """The tool did not answer within its deadline; whether it took effect is unknown."""


class StepFailed(TenutoError):
    """An engine step failed, e.g. the device ran out of memory; the cause is chained. The request may be retried."""


class Cancelled(TenutoError):
    """The caller cancelled the request."""


class EngineClosed(TenutoError):
    """The engine has stopped; requests that were running end with this too."""
