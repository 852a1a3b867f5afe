"""The official client, unmodified, against a listening server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import openai
import pytest
from server_harness import WEATHER, Live, live, until

from tenuto.errors import QueueFull
from tenuto.protocol.chat import ChatRequest
from tenuto.testing.scripted_model import Reply

ASK = {"role": "user", "content": "北京和上海天气怎么样？"}


def reply(request: ChatRequest) -> Reply:
    last = request.messages[-1]
    if last.content == "满":
        return Reply(error=QueueFull("1024 requests are waiting"))
    if last.content == "慢":
        return Reply("慢" * 3000, piece_delay_s=0.01)
    if request.tools and last.role == "user":
        return Reply("我查一下", calls=(("weather", {"city": "北京"}), ("weather", {"city": "上海"})))
    if last.role == "tool":
        results = [message.content for message in request.messages if message.role == "tool"]
        return Reply("；".join(results))
    return Reply("你好，世界")


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with live(reply) as listening:
        yield listening


@pytest.fixture
def client(server: Live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", timeout=20, max_retries=0) as made:
        yield made


def test_models(client: openai.OpenAI):
    assert [model.id for model in client.models.list()] == ["smol", "org/smol", "default"]
    assert client.models.retrieve("default").owned_by == "tenuto"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-99")


def test_plain(client: openai.OpenAI):
    answer = client.chat.completions.create(model="default", messages=[ASK], temperature=0)
    assert answer.choices[0].message.content == "你好，世界"
    assert answer.choices[0].message.tool_calls is None
    assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
    assert answer._request_id is not None and answer._request_id.startswith("req-")


def test_choices_and_log_probabilities(client: openai.OpenAI):
    fields = {"model": "default", "messages": [ASK], "n": 2, "logprobs": True, "top_logprobs": 1}
    fields |= {"presence_penalty": 0.5, "frequency_penalty": -0.5, "logit_bias": {"50256": -100}}
    answer = client.chat.completions.create(**fields, extra_body={"min_p": 0.1, "repetition_penalty": 1.1})
    assert [choice.index for choice in answer.choices] == [0, 1]
    for choice in answer.choices:
        assert choice.logprobs is not None and choice.logprobs.content is not None
        assert "".join(one.token for one in choice.logprobs.content) == choice.message.content
        assert choice.logprobs.content[0].top_logprobs[0].bytes
    texts = {0: "", 1: ""}
    with client.chat.completions.stream(**fields) as stream:
        for event in stream:
            if event.type == "chunk":
                for choice in event.chunk.choices:
                    texts[choice.index] += choice.delta.content or ""
        final = stream.get_final_completion()
    assert [texts[choice.index] for choice in final.choices] == [choice.message.content for choice in answer.choices]
    assert final.choices[1].logprobs == answer.choices[1].logprobs
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{**fields, "n": 99})
    assert caught.value.param == "n"


def test_streamed(client: openai.OpenAI):
    chunks = list(
        client.chat.completions.create(
            model="smol", messages=[ASK], stream=True, stream_options={"include_usage": True}
        )
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "你好，世界"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 2


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_loop(client: openai.OpenAI, server: Live, streamed: bool):
    messages = [ASK]
    if streamed:
        with client.chat.completions.stream(model="smol", messages=messages, tools=[WEATHER]) as stream:
            completion = stream.get_final_completion()
    else:
        completion = client.chat.completions.create(model="smol", messages=messages, tools=[WEATHER])
    choice = completion.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "我查一下")
    calls = choice.message.tool_calls or []
    cities = [json.loads(call.function.arguments)["city"] for call in calls]
    assert cities == ["北京", "上海"]
    # The message goes back exactly as the client dumps it, nulls and extras included.
    history = [*messages, choice.message.model_dump()]
    for call, city in zip(calls, cities, strict=True):
        history.append({"role": "tool", "tool_call_id": call.id, "content": f"{city}晴"})
    answer = client.chat.completions.create(model="smol", messages=history, tools=[WEATHER])
    assert answer.choices[0].message.content == "北京晴；上海晴"
    returned = server.model.seen.requests[-1].messages
    assert returned[1].content == "我查一下"
    assert [(call.id, call.name, call.arguments["city"]) for call in returned[1].tool_calls] == [
        (call.id, "weather", city) for call, city in zip(calls, cities, strict=True)
    ]
    assert [message.name for message in returned[2:]] == ["weather", "weather"]


def test_errors_are_the_clients_own_kinds(client: openai.OpenAI):
    with pytest.raises(openai.BadRequestError, match="temperature") as bad:
        client.chat.completions.create(model="smol", messages=[ASK], temperature=9)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="gpt-99", messages=[ASK])
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.RateLimitError) as full:
        client.chat.completions.create(model="smol", messages=[{"role": "user", "content": "满"}], stream=True)
    assert full.value.response.headers["retry-after"] == "1"


def test_a_client_that_closes_its_stream_cancels(client: openai.OpenAI, server: Live):
    with client.chat.completions.create(
        model="smol", messages=[{"role": "user", "content": "慢"}], stream=True
    ) as stream:
        next(iter(stream))
        assert server.model.seen.cancelled == []
    until(lambda: [request.messages[0].content for request in server.model.seen.cancelled] == ["慢"])
