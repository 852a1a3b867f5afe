"""A chat client over a scripted engine, with the embedded model's real tokenizer and template."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from embedded_tokenizer import embedded_files, embedded_tokenizer
from tenuto.chat import ChatLimits, LocalModelClient, TextTools
from tenuto.clock import RealClock
from tenuto.ids import CallId, IdSource, SessionId, TokenId
from tenuto.protocol.chat import ChatRequest, ModelEvent, ReplyFinished
from tenuto.protocol.messages import Message, ToolCall, ToolSpec
from tenuto.testing.scripted_engine import NextToken, ScriptedEngine
from tenuto.text.template import ChatTemplate
from tenuto.text.tokenizer import Tokenizer
from tenuto.text.tool_format import HermesFormat, TextFormat

T = TypeVar("T")

TOKENIZER = embedded_tokenizer()
TWO_ENDS = Tokenizer.from_files(replace(embedded_files(), eos_ids=(0, 2)))  # a config that names two end ids
END = TOKENIZER.control["<|im_end|>"]
END_OF_TEXT = TOKENIZER.control["<|endoftext|>"]
SESSION = SessionId("会话-1")
WEATHER = ToolSpec(
    name="get_weather",
    description="天气 of a city",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
CLOCK = ToolSpec(name="clock", description="the time", parameters={"type": "object", "properties": {}})


def user(content: str) -> Message:
    return Message(role="user", content=content)


def system(content: str) -> Message:
    return Message(role="system", content=content)


def assistant(content: str = "", *calls: ToolCall) -> Message:
    return Message(role="assistant", content=content, tool_calls=calls)


def call(call_id: str, name: str = "get_weather", **arguments: Any) -> ToolCall:
    return ToolCall(id=CallId(call_id), name=name, arguments=arguments)


def result(call_id: str, content: str) -> Message:
    return Message(role="tool", content=content, tool_call_id=CallId(call_id))


def said(text: str, end: TokenId | None = END) -> list[TokenId]:
    """The ids of a reply, spelled as the tokenizer does."""
    return TOKENIZER.encode(text) + ([] if end is None else [end])


def call_text(name: str = "get_weather", **arguments: Any) -> str:
    """A call as our template writes it."""
    return f'<tool_call>{{"name": "{name}", "arguments": {json.dumps(arguments, ensure_ascii=False)}}}</tool_call>'


class Chat:
    """One client, its engine, and short ways to talk to it."""

    def __init__(
        self,
        script: Iterable[Sequence[int]] | NextToken = (),
        *,
        source: str | None = None,
        own_template: bool = True,
        tokenizer: Tokenizer = TOKENIZER,
        limits: ChatLimits = ChatLimits(),
        tool_format: TextFormat = HermesFormat(),
        **engine: Any,
    ) -> None:
        if not own_template:
            source = embedded_files().chat_template
        self.engine = ScriptedEngine(script, **engine)
        self.template = ChatTemplate(source, tokenizer, RealClock(), calls=tool_format)
        self.tool_format = tool_format
        text = TextTools(tokenizer, self.template, self.tool_format)
        self.client = LocalModelClient(self.engine, text, ids=IdSource(7), clock=RealClock(), limits=limits)

    async def events(self, *messages: Message, **request: Any) -> list[ModelEvent]:
        return [event async for event in self.client.stream(ChatRequest(messages=messages, **request))]

    async def ask(self, *messages: Message, **request: Any) -> ReplyFinished:
        """A whole turn, on the held session unless told otherwise."""
        request.setdefault("session", SESSION)
        last = (await self.events(*messages, **request))[-1]
        assert isinstance(last, ReplyFinished)
        return last

    def tokens(self, session: SessionId = SESSION) -> tuple[TokenId, ...]:
        """What the engine's session holds."""
        return self.engine.sessions[session]

    def rendered(self, *messages: Message, tools: Sequence[ToolSpec] = (), prompt: bool = True) -> list[TokenId]:
        """A conversation encoded at once."""
        return TOKENIZER.encode(self.template.render(messages, tools, add_generation_prompt=prompt))


def run(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(main)
