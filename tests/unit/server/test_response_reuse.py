"""Later turns compute only what is new, however the conversation is continued: generated ids are kept as sampled."""

from __future__ import annotations

from typing import Any

import pytest
from responses_harness import WEATHER, respond
from server_harness import CHAT, app_over, call

from chat_harness import END, TOKENIZER, Chat, call_text
from tenuto.ids import TokenId

TEXT = "今天 hello world 天气很好，" * 6


def spelled_oddly(text: str) -> list[TokenId]:
    """One token, or more, for each character: not as the tokenizer spells the text."""
    ids = [token for character in text for token in TOKENIZER.encode(character, "inside")]
    assert ids != TOKENIZER.encode(text) and TOKENIZER.decode(ids) == text
    return ids


REPLY = spelled_oddly(TEXT)
CALL = spelled_oddly("好的，我来查一下 now。" * 3) + TOKENIZER.encode_with_control(call_text("weather", city="北京"))


def cached_of_second_turn(reply: list[TokenId], how: str, tools: list[Any]) -> dict[str, Any]:
    """The usage of the second turn, in a server of its own."""
    chat = Chat([[*reply, END], [*TOKENIZER.encode("好"), END]], max_model_tokens=4096)
    app = app_over(chat.client)
    first_input = [{"role": "user", "content": "北京天气怎么样？"}]
    first = respond(app, first_input, tools=tools).json()
    output = first["output"]
    new: list[dict[str, Any]] = [{"role": "user", "content": "谢谢"}]
    for item in output:
        if item["type"] == "function_call":
            new.insert(0, {"type": "function_call_output", "call_id": item["call_id"], "output": "晴"})
    if how == "previous":
        second = respond(app, new, tools=tools, previous_response_id=first["id"])
    elif how == "items":
        second = respond(app, [*first_input, *output, *new], tools=tools)
    else:
        references = [{"type": "item_reference", "id": item["id"]} for item in output]
        second = respond(app, [*first_input, *references, *new], tools=tools)
    assert second.status_code == 200, second.text
    usage: dict[str, Any] = second.json()["usage"]
    assert usage["tenuto"]["reuse_break"] is None
    first_tokens = first["usage"]["input_tokens"] + first["usage"]["output_tokens"]
    # Full blocks of the prefix cache; the last generated id has no KV.
    assert usage["input_tokens_details"]["cached_tokens"] >= (first_tokens - 2) // 16 * 16
    return usage


@pytest.mark.parametrize(("reply", "tools"), [(REPLY, []), (CALL, [WEATHER])], ids=["text", "call"])
def test_a_turn_goes_on_from_its_generated_ids(reply: list[TokenId], tools: list[Any]):
    usages = [cached_of_second_turn(reply, how, tools) for how in ("previous", "items", "references")]
    assert usages[0] == usages[1] == usages[2]


def test_a_responses_turn_equals_a_chat_turn():
    by_responses = cached_of_second_turn(REPLY, "previous", [])
    chat = Chat([[*REPLY, END], [*TOKENIZER.encode("好"), END]], max_model_tokens=4096)
    app = app_over(chat.client)
    messages = [{"role": "user", "content": "北京天气怎么样？"}]
    for content in (None, "谢谢"):
        if content is not None:
            messages.append({"role": "user", "content": content})
        body = call(app, "POST", CHAT, json={"model": "smol", "messages": messages}).json()
        messages.append(body["choices"][0]["message"])
    assert body["usage"]["prompt_tokens"] == by_responses["input_tokens"]
    assert (
        body["usage"]["prompt_tokens_details"]["cached_tokens"]
        == (by_responses["input_tokens_details"]["cached_tokens"])
    )


def test_a_wrong_conversation_is_explained_by_its_items():
    """B18: the chat room speaks of messages, a client of this API knows items and responses."""
    ids = TOKENIZER.encode("查") + TOKENIZER.encode_with_control(call_text("weather", city="北京"))
    app = app_over(Chat([[*ids, END]]).client)
    asked = [{"role": "user", "content": "天气？"}, {"role": "user", "content": "快"}]
    first = respond(app, asked, tools=[WEATHER], instructions="甲").json()
    call_item = next(item for item in first["output"] if item["type"] == "function_call")
    stray = {"type": "function_call_output", "call_id": "nope", "output": "x"}
    for given, fields, param in (
        ([*asked, *first["output"]], {}, "input[2]"),
        ([*asked, *first["output"]], {"instructions": "甲"}, "input[2]"),
        ([*asked, stray], {"instructions": "甲"}, "input[2]"),
        ("然后？", {"previous_response_id": first["id"]}, "previous_response_id"),
        ("然后？", {"previous_response_id": first["id"], "instructions": "甲"}, "previous_response_id"),
        ([stray], {"previous_response_id": first["id"]}, "input[0]"),
    ):
        response = respond(app, given, tools=[WEATHER], **fields)
        error = response.json()["error"]
        assert (response.status_code, error["param"]) == (400, param), error
        assert param in error["message"] and "messages[" not in error["message"]
    told = respond(app, [*asked, *first["output"]], tools=[WEATHER]).json()["error"]["message"]
    assert call_item["call_id"] in told and "function_call_output" in told
