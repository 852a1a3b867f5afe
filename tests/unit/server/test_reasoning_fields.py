"""Reasoning over HTTP: asked for, answered, streamed, sent back."""

from __future__ import annotations

from typing import Any

import pytest
from server_harness import WEATHER, build, chat, events

from tenuto.testing.scripted_model import Reply

THOUGHT = Reply("晴。", reasoning="先想一想：<tool_call> 不用。")
ASK = {"role": "user", "content": "北京天气？"}


def asked(**fields: Any) -> tuple[bool | None, dict[str, Any]]:
    """What the model is asked about thinking."""
    model, app = build(["好"])
    response = chat(app, **fields)
    assert response.status_code == 200, response.text
    request = model.seen.requests[0]
    return request.thinking, dict(request.template_options)


def refusal(**fields: Any) -> dict[str, Any]:
    _, app = build(["好"])
    response = chat(app, **fields)
    assert response.status_code == 400
    error: dict[str, Any] = response.json()["error"]
    return error


def test_reasoning_comes_in_a_field_of_its_own_plain_and_streamed() -> None:
    _, app = build([THOUGHT])
    plain = chat(app).json()
    message = plain["choices"][0]["message"]
    assert message["reasoning_content"] == THOUGHT.reasoning and message["content"] == "晴。"
    assert plain["usage"]["completion_tokens_details"] == {"reasoning_tokens": 7}
    assert plain["usage"]["completion_tokens"] == 8

    _, app = build([THOUGHT])
    *chunks, _ = events(chat(app, stream=True, stream_options={"include_usage": True}))
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == THOUGHT.reasoning
    assert "".join(delta.get("content", "") for delta in deltas) == "晴。"
    assert not any("reasoning_content" in delta and "content" in delta for delta in deltas)
    assert chunks[-1]["usage"] == plain["usage"]


def test_a_model_that_does_not_think_sends_no_such_field() -> None:
    _, app = build(["晴。"])
    body = chat(app).json()
    assert "reasoning_content" not in body["choices"][0]["message"]
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}


def test_a_turn_of_reasoning_and_calls_has_no_content() -> None:
    _, app = build([Reply(reasoning="查一下", calls=(("weather", {"city": "北京"}),))])
    message = chat(app, tools=[WEATHER]).json()["choices"][0]["message"]
    assert message["content"] is None and message["reasoning_content"] == "查一下" and len(message["tool_calls"]) == 1


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"reasoning_content": "想"}, "想"),
        ({"reasoning": "想"}, "想"),
        ({"reasoning": "a", "reasoning_content": "想"}, "想"),
        ({"reasoning_content": None}, ""),
        ({}, ""),
    ],
)
def test_it_is_taken_back_in_history(fields: dict[str, Any], expected: str) -> None:
    model, app = build(["好"])
    assert chat(app, ASK, {"role": "assistant", "content": "晴", **fields}, ASK).status_code == 200
    assert [message.reasoning for message in model.seen.requests[0].messages] == ["", expected, ""]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (None, {})),
        ({"reasoning_effort": "none"}, (False, {"reasoning_effort": "none"})),
        ({"reasoning_effort": "high"}, (True, {"reasoning_effort": "high"})),
        ({"enable_thinking": False}, (False, {})),
        ({"thinking": {"type": "enabled"}}, (True, {})),
        ({"thinking": {"type": "disabled"}}, (False, {})),
        ({"chat_template_kwargs": {"enable_thinking": False}}, (False, {})),
        ({"chat_template_kwargs": {"thinking": True, "风格": "短", "n": 3}}, (True, {"风格": "短", "n": 3})),
        ({"chat_template_kwargs": {"thinking": "low"}}, (None, {"thinking": "low"})),
        ({"chat_template_kwargs": {"x": None}}, (None, {})),
        (
            {"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}},
            (False, {"reasoning_effort": "high"}),
        ),
    ],
)
def test_thinking_is_turned_on_and_off_in_every_dialect(fields: dict[str, Any], expected: Any) -> None:
    assert asked(**fields) == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"enable_thinking": 1}, "enable_thinking"),
        ({"thinking": {"type": "on"}}, "thinking.type"),
        ({"chat_template_kwargs": {"messages": "x"}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": {"tools": "x"}}, "chat_template_kwargs.tools"),
        ({"chat_template_kwargs": {"a b": 1}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {f"v{n}": n for n in range(31)}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"x": "y" * 10_001}}, "chat_template_kwargs.x"),
    ],
)
def test_what_is_no_such_thing_is_named(fields: dict[str, Any], param: str) -> None:
    assert refusal(**fields)["param"] == param


def test_template_variables_are_plain_values() -> None:
    for value in ({"y": 1}, [1], []):
        error = refusal(chat_template_kwargs={"风格": value})
        assert error["param"] == "chat_template_kwargs.风格"
        assert error["message"].endswith("valid boolean, integer, number or string")
    for wrong in ([1], "x", 3):
        error = refusal(chat_template_kwargs=wrong)
        assert (error["param"], error["message"][-9:]) == ("chat_template_kwargs", "an object")


def test_reuse_is_told_in_the_usage() -> None:
    _, app = build(["好"])
    usage = chat(app).json()["usage"]
    reuse = usage["tenuto"]
    assert reuse["held_tokens"] + reuse["shared_tokens"] + reuse["computed_tokens"] == usage["prompt_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == reuse["held_tokens"] + reuse["shared_tokens"]
