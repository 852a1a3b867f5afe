"""Pydantic AI: tools are typed functions, and its own loop validates their arguments."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from errand import QUESTION, City, Days, Errand, Factor, TurnUsage, check_usage, system
from pydantic import BaseModel
from pydantic_ai import Agent, ModelSettings, RunContext, UsageLimits
from pydantic_ai.messages import ModelResponse, PartDeltaEvent, TextPartDelta, ToolCallPartDelta
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


def settings_of(context: RunContext[Errand]) -> ModelSettings:
    """Before each turn: which tool comes next."""
    name = context.deps.next_tool
    choice: Any = [name] if name else "auto"
    return ModelSettings(temperature=0, seed=1, max_tokens=48, parallel_tool_calls=False, tool_choice=choice)


def agent_of(model: Any, who: str) -> Agent[Errand, str]:
    agent = Agent(model, deps_type=Errand, instructions=system(who), model_settings=settings_of, retries=0)

    @agent.tool
    def weather(context: RunContext[Errand], city: City, days: Days) -> str:
        """查询城市的天气"""
        return context.deps.weather(city, days)

    @agent.tool
    def multiply(context: RunContext[Errand], a: Factor, b: Factor) -> str:
        """multiply two whole numbers"""
        return context.deps.multiply(a, b)

    return agent


def usage_of(messages: list[Any]) -> list[TurnUsage]:
    return [
        TurnUsage(message.usage.input_tokens, message.usage.output_tokens, message.usage.cache_read_tokens)
        for message in messages
        if isinstance(message, ModelResponse)
    ]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_an_errand(base_url: str, api: str, streamed: bool):
    async def errands() -> None:
        errand, deltas = Errand(), set()
        provider = OpenAIProvider(base_url=base_url, api_key="none")
        kind = OpenAIChatModel if api == "chat" else OpenAIResponsesModel
        agent = agent_of(kind("default", provider=provider), f"pydantic {api} {streamed}")
        limits = UsageLimits(request_limit=4)

        async def watch(_: Any, events: Any) -> None:
            async for event in events:
                if isinstance(event, PartDeltaEvent):
                    deltas.add(type(event.delta))

        handler = watch if streamed else None
        result = await agent.run(QUESTION, deps=errand, usage_limits=limits, event_stream_handler=handler)
        errand.check_calls()
        assert result.output
        check_usage(usage_of(result.all_messages()))
        returned = [
            part.content
            for message in result.all_messages()
            for part in message.parts
            if part.part_kind == "tool-return"
        ]
        assert returned == errand.results
        if streamed:
            assert {TextPartDelta, ToolCallPartDelta} <= deltas

    asyncio.run(errands())


class Report(BaseModel):
    """天气报告"""

    city: City
    sunny: bool


def test_an_answer_of_a_declared_type(base_url: str):
    async def errands() -> None:
        provider = OpenAIProvider(base_url=base_url, api_key="none")
        agent = Agent(OpenAIChatModel("default", provider=provider), output_type=Report, retries=0)
        settings = ModelSettings(temperature=0, seed=1, max_tokens=48, parallel_tool_calls=False)
        result = await agent.run("北京：晴，最高8°C。北京晴吗？", model_settings=settings)
        assert isinstance(result.output, Report) and result.output.city == "北京"

    asyncio.run(errands())
