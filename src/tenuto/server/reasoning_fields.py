"""How requests turn thinking on and off, whichever server's words their clients speak."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from tenuto.errors import InvalidRequest
from tenuto.protocol.chat import TemplateOption
from tenuto.server.wire_shape import Wire
from tenuto.text.template import RESERVED_OPTIONS

MAX_TEMPLATE_OPTIONS = 30
MAX_OPTION_CHARS = 10_000

_SWITCHES = ("enable_thinking", "thinking")  # names that templates have for it


class ThinkingSwitch(Wire):
    type: Literal["enabled", "disabled"] = Field(description="`enabled` or `disabled`")


class ReasoningFields(Wire):
    """Only what the model's template knows has an effect. If several say it, the last of these that is given wins."""

    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None,
        description="`none` turns thinking off, all others turn it on; the template gets the word as the variable "
        "`reasoning_effort`. Default: as the template does by itself",
    )
    thinking: ThinkingSwitch | None = Field(None, description="thinking on or off, as DeepSeek's API spells it")
    enable_thinking: bool | None = Field(None, description="thinking on or off, as Qwen's API spells it")
    chat_template_kwargs: dict[str, bool | int | float | str | None] | None = Field(
        None,
        description="extension: further variables of the chat template; `enable_thinking` or `thinking` among them "
        f"turns thinking on or off. {MAX_TEMPLATE_OPTIONS} at most, none that says what is rendered, as `messages`",
    )


class Reasoning(NamedTuple):
    """What a request says of thinking: `ChatRequest.thinking` and `template_options`."""

    thinking: bool | None
    options: tuple[tuple[str, TemplateOption], ...]


def reasoning_of(body: ReasoningFields) -> Reasoning:
    """Raises InvalidRequest for variables that are none."""
    options = {name: value for name, value in (body.chat_template_kwargs or {}).items() if value is not None}
    _check(options)
    thinking: bool | None = None
    if body.reasoning_effort is not None:
        thinking = body.reasoning_effort != "none"
        options.setdefault("reasoning_effort", body.reasoning_effort)
    if body.thinking is not None:
        thinking = body.thinking.type == "enabled"
    if body.enable_thinking is not None:
        thinking = body.enable_thinking
    for name in _SWITCHES:
        if isinstance(options.get(name), bool):
            thinking = bool(options.pop(name))
    return Reasoning(thinking, tuple(options.items()))


def _check(options: dict[str, TemplateOption]) -> None:
    path = "chat_template_kwargs"
    if len(options) > MAX_TEMPLATE_OPTIONS:
        raise InvalidRequest(f"{path}: {len(options)} variables, {MAX_TEMPLATE_OPTIONS} at most", path)
    for name, value in options.items():
        if name in RESERVED_OPTIONS:
            raise InvalidRequest(f"{path}.{name} says what is rendered; leave it out", f"{path}.{name}")
        if not name.isidentifier() or len(name) > 64:
            raise InvalidRequest(f"{path}: {name[:100]!r} is no name of a variable", path)
        if isinstance(value, str) and len(value) > MAX_OPTION_CHARS:
            raise InvalidRequest(f"{path}.{name} is longer than {MAX_OPTION_CHARS} characters", f"{path}.{name}")
