"""`tenuto serve` as users run it: a process of its own, the real model, the official client, a signal to end it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import openai
import pytest

from tenuto.protocol.messages import COPIED

pytestmark = pytest.mark.model

START_DEADLINE_S = 120.0
STOP_DEADLINE_S = 60.0
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", COPIED: True, "maxLength": 4}},
            "required": ["city"],
        },
    },
}


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "tenuto", "serve", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8")
    watchdog = threading.Timer(START_DEADLINE_S, process.kill)
    watchdog.start()
    assert process.stderr is not None
    url = next((m.group(0) for m in (re.search(r"http://\S+", line) for line in process.stderr) if m), None)
    watchdog.cancel()
    assert url, "the server ended before it listened"
    threading.Thread(target=process.stderr.read, daemon=True).start()
    yield process, url
    if process.poll() is None:
        process.kill()
        process.wait(STOP_DEADLINE_S)


@pytest.fixture
def client(server: tuple[subprocess.Popen[str], str]) -> openai.OpenAI:
    return openai.OpenAI(base_url=server[1], api_key="none", max_retries=0, timeout=120)


def test_the_model_answers_to_default(client: openai.OpenAI) -> None:
    assert "default" in [model.id for model in client.models.list()]


def test_a_later_turn_computes_only_what_is_new(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "What is the capital of France? 用一句话回答。"}]
    first = client.chat.completions.create(model="default", messages=messages, temperature=0, max_tokens=24)
    assert first.usage is not None and first.choices[0].message.content
    messages += [first.choices[0].message.model_dump(), {"role": "user", "content": "And of Italy?"}]
    stream = client.chat.completions.create(
        model="default",
        messages=messages,
        temperature=0,
        max_tokens=12,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    chunks = list(stream)
    usage = chunks[-1].usage
    assert usage is not None and usage.prompt_tokens_details is not None
    assert usage.completion_tokens == 12
    # Whole blocks of the first turn are found again, its generated ids among them.
    held = first.usage.prompt_tokens + first.usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens >= held - 2 * 16
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["length"]


def test_choices_share_their_prompt_and_replay_by_seed(client: openai.OpenAI) -> None:
    fields = {
        "model": "default",
        "messages": [{"role": "user", "content": "给猫起一个名字。A name for a cat?"}],
        "n": 3,
        "max_tokens": 8,
        "temperature": 1.2,
        "top_p": 0.95,
        "seed": 5,
        "frequency_penalty": 0.3,
        "logprobs": True,
        "top_logprobs": 2,
        "extra_body": {"ignore_eos": True, "min_p": 0.02, "repetition_penalty": 1.1},
    }
    first, again = (client.chat.completions.create(**fields) for _ in range(2))
    texts = [choice.message.content for choice in first.choices]
    assert texts == [choice.message.content for choice in again.choices] and len(set(texts)) == 3
    alone = client.chat.completions.create(**{**fields, "n": 1})
    assert alone.choices[0].message.content == texts[0]
    assert first.usage is not None and alone.usage is not None
    assert first.usage.prompt_tokens == alone.usage.prompt_tokens and first.usage.completion_tokens == 24
    for choice in first.choices:
        assert choice.logprobs is not None and choice.logprobs.content is not None
        told = b"".join(bytes(one.bytes or []) for one in choice.logprobs.content)
        assert told.decode() == choice.message.content
        assert all(one.top_logprobs[0].logprob >= max(one.logprob, -9999) for one in choice.logprobs.content)
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{**fields, "logit_bias": {"999999": 1}})
    assert caught.value.param == "logit_bias"


def test_a_forced_call_has_the_declared_arguments(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(
        model="default",
        messages=[{"role": "user", "content": "北京天气怎么样？"}],
        tools=[WEATHER],
        tool_choice={"type": "function", "function": {"name": "get_weather"}},
        parallel_tool_calls=False,
        temperature=0,
        max_tokens=64,
    )
    assert reply.choices[0].finish_reason == "tool_calls"
    (call,) = reply.choices[0].message.tool_calls or []
    assert call.function.name == "get_weather"
    city = json.loads(call.function.arguments)["city"]
    assert city and city in "北京天气怎么样？"


def test_sigterm_ends_it_in_order(server: tuple[subprocess.Popen[str], str]) -> None:
    process, _ = server
    process.send_signal(signal.SIGTERM)
    assert process.wait(STOP_DEADLINE_S) == 0
