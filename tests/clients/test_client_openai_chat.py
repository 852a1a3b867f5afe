"""The official client on /v1/chat/completions: the loop is written out, as its users write it."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from errand import QUESTION, TOOLS, Errand, TurnUsage, check_usage, system
from openai.types.chat import ChatCompletion


def ask(client: openai.OpenAI, streamed: bool, **fields: Any) -> ChatCompletion:
    fields = {"model": "default", "temperature": 0, "seed": 1, "max_tokens": 48, **fields}
    if not streamed:
        return client.chat.completions.create(**fields)
    with client.chat.completions.stream(**fields, stream_options={"include_usage": True}) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert kinds[0] == "chunk"
    if final.choices[0].message.tool_calls:
        assert kinds.index("tool_calls.function.arguments.delta") < kinds.index("tool_calls.function.arguments.done")
    else:
        assert "content.delta" in kinds
    return final


def usage_of(completion: ChatCompletion) -> TurnUsage:
    usage = completion.usage
    assert usage is not None and usage.prompt_tokens_details is not None
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    cached = usage.prompt_tokens_details.cached_tokens
    assert cached is not None
    return TurnUsage(usage.prompt_tokens, usage.completion_tokens, cached)


@pytest.mark.parametrize("streamed", [False, True])
def test_an_errand(base_url: str, streamed: bool):
    errand, turns = Errand(), []
    messages: list[Any] = [
        {"role": "system", "content": system(f"openai {streamed}")},
        {"role": "user", "content": QUESTION},
    ]
    with openai.OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=120) as client:
        while (name := errand.next_tool) is not None:
            choice = {"type": "function", "function": {"name": name}}
            reply = ask(client, streamed, messages=messages, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False)
            turns.append(usage_of(reply))
            assert reply.choices[0].finish_reason == "tool_calls"
            message = reply.choices[0].message
            messages.append(message.model_dump())
            (call,) = message.tool_calls or ()
            result = errand.run(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        answer = ask(client, streamed, messages=messages, tools=TOOLS)
        turns.append(usage_of(answer))
    errand.check_calls()
    assert answer.choices[0].message.content
    assert answer.choices[0].message.tool_calls is None
    check_usage(turns)


def test_the_model_calls_on_its_own_accord_or_answers(base_url: str):
    """`auto` and calls in parallel: whatever this model decides, the client can read it and go on."""
    errand = Errand()
    messages: list[Any] = [{"role": "system", "content": system("auto")}, {"role": "user", "content": QUESTION}]
    with openai.OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=120) as client:
        reply = ask(client, False, messages=messages, tools=TOOLS, max_tokens=96)
        message = reply.choices[0].message
        messages.append(message.model_dump())
        for call in message.tool_calls or ():
            result = errand.run(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        assert message.tool_calls or message.content
        if not message.tool_calls:
            messages.append({"role": "user", "content": "谢谢"})
        again = ask(client, False, messages=messages, tools=TOOLS, tool_choice="none", max_tokens=16)
    assert usage_of(again).cached > 0
