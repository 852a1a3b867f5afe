"""Replies under a grammar on the embedded model, and bad grammars beside them."""

from __future__ import annotations

import json
from typing import Any

import anyio
import jsonschema
import msgspec
import pytest

from tenuto.errors import GrammarError, RequestError
from tenuto.protocol.chat import ChatRequest, ReplyFinished, TextDelta
from tenuto.protocol.engine import SamplingParams
from tenuto.protocol.grammar import GrammarSpec
from tenuto.protocol.messages import Message, ToolSpec
from tenuto.wiring import open_model

pytestmark = pytest.mark.model

ASK = (Message(role="user", content="Describe a cat named 咪咪, in JSON."),)
CAT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 6},
        "colour": {"enum": ["black", "white", "三花"]},
        "born": {"type": "string", "format": "date"},
        "lives": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["name", "colour", "born", "lives"],
    "additionalProperties": False,
}
ADD = ToolSpec(name="add", description="Adds.", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})

_ODD = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}, "b": {"enum": ["七"]}}}
ODD = ToolSpec(name="odd", description="Odd.", parameters={**_ODD, "required": ["b"]})

BAD = [  # B47
    GrammarSpec(kind="json_schema", source="false"),
    GrammarSpec(kind="json_schema", source=""),
    GrammarSpec(kind="json_schema", source='{"properties": {"a": "b"}}'),
    GrammarSpec(kind="regex", source="(unclosed"),
    GrammarSpec(kind="regex", source="(a{1,1000}){1,1000}"),
    GrammarSpec(kind="json_schema", source='{"enum": ["' + "x" * 10_000_000 + '"]}'),
    GrammarSpec(kind="json_schema", source='{"items":' * 500 + "{}" + "}" * 500),
    GrammarSpec(kind="json_schema", source='{"items":' * 100_000 + "{}" + "}" * 100_000),
    GrammarSpec(kind="json_schema", source=json.dumps({"allOf": [{"pattern": f"w{i}x"} for i in range(30)]})),
    GrammarSpec(kind="lark", source="start: A\nA: " + " & ".join(f"/.*w{i}x.*/" for i in range(30))),
    GrammarSpec(kind="choices", source="[]"),
]


async def _reply(model: Any, **fields: Any) -> ReplyFinished:
    sampling = SamplingParams(temperature=fields.pop("temperature", 0.0), seed=fields.pop("seed", 0))
    request = ChatRequest(messages=fields.pop("messages", ASK), sampling=sampling, **fields)
    return [event async for event in model.stream(request)][-1]


def test_replies_keep_to_their_grammar_and_bad_grammars_harm_nobody() -> None:
    async def main() -> None:
        async with open_model(kv_tokens=4096) as model:
            texts: list[str] = []

            async def stream_beside() -> None:
                request = ChatRequest(
                    messages=(Message(role="user", content="Count."),), max_tokens=25, ignore_eos=True
                )
                async for event in model.stream(request):
                    texts.append(event.text if isinstance(event, TextDelta) else "")

            async with anyio.create_task_group() as beside:
                beside.start_soon(stream_beside)
                for spec in BAD:
                    with pytest.raises(RequestError):
                        await _reply(model, response=spec, max_tokens=5)
            assert len(texts) > 12, "the other stream went on to its end"

            spec = GrammarSpec(kind="json_schema", source=json.dumps(CAT))
            checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
            for seed in range(1):
                reply = await _reply(model, response=spec, max_tokens=60, temperature=1.0, seed=seed)
                assert reply.reason == "stop", reply.message.content
                jsonschema.Draft202012Validator(CAT, format_checker=checker).validate(json.loads(reply.message.content))
                assert reply.usage.num_forced > 10

            choices = GrammarSpec(kind="choices", source=json.dumps(["yes", "不知道"]))
            reply = await _reply(model, response=choices, tools=(ADD,), parallel_tool_calls=False, max_tokens=40)
            assert reply.message.tool_calls or reply.message.content in ("yes", "不知道")
            reply = await _reply(
                model, response=choices, tools=(ADD,), tool_choice="required", parallel_tool_calls=False, max_tokens=40
            )
            assert reply.message.tool_calls and not reply.message.content, "a turn that must call has no text to bind"
            reply = await _reply(model, tools=(ODD,), tool_choice="required", parallel_tool_calls=False, max_tokens=30)
            assert [r.path for r in reply.relaxed] == ["odd: #/properties/a/pattern"]
            assert all(call.arguments["b"] == "七" for call in reply.message.tool_calls)
            with pytest.raises(GrammarError, match="look-ahead"):
                await _reply(model, tools=(msgspec.structs.replace(ODD, strict=True),), max_tokens=5)
            plain = await _reply(model, response=GrammarSpec(kind="regex", source=r"\d{3}-[A-Z]{2}"))
            assert len(plain.message.content) == 6 and plain.message.content[3] == "-"

    anyio.run(main)
