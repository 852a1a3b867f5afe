"""openJiuwen's model client with its KV affinity on: requests carry `agent_hint`, and its KV calls are answered."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from errand import QUESTION, TOOLS, Errand, TurnUsage, check_usage, system
from openjiuwen.core.foundation.llm import (
    AssistantMessage,
    AssistantMessageChunk,
    KVCacheExtensionConfig,
    LLMExtensionsConfig,
    ModelClientConfig,
    ModelRequestConfig,
    OpenAIModelClient,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from openjiuwen.core.foundation.tool import ToolInfo

TOOL_INFOS = [ToolInfo(**tool["function"]) for tool in TOOLS]


def model_at(base_url: str) -> OpenAIModelClient:
    return OpenAIModelClient(
        ModelRequestConfig(model="default", temperature=0, max_tokens=48),
        ModelClientConfig(
            client_provider="OpenAI",
            api_key="none",
            api_base=base_url,
            verify_ssl=False,
            use_shared_llm_http_client=False,
            extensions=LLMExtensionsConfig(kv_cache=KVCacheExtensionConfig(mode="affinity")),
        ),
    )


async def ask(
    model: OpenAIModelClient, streamed: bool, messages: list[Any], session: str, **fields: Any
) -> AssistantMessage:
    fields |= model.build_kv_cache_affinity_invoke_kwargs(session_id=session, enable_kv_cache_affinity=True)
    if not streamed:
        return await model.invoke(messages, tools=TOOL_INFOS, **fields)
    whole: Any = None
    async for chunk in model.stream(messages, tools=TOOL_INFOS, **fields):
        whole = chunk if whole is None else whole + chunk
    assert isinstance(whole, AssistantMessageChunk)
    return AssistantMessage(content=whole.content, tool_calls=whole.tool_calls)


def usage_of(reply: AssistantMessage) -> TurnUsage:
    usage = reply.usage_metadata
    if usage is None:  # with affinity on, its streams leave the usage out
        return TurnUsage(0, 0, 0)
    return TurnUsage(usage.input_tokens, usage.output_tokens, usage.cache_tokens)


async def run_errand(
    model: OpenAIModelClient, streamed: bool, session: str
) -> tuple[Errand, list[Any], list[TurnUsage]]:
    errand, turns = Errand(), []
    messages: list[Any] = [SystemMessage(content=system(session)), UserMessage(content=QUESTION)]
    while (name := errand.next_tool) is not None:
        choice = {"type": "function", "function": {"name": name}}
        reply = await ask(model, streamed, messages, session, tool_choice=choice, parallel_tool_calls=False)
        turns.append(usage_of(reply))
        messages.append(reply)
        (call,) = reply.tool_calls or ()
        result = errand.run(call.name, json.loads(call.arguments))
        messages.append(ToolMessage(content=result, tool_call_id=call.id))
    messages.append(await ask(model, streamed, messages, session))
    turns.append(usage_of(messages[-1]))
    return errand, messages, turns


@pytest.mark.parametrize("streamed", [False, True])
def test_an_errand(base_url: str, streamed: bool):
    async def errands() -> None:
        errand, messages, turns = await run_errand(model_at(base_url), streamed, f"会话-{streamed}")
        errand.check_calls()
        assert messages[-1].content and not messages[-1].tool_calls
        if streamed:
            assert turns[-1] == TurnUsage(0, 0, 0)
            last = usage_of(await ask(model_at(base_url), False, messages[:-1], "again"))
            assert last.cached >= last.prompt - 16
        else:
            check_usage(turns)

    asyncio.run(errands())


def test_kv_calls(base_url: str):
    """Evicting the end of a session takes back its KV and leaves the beginning; evicting the session takes back all.

    What has no KV tier to go to is answered too, and forgets nothing.
    """

    async def errands() -> None:
        model, session = model_at(base_url), "会话-kv"
        _, messages, turns = await run_errand(model, False, session)
        window = messages[:-1]
        assert await model.offload_kvc(session_id=session)
        assert await model.prefetch_kvc(session_id=session)
        kept = usage_of(await ask(model, False, window, session))
        assert kept.cached >= turns[-1].prompt - 16
        assert await model.evict_kvc(
            session_id=session, target="messages", messages=window, tools=TOOL_INFOS, msg_start=2, msg_end=len(window)
        )
        cut = usage_of(await ask(model, False, window, session))
        assert turns[0].prompt - 2 * 16 <= cut.cached <= turns[0].prompt + 16
        assert await model.evict_kvc(session_id=session)
        gone = usage_of(await ask(model, False, window, session))
        assert gone.cached < turns[0].prompt - 2 * 16
        assert await model.evict_kvc(session_id="never seen 没有", parent_session_id="neither")

    asyncio.run(errands())
