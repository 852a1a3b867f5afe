"""Every field of a chat request reaches the model, or is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError
from server_harness import CHAT, WEATHER, build, call, chat

from tenuto.errors import InvalidRequest
from tenuto.ids import TokenId
from tenuto.protocol.chat import AllowedTools, ChatRequest, NamedTool
from tenuto.protocol.engine import SamplingParams
from tenuto.protocol.grammar import GrammarSpec
from tenuto.protocol.messages import Message, ToolCall
from tenuto.server.wire import ChatCompletionBody
from tenuto.server.wire_shape import parse_body

ASK = {"role": "user", "content": "奥斯陆天气？"}


def seen(*messages: dict[str, Any], **fields: Any) -> ChatRequest:
    model, app = build(["好"])
    response = chat(app, *messages, **fields)
    assert response.status_code == 200, response.text
    (request,) = model.seen.requests
    return request


def refused(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    model, app = build([])
    response = chat(app, *messages, **fields)
    assert response.status_code == 400, response.text
    assert model.seen.requests == []
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    return error


def with_call(arguments: Any, **assistant: Any) -> list[dict[str, Any]]:
    made = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    return [
        ASK,
        {"role": "assistant", "tool_calls": [made], **assistant},
        {"role": "tool", "tool_call_id": "c1", "content": "晴"},
    ]


def test_defaults_are_openais():
    request = seen()
    assert (request.sampling.temperature, request.sampling.top_p, request.sampling.top_k) == (1.0, 1.0, 0)
    assert (request.tool_choice, request.parallel_tool_calls, request.max_tokens) == ("auto", True, None)
    assert (request.stop, request.ignore_eos, request.session) == ((), False, None)


def test_null_is_the_same_as_missing():
    names = [
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
    ]
    names += ["top_k", "seed", "stop", "stream", "stream_options", "ignore_eos", "user", "n", "logprobs", "logit_bias"]
    assert seen(**dict.fromkeys(names)) == seen()


def test_sampling_and_limits():
    request = seen(temperature=0.5, top_p=0.9, top_k=40, seed=7, max_completion_tokens=5, max_tokens=9, ignore_eos=True)
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.5, 0.9, 40, 7)
    assert (request.max_tokens, request.ignore_eos) == (5, True)
    assert seen(max_tokens=9).max_tokens == 9
    assert seen(temperature=0).sampling.temperature == 0.0
    assert seen(top_k=-1).sampling.top_k == 0
    assert 0 <= seen(seed=-3).sampling.seed < 2**63


def test_a_missing_seed_is_fresh_each_time_and_replayable():
    model, app = build(["一", "二"])
    chat(app)
    chat(app)
    first, second = (request.sampling.seed for request in model.seen.requests)
    assert first != second
    model, app = build(["一"])
    chat(app)
    assert model.seen.requests[0].sampling.seed == first  # the same id source, the same seed


def test_stop_strings():
    assert seen(stop="结束").stop == ("结束",)
    assert seen(stop=["a", "b", "c", "d"]).stop == ("a", "b", "c", "d")
    assert refused(stop=["a", "b", "c", "d", "e"])["param"] == "stop"
    assert refused(stop="")["param"] == "stop"
    assert refused(stop=["a", 5])["param"] == "stop[1]"
    assert refused(stop=5)["param"] == "stop"


def test_roles_and_text_parts():
    parts = [{"type": "text", "text": "你好，"}, {"type": "text", "text": "世界"}]
    request = seen(
        {"role": "developer", "content": "规则"},
        {"role": "user", "content": parts, "name": "小明"},
        {"role": "assistant", "content": None},
        {"role": "system", "content": "更多"},
    )
    assert request.messages == (
        Message(role="system", content="规则"),
        Message(role="user", content="你好，世界"),
        Message(role="assistant"),
        Message(role="system", content="更多"),
    )


def test_arguments_in_history_are_decoded_once():
    """B14: the conversation carries an object, never an escaped string; the result learns its tool's name."""
    request = seen(*with_call('{"city": "奥斯陆", "days": [1, 2]}', content="我看看"))
    assert request.messages[1:] == (
        Message(
            role="assistant",
            content="我看看",
            tool_calls=(ToolCall(id="c1", name="weather", arguments={"city": "奥斯陆", "days": [1, 2]}),),
        ),
        Message(role="tool", content="晴", tool_call_id="c1", name="weather"),
    )


@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": ""}, {"content": []}])
def test_a_call_turn_without_text_is_the_same_however_it_is_spelled(content: dict[str, Any]):
    """B15"""
    assert seen(*with_call("{}", **content)).messages == seen(*with_call("{}")).messages
    assert seen(*with_call("{}", **content)).messages[1].content == ""


@pytest.mark.parametrize("arguments", ["", "  \n", "{}", None, "null"])
def test_blank_arguments_are_an_empty_object(arguments: str | None):
    """B16"""
    assert seen(*with_call(arguments)).messages[1].tool_calls[0].arguments == {}


@pytest.mark.parametrize(
    "arguments", ["{", '["奥斯陆"]', '"x"', "5", "NaN", '{"a": NaN}', '{"a": "\\ud800"}', "{} {}", "[" * 5000]
)
def test_broken_arguments_are_refused_naming_the_message(arguments: str):
    """B16"""
    error = refused(*with_call(arguments))
    assert error["param"] == "messages[1].tool_calls[0].function.arguments"
    assert error["message"].startswith(error["param"])


def test_arguments_must_be_text():
    assert refused(*with_call({"city": "x"}))["param"] == "messages[1].tool_calls[0].function.arguments"


def test_tools_and_tool_choice():
    """B13"""
    request = seen(tools=[WEATHER], tool_choice="required", parallel_tool_calls=False)
    (tool,) = request.tools
    assert (tool.name, tool.description) == ("weather", "查天气")
    assert tool.parameters == WEATHER["function"]["parameters"]
    assert (request.tool_choice, request.parallel_tool_calls) == ("required", False)
    named = {"type": "function", "function": {"name": "weather"}}
    assert seen(tools=[WEATHER], tool_choice=named).tool_choice == NamedTool("weather")
    assert seen(tool_choice="none").tool_choice == "none"
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named]}}
    assert seen(tools=[WEATHER], tool_choice=allowed).tool_choice == AllowedTools(("weather",))
    must = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}
    assert seen(tools=[WEATHER], tool_choice=must).tool_choice == AllowedTools(("weather",), "required")
    assert refused(tools=[], tool_choice=allowed)["param"] == "tool_choice"
    assert refused(tools=[WEATHER], tool_choice={"type": "allowed_tools"})["param"] == "tool_choice.allowed_tools"
    assert refused(tools=[WEATHER], tool_choice={"type": "function", "function": {"name": "nope"}})["param"]
    assert "no tools" in refused(tool_choice="required")["message"]
    assert refused(tools=[WEATHER], tool_choice="any")["param"] == "tool_choice"
    assert refused(tools=[WEATHER, WEATHER])["param"] == "tools[1].function.name"
    bare = {"type": "function", "function": {"name": "ping"}}
    assert seen(tools=[bare]).tools[0].parameters == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        ({"role": "robot", "content": "x"}, "messages[0].role"),
        ({"role": "tool", "content": "x"}, "messages[0].tool_call_id"),
        ({"role": "user", "content": "x", "tool_calls": with_call("{}")[1]["tool_calls"]}, "messages[0].tool_calls"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": [{"text": "x"}]}, "messages[0].content[0].type"),
        ({"role": "assistant", "content": "", "function_call": {"name": "f"}}, "messages[0].function_call"),
        ({"role": "assistant", "tool_calls": [{"id": "c"}]}, "messages[0].tool_calls[0].function"),
    ],
)
def test_wrong_messages_are_refused_by_path(message: dict[str, Any], param: str):
    assert refused(message)["param"] == param


NOT_SERVED = [
    ("modalities", ["text", "audio"]),
    ("audio", {"voice": "x"}),
    ("functions", [{"name": "f"}]),
    ("function_call", {"name": "f"}),
]


@pytest.mark.parametrize(("name", "value"), NOT_SERVED)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_not_served_is_refused_by_name(name: str, value: Any, stream: bool):
    error = refused(stream=stream, **{name: value})
    assert error["param"] == name and name in error["message"]


def test_the_response_format_is_a_grammar():
    assert seen().response is None and seen(response_format={"type": "text"}).response is None
    objects = seen(response_format={"type": "json_object"}).response
    assert objects == GrammarSpec(kind="json_schema", source='{"type": "object"}')
    schema = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"enum": ["北京"]}}}
    asked = seen(
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    )
    assert asked.response is not None and list(json.loads(asked.response.source)["properties"]) == ["b", "a"]


@pytest.mark.parametrize(
    ("value", "param"),
    [
        ({"type": "xml"}, "response_format.type"),
        ({"type": "json_schema"}, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, "response_format.json_schema.schema"),
        ({"type": "json_schema", "json_schema": {"schema": False}}, "response_format.json_schema.schema"),
        ("json_object", "response_format"),
    ],
)
def test_a_wrong_response_format_is_refused_by_path(value: Any, param: str):
    assert refused(response_format=value)["param"] == param


def test_a_response_format_goes_with_a_required_call():
    tools = [{"type": "function", "function": {"name": "f"}}]
    named = {"type": "function", "function": {"name": "f"}}
    must = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}
    for choice in ("required", named, must):
        made = seen(tools=tools, tool_choice=choice, response_format={"type": "json_object"})
        assert made.tool_choice != "auto" and made.response is not None  # what it means there is chat's to say


def test_a_tool_may_be_strict():
    made = seen(
        tools=[{"type": "function", "function": {"name": n, "strict": s}} for n, s in (("a", True), ("b", None))]
    )
    assert [tool.strict for tool in made.tools] == [True, False]


def test_neutral_values_and_unknown_fields_are_accepted():
    neutral = {"n": 1, "logprobs": False, "top_logprobs": 0, "response_format": {"type": "text"}, "logit_bias": {}}
    neutral |= {"frequency_penalty": 0.0, "presence_penalty": 0, "functions": [], "function_call": "auto"}
    assert seen(seed=1, **neutral, metadata={"a": "b"}, store=True, some_extra=[1], user="小明") == seen(seed=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 2.1),
        ("temperature", -0.1),
        ("temperature", "1"),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_k", -2),
        ("max_tokens", 0),
        ("max_tokens", 10**12),
        ("max_tokens", True),
        ("max_completion_tokens", -1),
        ("seed", 1.5),
        ("seed", 2**63),
        ("stream", "yes"),
        ("stream_options", {"include_usage": True}),
        ("ignore_eos", 1),
        ("tools", {}),
        ("parallel_tool_calls", "no"),
        ("n", 0),
        ("n", -1),
        ("n", 17),
        ("n", True),
        ("logprobs", 1),
        ("top_logprobs", 3),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("repetition_penalty", 0),
        ("repetition_penalty", 101),
        ("logit_bias", []),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {"-5": 1}),
        ("logit_bias", {"５": 1}),
    ],
)
def test_values_out_of_range_are_refused(name: str, value: Any):
    assert refused(**{name: value})["param"] == name


def test_sampling_fields():
    fields = {"temperature": 0.5, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "presence_penalty": 1, "seed": 3}
    fields |= {"frequency_penalty": -0.5, "repetition_penalty": 1.1, "logit_bias": {"5": 1, "17": -100}}
    request = seen(**fields, logprobs=True, top_logprobs=4)
    assert request.sampling == SamplingParams(
        logit_bias=((TokenId(5), 1.0), (TokenId(17), -100.0)),
        repetition_penalty=1.1,
        frequency_penalty=-0.5,
        presence_penalty=1.0,
        temperature=0.5,
        top_k=40,
        top_p=0.9,
        min_p=0.05,
        seed=3,
    )
    assert (request.n, request.logprobs) == (1, 4)
    assert seen(logprobs=True).logprobs == 0
    assert seen(logprobs=False).logprobs is None
    assert refused(top_logprobs=21, logprobs=True)["param"] == "top_logprobs"
    assert refused(logit_bias={"5": 101})["param"] == "logit_bias.5"


def test_model_and_messages_are_required():
    _, app = build([])
    for body, param in [
        ({"messages": [ASK]}, "model"),
        ({"model": "smol"}, "messages"),
        ({"model": "smol", "messages": []}, "messages"),
    ]:
        response = call(app, "POST", CHAT, json=body)
        assert (response.status_code, response.json()["error"]["param"]) == (400, param), json.dumps(body)


def test_bodies_of_too_many_values_are_refused():
    error = refused(metadata=dict.fromkeys(map(str, range(100_000))))
    assert "more than 100000 values" in error["message"]


@pytest.mark.parametrize("field", ["messages", "tools"])
def test_one_fault_is_enough(field: str):
    """Not all 20 000 are looked at: describing each takes long, and one is told."""
    with pytest.raises(InvalidRequest) as caught:
        body = {"model": "smol", "messages": [ASK], field: [{"role": "谁", "type": "x"}] * 20_000}
        parse_body(body, ChatCompletionBody, {})
    assert isinstance(caught.value.__cause__, ValidationError) and caught.value.__cause__.error_count() <= 2


def test_a_stop_string_has_a_bound():
    assert refused(stop="停" * 1001)["param"] == "stop"
    assert seen(stop="停" * 1000).stop == ("停" * 1000,)


@pytest.mark.parametrize("field", ["response_format", "stream_options", "thinking", "agent_hint", "logit_bias"])
@pytest.mark.parametrize("value", [3, "x", [1], True])
def test_what_should_be_an_object_is_told_without_words_of_python(field: str, value: Any):
    error = refused(stream=True, **{field: value})
    assert error["param"] == field and error["message"] == f"{field}: Input should be an object"


def test_items_that_should_be_objects_are_told_by_their_place():
    for fields in ({"tools": [3]}, {"tools": [None]}):
        assert refused(**fields)["message"] == "tools[0]: Input should be an object"
    for wrong in (3, "x", None):
        content = [{"type": "text", "text": "a"}, wrong]
        error = refused({"role": "user", "content": content})
        assert error["message"] == "messages[0].content[1]: Input should be an object"
