"""Messages to the text that a model was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any

from tenuto.clock import Clock
from tenuto.protocol.messages import COPIED, Message, ToolCall, ToolSpec
from tenuto.text.marked import ControlMarker, MarkedText, choose_mark, strings_in
from tenuto.text.normalise import normalise
from tenuto.text.sandbox import RenderLimits, SandboxedTemplate
from tenuto.text.tokenizer import Tokenizer

_CHATML = ("<|im_start|>", "<|im_end|>")


class ChatTemplate:
    """A model's chat template, and our own where it has none or its own does not know tools.

    Before a template sees them, messages are brought into one shape (`normalise`), arguments of calls are mappings,
    absent content is the empty string, and control-token strings in content are marked so that they stay text.
    A text starts with the BOS token exactly once if the tokenizer asks for one.

    Args:
        source: the model's own template; None if it has none.
        tokenizer: says which strings are control tokens.
        clock: for `strftime_now`.

    Raises:
        TemplateError: the source is no template.
    """

    def __init__(
        self, source: str | None, tokenizer: Tokenizer, clock: Clock, limits: RenderLimits = RenderLimits()
    ) -> None:
        self._tokenizer = tokenizer
        self._marker = ControlMarker(tokenizer.control)
        self._model_template = None if source is None else SandboxedTemplate(source, clock, limits)
        self._knows_tools = source is not None and "tools" in source
        own = resources.files("tenuto.text").joinpath("chatml_tools.jinja").read_text(encoding="utf-8")
        self._own_template = SandboxedTemplate(own, clock, limits)

    def uses_own(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> bool:
        """Whether our own template renders these, because the model's own could not."""
        if self._model_template is None:
            return True
        with_tools = bool(tools) or any(m.role == "tool" or m.tool_calls for m in messages)
        return with_tools and not self._knows_tools

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, add_generation_prompt: bool
    ) -> MarkedText:
        """The whole conversation as text.

        Args:
            add_generation_prompt: end with the opening of an assistant turn, for the model to go on.

        Raises:
            TemplateError: the template refuses these messages (its own reason is in the message), or costs too much.
        """
        rendered = [_as_dict(m) for m in normalise(messages)]
        declared = [_tool_as_dict(t) for t in tools]
        mark = choose_mark(strings_in([rendered, declared]))
        template = self._own_template if self.uses_own(messages, tools) else self._model_template
        assert template is not None
        text = template.render(
            {
                "messages": [self._mark_message(m, mark) for m in rendered],
                "tools": self._marker.mark_tree(declared, mark) or None,
                "add_generation_prompt": add_generation_prompt,
                **self._token_strings(),
            }
        )
        bos = self._bos()
        if self._tokenizer.add_bos and not text.startswith(bos):
            text = bos + text
        return MarkedText(text, mark)

    def _mark_message(self, message: dict[str, Any], mark: str) -> dict[str, Any]:
        role = message["role"]  # ours, not content
        return {**self._marker.mark_tree(message, mark), "role": role}

    def _bos(self) -> str:
        return "" if self._tokenizer.bos_id is None else self._tokenizer.text_of(self._tokenizer.bos_id)

    def _token_strings(self) -> dict[str, str]:
        """What templates know by name. Turns are ChatML's if the vocabulary has its tokens, else plain headings."""
        eos = min(self._tokenizer.eos_ids, default=None)
        eos_text = "" if eos is None else self._tokenizer.text_of(eos)
        chatml = all(t in self._tokenizer.control for t in _CHATML)
        return {
            "bos_token": self._bos(),
            "eos_token": eos_text,
            "turn_start": _CHATML[0] if chatml else "### ",
            "turn_end": _CHATML[1] if chatml else eos_text + "\n",
        }


def _as_dict(message: Message) -> dict[str, Any]:
    data: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        data["tool_calls"] = [_call_as_dict(call) for call in message.tool_calls]
    if message.role == "tool":
        data["tool_call_id"] = message.tool_call_id or ""
        data["name"] = message.name or ""
    return data


def _call_as_dict(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _tool_as_dict(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": _without_own(tool.parameters)}
    return {"type": "function", "function": function}


def _without_own(schema: Any) -> Any:
    """The schema without our own keyword: that one speaks to the grammar, not to the model."""
    if isinstance(schema, dict):
        return {k: _without_own(v) for k, v in schema.items() if k != COPIED}
    if isinstance(schema, list | tuple):
        return [_without_own(v) for v in schema]
    return schema
