"""n and log-probabilities on the wire: whole and streamed answers say the same, in OpenAI's shape."""

from __future__ import annotations

import math
from typing import Any

import pytest
from server_harness import app_over, build, chat, events

from tenuto.errors import StepFailed
from tenuto.protocol.chat import (
    ChatRequest,
    ChatUsage,
    ReplyFinished,
    ScoredToken,
    TextDelta,
    TokenScore,
    TokensScored,
)
from tenuto.protocol.messages import Message
from tenuto.server.replies import ChatCompletion
from tenuto.testing.scripted_model import Reply, ScriptedModel, call

REPLIES = ["从前有座山。", call("weather", city="北京"), "好"]
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}},
]


def whole(**fields: Any) -> dict[str, Any]:
    response = chat(build(REPLIES)[1], tools=TOOLS, **fields)
    assert response.status_code == 200, response.text
    ChatCompletion.model_validate(response.json())
    return response.json()


def streamed(**fields: Any) -> list[dict[str, Any]]:
    chunks = events(chat(build(REPLIES)[1], tools=TOOLS, stream=True, **fields))
    assert chunks.pop() == "[DONE]"
    return chunks


def of_choice(chunks: list[dict[str, Any]], index: int) -> list[dict[str, Any]]:
    return [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]


def test_whole_answers_hold_every_choice():
    answer = whole(n=3)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert [choice["message"]["content"] for choice in answer["choices"]] == ["从前有座山。", None, "好"]
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["stop", "tool_calls", "stop"]
    assert answer["choices"][1]["message"]["tool_calls"][0]["function"]["name"] == "weather"
    alone = whole()["usage"]
    assert answer["usage"]["prompt_tokens"] == alone["prompt_tokens"], "the prompt is counted once"
    assert answer["usage"]["completion_tokens"] > alone["completion_tokens"]
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"]


def test_streamed_choices_each_open_and_finish_once_and_the_usage_comes_once_at_the_end():
    """B35"""
    chunks = streamed(n=3, stream_options={"include_usage": True})
    answer = whole(n=3)
    for index in range(3):
        mine = of_choice(chunks, index)
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        assert [one["finish_reason"] for one in mine[:-1]] == [None] * (len(mine) - 1)
        assert mine[-1]["finish_reason"] == answer["choices"][index]["finish_reason"] and mine[-1]["delta"] == {}
        content = "".join(one["delta"].get("content") or "" for one in mine)
        assert content == (answer["choices"][index]["message"]["content"] or "")
        assert all("role" not in one["delta"] for one in mine[1:])
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"] == answer["usage"]
    assert all(chunk["usage"] is None and len(chunk["choices"]) == 1 for chunk in chunks[:-1])


def test_an_error_in_one_choice_is_one_error_event():
    """B36"""
    script = ["一二三", Reply("四五", error=StepFailed("the step failed"))]
    chunks = events(chat(build(script)[1], stream=True, n=2))
    assert chunks[-1] == "[DONE]" and "error" in chunks[-2]
    assert sum("error" in chunk for chunk in chunks[:-1]) == 1
    response = chat(build(script)[1], n=2)
    assert response.status_code == 500


@pytest.mark.parametrize("num_top", [0, 2])
def test_log_probabilities_have_openais_shape(num_top: int):
    logprobs = whole(logprobs=True, top_logprobs=num_top)["choices"][0]["logprobs"]
    assert logprobs["refusal"] is None and len(logprobs["content"]) == 2
    for one, piece in zip(logprobs["content"], ("从前有", "座山。"), strict=True):
        assert one["token"] == piece and bytes(one["bytes"]).decode() == piece
        assert one["logprob"] == pytest.approx(math.log(0.5))
        assert [set(other) for other in one["top_logprobs"]] == [{"token", "logprob", "bytes"}] * num_top
        assert "forced" not in one
    assert whole()["choices"][0]["logprobs"] is None


def test_streamed_log_probabilities_come_with_their_text_and_are_the_same():
    wanted = whole(logprobs=True, top_logprobs=1, n=3)
    chunks = streamed(logprobs=True, top_logprobs=1, n=3)
    for index in range(3):
        content: list[dict[str, Any]] = []
        for one in of_choice(chunks, index):
            if one["logprobs"] is not None:
                content += one["logprobs"]["content"]
                told = "".join(token["token"] for token in one["logprobs"]["content"])
                assert told == one["delta"]["content"]
        assert content == ((wanted["choices"][index]["logprobs"] or {}).get("content") or [])
    assert all(one["logprobs"] is None for one in of_choice(streamed(), 0))


class Odd(ScriptedModel):
    """Says one token that is half a character, impossible and forced."""

    async def stream(self, request: ChatRequest):
        token = ScoredToken(id=1, data="山".encode()[:2], logprob=-math.inf)
        yield TokensScored(tokens=(TokenScore(token=token, top=(token,), forced=True),))
        yield TextDelta(text="山")
        message = Message(role="assistant", content="山")
        yield ReplyFinished(reason="stop", message=message, usage=ChatUsage())


@pytest.mark.parametrize("stream", [False, True])
def test_odd_tokens_are_valid_json(stream: bool):
    response = chat(app_over(Odd([])), logprobs=True, top_logprobs=1, stream=stream)
    choices = [c for e in events(response)[:-1] for c in e["choices"]] if stream else response.json()["choices"]
    (logprobs,) = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    (one,) = logprobs["content"]
    assert one["token"] == "\ufffd" and bytes(one["bytes"]) == "山".encode()[:2]
    assert one["logprob"] == -9999.0 and one["forced"] is True
