"""The official client on /v1/responses: the loop by `previous_response_id`, and with the whole history in the input."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from errand import QUESTION, TOOLS, Errand, TurnUsage, check_usage, system
from openai.types.responses import Response

RESPONSE_TOOLS = [{"type": "function", "strict": False, **tool["function"]} for tool in TOOLS]


def ask(client: openai.OpenAI, streamed: bool, **fields: Any) -> Response:
    fields = {"model": "default", "temperature": 0, "max_output_tokens": 96, "tools": RESPONSE_TOOLS, **fields}
    if not streamed:
        return client.responses.create(**fields)
    with client.responses.stream(**fields) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    called = any(item.type == "function_call" for item in final.output)
    assert ("response.function_call_arguments.delta" if called else "response.output_text.delta") in kinds
    return final


def usage_of(response: Response) -> TurnUsage:
    usage = response.usage
    assert usage is not None and usage.total_tokens == usage.input_tokens + usage.output_tokens
    return TurnUsage(usage.input_tokens, usage.output_tokens, usage.input_tokens_details.cached_tokens)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_an_errand(base_url: str, streamed: bool, stored: bool):
    errand, turns, previous = Errand(), [], None
    instructions = system(f"responses {streamed} {stored}")
    history: list[Any] = [{"role": "user", "content": QUESTION}]
    new = history
    with openai.OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=120) as client:
        while True:
            name = errand.next_tool
            fields: dict[str, Any] = {"tool_choice": {"type": "function", "name": name} if name else "auto"}
            fields |= {"previous_response_id": previous, "input": new} if stored and previous else {"input": history}
            reply = ask(client, streamed, instructions=instructions, store=stored, parallel_tool_calls=False, **fields)
            turns.append(usage_of(reply))
            assert reply.status == "completed"
            if name is None:
                break
            (call,) = [item for item in reply.output if item.type == "function_call"]
            result = errand.run(call.name, json.loads(call.arguments))
            new = [{"type": "function_call_output", "call_id": call.call_id, "output": result}]
            history = [*history, *[item.model_dump(exclude_none=True) for item in reply.output], *new]
            previous = reply.id
    errand.check_calls()
    assert reply.output_text
    check_usage(turns)
