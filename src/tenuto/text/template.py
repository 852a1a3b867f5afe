"""Messages to the text that a model was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from tenuto.clock import Clock
from tenuto.protocol.chat import TemplateOption
from tenuto.protocol.messages import COPIED, Message, ToolCall, ToolSpec
from tenuto.text.call_rendering import CallRendering
from tenuto.text.formats.recognise import knows_tools
from tenuto.text.marked import ControlMarker, MarkedText, choose_mark, strings_in
from tenuto.text.reasoning import reasoning_tags
from tenuto.text.sandbox import RenderLimits, SandboxedTemplate
from tenuto.text.tokenizer import Tokenizer
from tenuto.text.tool_format import HermesFormat
from tenuto.text.tool_text import CallWriter, declaration, turn_text, without_tool_turns
from tenuto.text.turn_order import TurnOrder, merge_system

_CHATML = ("<|im_start|>", "<|im_end|>")
_THINKING_SWITCHES = ("enable_thinking", "thinking")  # what templates call it
_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")  # of a message, likewise

RESERVED_OPTIONS = frozenset(
    ("messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "turn_start", "turn_end")
)
"""Variables that say what is rendered: no option may be called so."""


@dataclass(frozen=True)
class TemplateSettings:
    """What a request asks of the template, beside its messages."""

    thinking: bool | None = None  # None: as the template does by itself
    options: tuple[tuple[str, TemplateOption], ...] = ()  # further variables, none of RESERVED_OPTIONS


class ChatTemplate:
    """A model's chat template, and our own where it has none.

    Before a template sees them, messages are brought into an order it takes (`TurnOrder`), arguments of calls are
    mappings, absent content is the empty string, and control-token strings in content are marked so that they stay
    text. A text starts with the BOS token exactly once if the tokenizer asks for one. That results of calls follow
    their calls is the caller's part (`chat.history`).

    A message's reasoning is handed to the model's template, which decides whether it stays in history; our own keeps
    it. Thinking is turned on and off by the variables that templates know for it; a block of it that a template opens
    although it is off is closed.

    With tools, and a model whose template knows none: if its vocabulary has ChatML's tokens, our own template writes
    the same turns and more; otherwise its own gets the tools as text in the turns it knows.

    Args:
        source: the model's own template; None if it has none.
        tokenizer: says which strings are control tokens.
        clock: for `strftime_now`.
        calls: how calls are written where the model's template does not do it.

    Raises:
        TemplateError: the source is no template.

    Attributes:
        reasoning: the tags around what the model thinks; None if it does not think.
    """

    def __init__(
        self,
        source: str | None,
        tokenizer: Tokenizer,
        clock: Clock,
        limits: RenderLimits = RenderLimits(),
        calls: CallWriter = HermesFormat(),
    ) -> None:
        self._tokenizer = tokenizer
        self.reasoning = reasoning_tags(source, tokenizer.control)
        self._marker = ControlMarker(tokenizer.control)
        self._has_chatml = all(token in tokenizer.control for token in _CHATML)
        self._model_template = None if source is None else SandboxedTemplate(source, clock, limits)
        self._knows_tools = source is not None and knows_tools(source)
        self._order = TurnOrder.of(self._probe) if source is not None else TurnOrder()
        self._calls = calls
        self._call_rendering = CallRendering.of(self._probe) if self._knows_tools else CallRendering()
        own = resources.files("tenuto.text").joinpath("chatml.jinja").read_text(encoding="utf-8")
        self._own_template = SandboxedTemplate(own, clock, limits)

    @property
    def tools_through(self) -> Literal["model", "chatml", "text"]:
        """What writes a conversation with tools: the model's template, our ChatML, or the former with tools as text."""
        if self._knows_tools:
            return "model"
        return "chatml" if self._has_chatml or self._model_template is None else "text"

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        settings: TemplateSettings = TemplateSettings(),
        *,
        add_generation_prompt: bool,
    ) -> MarkedText:
        """The whole conversation as text.

        Args:
            add_generation_prompt: end with the opening of an assistant turn, for the model to go on.

        Raises:
            TemplateError: the template refuses these messages (its own reason is in the message), or costs too much.
        """
        rendered = merge_system([_as_dict(m) for m in messages])
        declared = [_tool_as_dict(t) for t in tools]
        options: dict[str, Any] = dict(settings.options)
        mark = choose_mark(strings_in([rendered, declared, options]))
        turns = [self._mark_message(m, mark) for m in rendered]
        declared = self._marker.mark_tree(declared, mark)
        with_tools = bool(tools) or any(m.role == "tool" or m.tool_calls for m in messages)
        if self._model_template is None or (with_tools and self.tools_through == "chatml"):
            text = self._render_own(turns, declared, add_generation_prompt)
        else:
            if with_tools and self.tools_through == "text":
                turns, declared = without_tool_turns(turns, declared, self._calls), []
            switches = dict.fromkeys(_THINKING_SWITCHES if settings.thinking is not None else (), settings.thinking)
            options = {**switches, **self._marker.mark_tree(options, mark)}
            turns = self._call_rendering.shape(turns)
            text = self._render_model(self._order.arrange(turns), declared, add_generation_prompt, options)
        bos = self._bos()
        if self._tokenizer.add_bos and not text.startswith(bos):
            text = bos + text
        if add_generation_prompt and settings.thinking is False:
            text = self._shut(MarkedText(text, mark))
        return MarkedText(text, mark)

    def _shut(self, prompt: MarkedText) -> str:
        """The prompt with the thinking closed that it opens, if it does."""
        if self.reasoning is None or self.reasoning.opening(prompt) != "open":
            return prompt.text
        return f"{prompt.text.rstrip()}\n\n{self.reasoning.close}\n\n"

    def _render_own(self, turns: list[dict[str, Any]], tools: list[dict[str, Any]], open_turn: bool) -> str:
        said = (self._thoughts(turn) + turn_text(turn, self._calls) for turn in turns)
        written = [{"role": turn["role"], "content": text} for turn, text in zip(turns, said, strict=True)]
        system = written.pop(0)["content"] if written and written[0]["role"] == "system" else None
        if tools:
            told = declaration(tools, self._calls)
            system = told if system is None else f"{system}\n{told}"
        if system is not None:
            written.insert(0, {"role": "system", "content": system})
        return self._own_template.render(self._variables(written, [], open_turn))

    def _thoughts(self, turn: dict[str, Any]) -> str:
        """What the turn's maker thought, as models write it."""
        thoughts = turn.get(_REASONING_FIELDS[0])
        if self.reasoning is None or not thoughts:
            return ""
        return f"{self.reasoning.open}\n{thoughts}\n{self.reasoning.close}\n\n"

    def _render_model(
        self,
        turns: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        open_turn: bool,
        options: dict[str, Any],
    ) -> str:
        assert self._model_template is not None
        return self._model_template.render({**options, **self._variables(turns, tools, open_turn)})

    def _variables(self, turns: list[dict[str, Any]], tools: list[dict[str, Any]], open_turn: bool) -> dict[str, Any]:
        return {
            "messages": turns,
            "tools": tools or None,
            "add_generation_prompt": open_turn,
            **self._token_strings(),
        }

    def _probe(self, turns: list[dict[str, Any]]) -> str:
        return self._render_model(turns, [], True, {})

    def _mark_message(self, message: dict[str, Any], mark: str) -> dict[str, Any]:
        role = message["role"]  # ours, not content
        return {**self._marker.mark_tree(message, mark), "role": role}

    def _bos(self) -> str:
        return "" if self._tokenizer.bos_id is None else self._tokenizer.text_of(self._tokenizer.bos_id)

    def _token_strings(self) -> dict[str, str]:
        """What templates know by name. Turns are ChatML's if the vocabulary has its tokens, else plain headings."""
        eos = min(self._tokenizer.eos_ids, default=None)
        eos_text = "" if eos is None else self._tokenizer.text_of(eos)
        return {
            "bos_token": self._bos(),
            "eos_token": eos_text,
            "turn_start": _CHATML[0] if self._has_chatml else "### ",
            "turn_end": _CHATML[1] if self._has_chatml else eos_text + "\n",
        }


def _as_dict(message: Message) -> dict[str, Any]:
    data: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        data |= dict.fromkeys(_REASONING_FIELDS, message.reasoning)
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
