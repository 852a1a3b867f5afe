"""The official client, unmodified: responses, completions and embeddings against a listening server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import openai
import pytest
from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall
from pydantic import BaseModel
from responses_harness import WEATHER
from server_harness import Live, live, until

from tenuto.protocol.chat import ChatRequest
from tenuto.testing.scripted_model import Reply


class City(BaseModel):
    name: str
    temperature: int


def reply(request: ChatRequest) -> Reply:
    last = request.messages[-1]
    if last.content == "慢":
        return Reply("慢" * 3000, piece_delay_s=0.01)
    if request.response is not None:
        return Reply('{"name": "北京", "temperature": 20}')
    if request.tools and last.role == "user":
        return Reply("我查", reasoning="先想", calls=(("weather", {"city": "北京"}), ("weather", {"city": "上海"})))
    if last.role == "tool":
        return Reply("；".join(message.content for message in request.messages if message.role == "tool"))
    return Reply("你好，世界")


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with live(reply) as listening:
        yield listening


@pytest.fixture
def client(server: Live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", timeout=20, max_retries=0) as made:
        yield made


TOOL = FunctionToolParam(**{**WEATHER, "strict": True})  # type: ignore[typeddict-item]


def test_a_response(client: openai.OpenAI):
    made = client.responses.create(model="default", input="你好", instructions="说中文", metadata={"a": "b"})
    assert made.output_text == "你好，世界" and made.status == "completed"
    assert made.usage is not None and made.usage.input_tokens_details.cached_tokens == 0
    assert client.responses.retrieve(made.id) == made
    (item,) = client.responses.input_items.list(made.id).data
    assert item.type == "message" and item.role == "user"
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.create(model="default", input="x", background=True)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("chained", [False, True])
def test_a_tool_loop(client: openai.OpenAI, server: Live, streamed: bool, chained: bool):
    """B38: by the response's id, or by sending its items back as the client holds them."""
    if streamed:
        with client.responses.stream(model="smol", input="北京和上海？", tools=[TOOL]) as stream:
            kinds = [event.type for event in stream]
            first = stream.get_final_response()
        assert kinds.count("response.function_call_arguments.done") == 2
        assert "response.reasoning_text.delta" in kinds
    else:
        first = client.responses.create(model="smol", input="北京和上海？", tools=[TOOL])
    calls = [item for item in first.output if isinstance(item, ResponseFunctionToolCall)]
    assert [json.loads(call.arguments)["city"] for call in calls] == ["北京", "上海"]
    results = [
        {"type": "function_call_output", "call_id": call.call_id, "output": json.loads(call.arguments)["city"] + "晴"}
        for call in calls
    ]
    if chained:
        second = client.responses.create(
            model="smol",
            input=results,
            tools=[TOOL],
            previous_response_id=first.id,  # type: ignore[arg-type]
        )
    else:
        history = [{"role": "user", "content": "北京和上海？"}, *(item.model_dump() for item in first.output), *results]
        second = client.responses.create(model="smol", input=history, tools=[TOOL])  # type: ignore[arg-type]
    assert second.output_text == "北京晴；上海晴"
    said = server.model.seen.requests[-1].messages[1]
    assert (said.content, said.reasoning) == ("我查", "先想")
    assert [call.id for call in said.tool_calls] == [call.call_id for call in calls]


def test_a_parsed_response(client: openai.OpenAI):
    parsed = client.responses.parse(model="default", input="北京的天气", text_format=City)
    assert parsed.output_parsed == City(name="北京", temperature=20)
    with client.responses.stream(model="default", input="北京的天气", text_format=City) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_parsed == City(name="北京", temperature=20)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_leaves_cancels_its_response(client: openai.OpenAI, server: Live, streamed: bool):
    """B37: nothing of it is kept either."""
    before = len(server.model.seen.cancelled)
    if streamed:
        with client.responses.create(model="smol", input="慢", stream=True) as stream:
            next(iter(stream))
    else:
        with pytest.raises(openai.APITimeoutError):
            client.with_options(timeout=0.3).responses.create(model="smol", input="慢")
    until(lambda: len(server.model.seen.cancelled) == before + 1)


def test_log_probabilities(client: openai.OpenAI):
    made = client.responses.create(model="smol", input="你好", include=["message.output_text.logprobs"], top_logprobs=1)
    (message,) = made.output
    assert message.type == "message"
    (part,) = message.content
    assert part.type == "output_text" and part.logprobs is not None
    assert "".join(one.token for one in part.logprobs) == part.text
    assert part.logprobs[0].top_logprobs[0].bytes
