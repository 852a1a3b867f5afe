"""The whole of it on the real model: a vocabulary with thinking tokens, a template that opens the thinking."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from embedded_tokenizer import thinking_tokenizer
from tenuto.chat import TextTools
from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.protocol.chat import ChatRequest, ModelEvent, ReasoningDelta, ReplyFinished
from tenuto.protocol.engine import SamplingParams
from tenuto.protocol.grammar import GrammarSpec
from tenuto.protocol.messages import Message
from tenuto.text.template import ChatTemplate
from tenuto.text.tool_format import HermesFormat
from tenuto.wiring import LoadedModel, running
from thinking_templates import OPENS

CLOSE = thinking_tokenizer().control["</think>"]
SCHEMA = GrammarSpec(
    kind="json_schema",
    source='{"type": "object", "properties": {"city": {"enum": ["北京", "Oslo"]}}, "required": ["city"]}',
)
ASK = Message(role="user", content="Which city? 哪个城市？")


@pytest.mark.model
def test_a_schema_holds_after_the_thinking_and_at_once_without(loaded: LoadedModel, config: Config) -> None:
    """B48. The model never learnt to close its thinking, so a bias does it: at once, or never."""

    async def main() -> None:
        template = ChatTemplate(OPENS, thinking_tokenizer(), RealClock())
        thinking_model = replace(loaded, text=TextTools(thinking_tokenizer(), template, HermesFormat()))
        async with running(thinking_model, config) as started:

            async def ask(bias: float, thinking: bool | None = None) -> tuple[ReplyFinished, list[ModelEvent]]:
                request = ChatRequest(
                    messages=(ASK,),
                    response=SCHEMA,
                    max_tokens=20,
                    thinking=thinking,
                    logprobs=0,
                    sampling=SamplingParams(logit_bias=((CLOSE, bias),)),
                )
                events = [event async for event in started.model.stream(request)]
                assert isinstance(events[-1], ReplyFinished)
                return events[-1], events

            closed, _ = await ask(100)
            assert closed.token_ids[0] == CLOSE and closed.usage.num_reasoning == 1
            assert json.loads(closed.message.content)["city"] in ("北京", "Oslo") and closed.message.reasoning == ""
            assert closed.usage.num_forced > 0

            thinks, events = await ask(-100)
            assert thinks.reason == "length" and thinks.message.content == ""
            assert thinks.usage.num_reasoning == 20 and thinks.usage.num_forced == 0
            assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == thinks.message.reasoning != ""

            at_once, _ = await ask(0, thinking=False)
            assert json.loads(at_once.message.content) and at_once.usage.num_reasoning == 0

    asyncio.run(main())
