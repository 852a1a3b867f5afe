"""What of a Responses request reaches the model, and what is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from responses_harness import WEATHER, respond
from server_harness import build

from tenuto.ids import CallId
from tenuto.protocol.chat import AllowedTools, ChatRequest, NamedTool
from tenuto.protocol.messages import Message, ToolCall
from tenuto.testing.scripted_model import Reply

PING = {"type": "function", "name": "ping"}
TOOLS = [WEATHER, PING]


def asked(given: Any = "你好", **fields: Any) -> ChatRequest:
    model, app = build(["好"])
    response = respond(app, given, **fields)
    assert response.status_code == 200, response.text
    return model.seen.requests[0]


def refused(given: Any = "你好", **fields: Any) -> dict[str, Any]:
    model, app = build([])
    response = respond(app, given, **fields)
    assert response.status_code == 400, response.text
    assert model.seen.requests == []
    error: dict[str, Any] = response.json()["error"]
    return error


def call_item(call_id: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "weather", "arguments": arguments, **more}


def output_item(call_id: str, output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def test_input_as_a_string_and_as_items():
    assert asked("你好").messages == (Message(role="user", content="你好"),)
    parts = [{"type": "input_text", "text": "你"}, {"type": "input_text", "text": "好"}]
    for item in (
        {"role": "user", "content": "你好"},
        {"type": "message", "role": "user", "content": parts},
        {"type": "message", "role": "user", "content": parts, "id": "m1", "status": "completed"},
    ):
        assert asked([item]).messages == (Message(role="user", content="你好"),)
    roles = [m.role for m in asked([{"role": r, "content": "x"} for r in ("system", "developer", "user")]).messages]
    assert roles == ["system", "system", "user"]


def test_instructions_stand_first():
    assert asked("你好", instructions="说中文").messages == (
        Message(role="system", content="说中文"),
        Message(role="user", content="你好"),
    )
    for nothing in (None, ""):
        assert len(asked("你好", instructions=nothing).messages) == 1


def test_calls_text_and_reasoning_of_a_turn_are_one_message():
    items = [
        {"role": "user", "content": "天气？"},
        {"type": "reasoning", "id": "r1", "summary": [], "content": [{"type": "reasoning_text", "text": "想"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "我查", "annotations": []}],
        },
        call_item("c1", '{"city": "北京"}'),
        call_item("c2", ""),
        output_item("c2", [{"type": "input_text", "text": "晴"}]),
        output_item("c1", "雨"),
        {"role": "assistant", "content": "北京雨"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "不说了"}]},
        {"type": "reasoning", "id": "r2", "summary": [{"type": "summary_text", "text": "x"}], "encrypted_content": "…"},
        {"role": "user", "content": "谢谢"},
    ]
    first = ToolCall(id=CallId("c1"), name="weather", arguments={"city": "北京"})
    second = ToolCall(id=CallId("c2"), name="weather", arguments={})
    assert asked(items).messages == (
        Message(role="user", content="天气？"),
        Message(role="assistant", content="我查", reasoning="想", tool_calls=(first, second)),
        Message(role="tool", content="晴", tool_call_id=CallId("c2")),
        Message(role="tool", content="雨", tool_call_id=CallId("c1")),
        Message(role="assistant", content="北京雨"),
        Message(role="assistant", content="不说了"),
        Message(role="user", content="谢谢"),
    )


@pytest.mark.parametrize(("text", "path"), [("{", "input[1]"), ("[]", "input[1]"), ("1", "input[1]")])
def test_broken_arguments_are_named(text: str, path: str):
    """B16"""
    error = refused([{"role": "user", "content": "x"}, call_item("c1", text)])
    assert error["param"] == f"{path}.arguments"
    for blank in ("", " ", "null", None):
        assert asked([call_item("c1", blank), output_item("c1", "x")]).messages[0].tool_calls[0].arguments == {}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, "auto"),
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "name": "ping"}, NamedTool("ping")),
        ({"type": "allowed_tools", "mode": "auto", "tools": [PING]}, AllowedTools(("ping",))),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [PING, {"type": "function", "name": "weather"}]},
            AllowedTools(("ping", "weather"), "required"),
        ),
    ],
)
def test_every_tool_choice_reaches_the_model(choice: Any, expected: Any):
    """B13"""
    request = asked(tools=TOOLS, tool_choice=choice, parallel_tool_calls=False)
    assert request.tool_choice == expected
    assert [tool.name for tool in request.tools] == ["weather", "ping"]
    assert request.parallel_tool_calls is False
    assert asked(tools=TOOLS).parallel_tool_calls is True


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "nope"}, "tools": TOOLS}, "tool_choice"),
        ({"tool_choice": {"type": "function"}, "tools": TOOLS}, "tool_choice.name"),
        ({"tool_choice": {"type": "allowed_tools", "tools": []}, "tools": TOOLS}, "tool_choice.tools"),
        ({"tool_choice": {"type": "allowed_tools", "tools": [{"name": "no"}]}, "tools": TOOLS}, "tool_choice"),
        ({"tool_choice": {"type": "file_search"}, "tools": TOOLS}, "tool_choice.type"),
        ({"tool_choice": {"type": "mcp", "server_label": "x"}}, "tool_choice.type"),
        ({"tool_choice": "always"}, "tool_choice"),
        ({"tool_choice": {}}, "tool_choice.type"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [PING, {"type": "mcp", "server_label": "x"}]}, "tools[1].type"),
        ({"tools": [PING, PING]}, "tools[1].name"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "x", "parameters": "no"}]}, "tools[0].parameters"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"truncation": "auto"}, "truncation"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"moderation": {"model": "x"}}, "moderation"),
        ({"include": ["everything"]}, "include"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"top_logprobs": 21, "include": ["message.output_text.logprobs"]}, "top_logprobs"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": 2.5}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
        ({"metadata": {"k" * 65: "x"}}, "metadata"),
        ({"metadata": {"k": "x" * 513}}, "metadata"),
        ({"metadata": {"k": 1}}, "metadata.k"),
        ({"stream_options": {}}, "stream_options"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"reasoning": {"effort": "enormous"}}, "reasoning.effort"),
        ({"stop": ["a"] * 5}, "stop"),
    ],
)
def test_what_is_refused_names_the_field(fields: dict[str, Any], param: str):
    """B13: an unknown choice is never taken for auto."""
    for stream in (False, True):
        error = refused(**({"stream": stream} if "stream_options" not in fields else {}), **fields)
        assert error["param"] == param, error
        assert param in error["message"]


@pytest.mark.parametrize(
    ("given", "param"),
    [
        (..., "input"),
        (None, "input"),
        (5, "input"),
        ([5], "input[0]"),
        ([{}], "input[0].id"),
        ([{"role": "user"}], "input[0].content"),
        ([{"role": "robot", "content": "x"}], "input[0].role"),
        ([{"role": "user", "content": [{"type": "input_text"}]}], "input[0].content[0].text"),
        ([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}], "input[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}], "input[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "input_audio"}]}], "input[0].content[0].type"),
        ([{"role": "user", "content": "x"}, {"type": "web_search_call", "id": "w"}], "input[1].type"),
        ([{"type": "computer_call_output", "call_id": "w"}], "input[0].type"),
        ([{"type": "function_call", "name": "x"}], "input[0].call_id"),
        ([{"type": "function_call_output", "call_id": "x"}], "input[0].output"),
        ([output_item("c1", [{"type": "input_image"}])], "input[0].output[0].type"),
        ([{"type": "reasoning", "content": [{"type": "thought"}]}], "input[0].content[0].type"),
    ],
)
def test_input_that_is_refused_is_named_by_its_place(given: Any, param: str):
    error = refused(given)
    assert error["param"] == param, error


def test_what_is_not_served_is_said_by_name():
    for given, name in (
        ([{"role": "user", "content": [{"type": "input_image"}]}], "input_image"),
        ([{"type": "mcp_call"}], "mcp_call"),
    ):
        assert name in refused(given)["message"]
    assert "web_search" in refused(tools=[{"type": "web_search"}])["message"]


def test_the_form_of_the_text_reaches_the_model():
    schema = {"type": "object", "properties": {"城市": {"type": "string"}}}
    assert asked().response is None
    assert asked(text={"format": {"type": "text"}, "verbosity": "low"}).response is None
    as_object = asked(text={"format": {"type": "json_object"}}).response
    assert as_object is not None and json.loads(as_object.source) == {"type": "object"}
    held = asked(text={"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}}).response
    assert held is not None and json.loads(held.source) == schema and held.kind == "json_schema"
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [PING]}
    assert asked(text={"format": {"type": "json_object"}}, tools=TOOLS, tool_choice=choice).response == as_object


def test_sampling_and_the_rest_reach_the_model():
    request = asked(
        temperature=0.5,
        top_p=0.9,
        top_k=4,
        seed=7,
        stop=["停"],
        max_output_tokens=9,
        include=["message.output_text.logprobs", "reasoning.encrypted_content"],
        top_logprobs=2,
        reasoning={"effort": "low", "summary": "auto"},
        logit_bias={"5": -100},
    )
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.5, 0.9, 4, 7)
    assert sampling.logit_bias == ((5, -100.0),)
    assert (request.max_tokens, request.stop, request.logprobs) == (9, ("停",), 2)
    assert (request.thinking, request.template_options) == (True, (("reasoning_effort", "low"),))
    assert asked(reasoning={"effort": "none"}).thinking is False
    assert asked(reasoning={}).thinking is None
    assert asked().sampling.temperature == 1
    assert (asked().logprobs, asked(include=["message.output_text.logprobs"]).logprobs) == (None, 0)


def test_what_asks_for_nothing_is_accepted():
    asked(
        background=False,
        conversation=None,
        context_management=[],
        truncation="disabled",
        service_tier="auto",
        max_tool_calls=3,
        user="u",
        prompt_cache_key="k",
        unknown_field={"x": 1},
    )
    model, app = build(["好", "好"])
    first = respond(app).json()
    assert respond(app, ..., previous_response_id=first["id"]).status_code == 200
    assert [m.role for m in model.seen.requests[1].messages] == ["user", "assistant"]


def test_a_body_of_many_broken_items_is_refused_at_once():
    assert refused([{"role": "谁", "content": "x"}] * 4000)["param"] == "input[0].role"
    assert refused(tools=[{"type": "function"}] * 500)["param"] == "tools[0].name"
    assert refused([{"role": "user", "content": "x"}] * 20_000)["param"] == "input"
    assert refused(tools=[PING] * 20_000)["param"] == "tools"


def test_a_tool_without_parameters_takes_none():
    (tool,) = asked(tools=[PING]).tools
    assert (tool.parameters, tool.strict, tool.description) == ({"type": "object", "properties": {}}, False, "")
    (tool,) = asked(tools=[{**WEATHER, "strict": True}]).tools
    assert tool.strict and tool.parameters == WEATHER["parameters"]


def test_a_model_that_makes_calls_ends_the_turn():
    _, app = build([Reply(calls=(("ping", {}),))])
    assert respond(app, tools=TOOLS).json()["status"] == "completed"
