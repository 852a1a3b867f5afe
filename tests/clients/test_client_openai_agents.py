"""The OpenAI Agents SDK, over the chat API and over the Responses API: its own loop calls the tools."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    RunHooks,
    Runner,
    RunResult,
    RunResultStreaming,
    function_tool,
)
from errand import QUESTION, City, Days, Errand, Factor, TurnUsage, check_usage, system
from openai import AsyncOpenAI

Api = Literal["chat", "responses"]


class OneToolATurn(RunHooks[Any]):
    """Says which tool comes next, as an agent's own hooks may."""

    def __init__(self, errand: Errand) -> None:
        self._errand = errand

    async def on_tool_end(self, context: Any, agent: Agent[Any], tool: Any, result: Any) -> None:
        agent.model_settings = settings(self._errand)


def settings(errand: Errand) -> ModelSettings:
    return ModelSettings(
        temperature=0,
        max_tokens=48,
        tool_choice=errand.next_tool,
        parallel_tool_calls=False,
        include_usage=True,
    )


def agent_of(errand: Errand, model: Any, who: str) -> Agent[Any]:
    @function_tool
    def weather(city: City, days: Days) -> str:
        """查询城市的天气"""
        return errand.weather(city, days)

    @function_tool
    def multiply(a: Factor, b: Factor) -> str:
        """multiply two whole numbers"""
        return errand.multiply(a, b)

    return Agent(
        name="errands",
        instructions=system(who),
        tools=[weather, multiply],
        model=model,
        model_settings=settings(errand),
        reset_tool_choice=False,
    )


async def run(agent: Agent[Any], errand: Errand, streamed: bool) -> tuple[RunResult | RunResultStreaming, list[str]]:
    hooks, config = OneToolATurn(errand), RunConfig(tracing_disabled=True)
    if not streamed:
        return await Runner.run(agent, QUESTION, hooks=hooks, run_config=config, max_turns=4), []
    result = Runner.run_streamed(agent, QUESTION, hooks=hooks, run_config=config, max_turns=4)
    kinds = [event.data.type async for event in result.stream_events() if event.type == "raw_response_event"]
    return result, kinds


def usage_of(result: RunResult | RunResultStreaming) -> list[TurnUsage]:
    return [
        TurnUsage(usage.input_tokens, usage.output_tokens, usage.input_tokens_details.cached_tokens)
        for usage in (response.usage for response in result.raw_responses)
    ]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_an_errand(base_url: str, api: Api, streamed: bool):
    async def errands() -> None:
        errand = Errand()
        async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=120) as client:
            kind = OpenAIChatCompletionsModel if api == "chat" else OpenAIResponsesModel
            agent = agent_of(errand, kind(model="default", openai_client=client), f"agents {api} {streamed}")
            result, kinds = await run(agent, errand, streamed)
        errand.check_calls()
        assert isinstance(result.final_output, str) and result.final_output
        check_usage(usage_of(result))
        outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
        assert outputs == errand.results
        if streamed:
            assert "response.function_call_arguments.delta" in kinds and "response.output_text.delta" in kinds

    asyncio.run(errands())
