"""A client's history becomes tokens: the whole way from HTTP to what the engine is given, over a scripted engine."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from server_harness import WEATHER, app_over, chat, events

from chat_harness import END, TOKENIZER, Chat, call_text
from embedded_tokenizer import thinking_tokenizer
from thinking_templates import APPENDS, DROPS_EARLIER

ASK = {"role": "user", "content": "北京天气？"}
MORE = {"role": "user", "content": "上海呢？"}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "晴"}
BLOCK = 4

# Goes through the items of the arguments, as some templates do; and writes them as JSON, as most do.
ITEMS = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}"
    "{% for k, v in c.function.arguments.items() %}[{{ k }}={{ v }}]{% endfor %}"
    "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}{{ tools | length if tools else '' }}"
)
STRICT = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}"
)


def saying(*replies: str | list[int], **chat_options: Any) -> Chat:
    """A client whose engine says these."""
    tokenizer = chat_options.get("tokenizer", TOKENIZER)
    ids = [[*tokenizer.encode_with_control(r), END] if isinstance(r, str) else r for r in replies]
    return Chat(ids, block_size=BLOCK, **chat_options)


def prompts(talk: Chat) -> list[str]:
    """What the model was given, each time."""
    seen: list[str] = []
    render = talk.template.render

    def watched(messages: Any, *args: Any, **options: Any) -> Any:
        text = render(messages, *args, **options)
        if options.get("add_generation_prompt"):
            seen.append(text.plain())
        return text

    talk.template.render = watched  # type: ignore[method-assign]
    return seen


def asked(source: str, *messages: dict[str, Any], **fields: Any) -> str:
    """The prompt that a request becomes."""
    talk = saying("好", source=source)
    seen = prompts(talk)
    response = chat(app_over(talk.client), *messages, **fields)
    assert response.status_code == 200, response.text
    return seen[0]


def test_arguments_are_an_object_whatever_the_template_does_with_them() -> None:
    """B14."""
    text = asked(ITEMS, ASK, {"role": "assistant", "content": "", "tool_calls": [CALL]}, RESULT, tools=[WEATHER])
    assert '[city=Oslo]{"city": "Oslo"}' in text and '\\"' not in text


def test_absent_content_is_the_same_turn_however_it_is_absent() -> None:
    """B15."""
    absent: list[dict[str, Any]] = [{"content": None}, {}, {"content": ""}, {"content": [{"type": "text", "text": ""}]}]
    texts = {
        asked(ITEMS, ASK, {"role": "assistant", "tool_calls": [CALL], **content}, RESULT, tools=[WEATHER])
        for content in absent
    }
    assert len(texts) == 1
    (text,) = texts
    assert "None" not in text and "null" not in text and "[city=Oslo]" in text


@pytest.mark.parametrize("arguments", ["", "  ", "null", None, "{}"])
def test_blank_arguments_are_none(arguments: str | None) -> None:
    """B16."""
    call = {**CALL, "function": {"name": "weather", "arguments": arguments}}
    text = asked(ITEMS, ASK, {"role": "assistant", "tool_calls": [call]}, RESULT, tools=[WEATHER])
    assert "<assistant>{}" in text


def test_ids_of_ours_come_back_in_a_form_that_every_template_takes() -> None:
    """B16: some templates demand nine letters and digits."""
    source = APPENDS.replace(
        "{{- '\\n' if m.content or not loop.first else '' -}}",
        "{%- if c.id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif -%}",
    )
    assert "nine characters" in source
    talk = saying(call_text("weather", city="北京"), "晴", source=source)
    app = app_over(talk.client)
    message = chat(app, ASK, tools=[WEATHER]).json()["choices"][0]["message"]
    made = message["tool_calls"][0]["id"]
    assert made.isalnum() and made.isascii()
    back = chat(app, ASK, message, {"role": "tool", "tool_call_id": made, "content": "晴"}, tools=[WEATHER])
    assert back.status_code == 200, back.text


SYSTEM = {"role": "system", "content": "Sei kurz."}
ANSWER = {"role": "assistant", "content": "晴"}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([SYSTEM, ASK], "[user]Sei kurz.\n\n北京天气？"),
        ([{**SYSTEM, "role": "developer"}, ASK], "[user]Sei kurz.\n\n北京天气？"),
        ([SYSTEM, SYSTEM, ASK], "[user]Sei kurz.\n\nSei kurz.\n\n北京天气？"),
        ([ASK, SYSTEM, MORE], "[user]北京天气？\n\nSei kurz.\n\n上海呢？"),
        ([ASK, MORE], "[user]北京天气？\n\n上海呢？"),
    ],
)
def test_turns_that_a_template_refuses_are_brought_into_its_order(
    messages: list[dict[str, Any]], expected: str
) -> None:
    """B17."""
    assert asked(STRICT, *messages) == expected


def test_what_a_template_refuses_all_the_same_is_a_400_with_its_reason() -> None:
    """B17."""
    response = chat(app_over(saying("好", source=STRICT).client), ANSWER, ASK)
    assert response.status_code == 400
    assert "roles must alternate" in response.json()["error"]["message"] and "Traceback" not in response.text


def test_results_follow_their_calls_in_call_order_and_notes_come_after() -> None:
    """B18."""
    second = {**CALL, "id": "c2", "function": {"name": "weather", "arguments": '{"city": "上海"}'}}
    text = asked(
        ITEMS,
        ASK,
        {"role": "assistant", "tool_calls": [CALL, second]},
        {"role": "tool", "tool_call_id": "c2", "content": "雨"},
        {"role": "user", "content": "快点"},
        {"role": "tool", "tool_call_id": "c1", "content": "晴"},
        MORE,
        tools=[WEATHER],
    )
    assert text.index("<tool>晴") < text.index("<tool>雨") < text.index("<user>快点") < text.index("<user>上海呢？")


@pytest.mark.parametrize("said", ["é한🇳🇴👨‍👩‍👧", call_text("weather", city="é한🇳🇴👨‍👩‍👧")])
def test_characters_cut_between_tokens_arrive_whole_plain_and_streamed(said: str) -> None:
    """B33: at every place where the token limit may cut."""
    ids = [token for char in said for token in TOKENIZER.encode(char)]
    app = app_over(saying(*[ids] * 2 * len(ids)).client)
    for limit in range(max(1, len(ids) - 36), len(ids) + 1):
        plain = chat(app, ASK, tools=[WEATHER], max_tokens=limit).json()["choices"][0]
        chunks = events(chat(app, ASK, tools=[WEATHER], max_tokens=limit, stream=True))[:-1]
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        content = "".join(delta.get("content") or "" for delta in deltas)
        arguments = "".join(c["function"]["arguments"] for delta in deltas for c in delta.get("tool_calls", ()))
        calls = plain["message"].get("tool_calls", [])
        assert content == (plain["message"]["content"] or "")
        assert arguments == "".join(call["function"]["arguments"] for call in calls)
        assert "\ufffd" not in content + arguments
        if said.startswith("<"):
            # Half an opening tag may as well be text: that is what it is.
            assert "<tool_call".startswith(content) and (limit == len(ids) or plain["finish_reason"] == "length")
            assert '{"city": "é한🇳🇴👨‍👩‍👧"}'.startswith(arguments)
        else:
            assert said.startswith(content)


def test_a_call_cut_by_the_limit_keeps_its_arguments_and_leaves_no_markup() -> None:
    ids = TOKENIZER.encode("看：" + call_text("weather", city="北京"))
    body = chat(app_over(saying(ids).client), ASK, tools=[WEATHER], max_tokens=len(ids) - 6).json()
    (choice,) = body["choices"]
    assert choice["finish_reason"] == "length" and choice["message"]["content"] == "看："
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "weather" and '{"city": "北京"}'.startswith(call["function"]["arguments"])


@pytest.mark.parametrize(
    ("stop", "said", "expected"),
    [
        (["STOPHERE"], "好 STOPHERE 不要", "好 "),
        (["STOPHERE"], "好 STOPHEX 要", "好 STOPHEX 要"),
        (["天气", "天"], "晴天气", "晴"),
        (["STOP"], call_text("weather", city="STOP"), None),
    ],
)
def test_stop_strings_of_several_tokens(stop: list[str], said: str, expected: str | None) -> None:
    """B34: and none in arguments."""
    for stream in (False, True):
        response = chat(app_over(saying(said).client), ASK, tools=[WEATHER], stop=stop, stream=stream)
        if not stream:
            message = response.json()["choices"][0]["message"]
            assert message["content"] == expected
            assert expected is not None or "STOP" in message["tool_calls"][0]["function"]["arguments"]
            continue
        pieces = [c["choices"][0]["delta"].get("content") or "" for c in events(response)[:-1]]
        assert "".join(pieces) == (expected or "")


def test_generated_ids_are_kept_although_their_text_encodes_otherwise() -> None:
    """B42: two newlines, generated as two tokens where the vocabulary may have one; and letters one by one."""
    odd = [token for char in "good\n\nweather" for token in TOKENIZER.encode(char)]
    assert TOKENIZER.encode("good\n\nweather") != odd
    app = app_over(saying([*odd, END], "二").client)
    first = chat(app, ASK).json()
    usage = chat(app, ASK, first["choices"][0]["message"], MORE).json()["usage"]
    known = first["usage"]["prompt_tokens"] + len(odd)
    assert usage["prompt_tokens_details"]["cached_tokens"] == known // BLOCK * BLOCK
    assert usage["tenuto"]["reuse_break"] is None


def test_users_see_no_control_tokens_and_parsers_see_theirs() -> None:
    """B43: the reasoning's tags are special tokens here."""
    tokenizer = thinking_tokenizer()
    reply = "<think>想</think>" + "好<|im_start|>的"
    message = chat(app_over(saying(reply, source=APPENDS, tokenizer=tokenizer).client), ASK).json()["choices"][0]
    assert message["message"]["content"] == "好的" and message["message"]["reasoning_content"] == "想"


def converse(talk: Chat, num_turns: int, *, with_reasoning: bool = False) -> list[dict[str, Any]]:
    """Usages of a chat whose client sends back what it was given."""
    app, messages, usages = app_over(talk.client), [ASK], []
    for _ in range(num_turns):
        body = chat(app, *messages).json()
        message = body["choices"][0]["message"]
        usages.append(body["usage"])
        if not with_reasoning:
            message.pop("reasoning_content", None)
        messages += [message, MORE]
    return usages


@pytest.mark.parametrize("with_reasoning", [True, False])
def test_with_templates_that_append_later_turns_compute_what_is_new_and_at_most_a_block(with_reasoning: bool) -> None:
    """Whether or not the client sends the reasoning back."""
    replies = [f"<think>\n第{n}次想\n</think>\n\n第{n}天，晴。" for n in range(4)]
    talk = saying(*replies, source=APPENDS, tokenizer=thinking_tokenizer())
    usages = converse(talk, 4, with_reasoning=with_reasoning)
    for before, usage in itertools.pairwise(usages):
        known = before["prompt_tokens"] + before["completion_tokens"] - 1  # but for the last, that ends the turn
        new = usage["prompt_tokens"] - known
        assert usage["tenuto"]["computed_tokens"] <= new + BLOCK
        assert usage["prompt_tokens_details"]["cached_tokens"] > known - BLOCK
        assert usage["tenuto"]["reuse_break"] is None


def test_with_templates_that_rewrite_everything_before_the_first_difference_is_reused_and_it_is_said() -> None:
    replies = [f"<think>\n第{n}次想\n</think>\n\n第{n}天，晴。" for n in range(4)]
    usages = converse(saying(*replies, source=DROPS_EARLIER, tokenizer=thinking_tokenizer()), 4)
    for number, (before, usage) in enumerate(itertools.pairwise(usages)):
        assert usage["tenuto"]["reuse_break"] == f"template rewrites history at message {2 * number + 1}"
        same = before["prompt_tokens"]  # all that stood before the reply
        assert same - BLOCK < usage["prompt_tokens_details"]["cached_tokens"] <= same


def test_a_system_message_with_the_time_in_it_is_found_out() -> None:
    app = app_over(saying("北京今天晴，二十度，微风，适合出门走走。", "二").client)
    message = chat(app, {"role": "system", "content": "12:00"}, ASK).json()["choices"][0]["message"]
    usage = chat(app, {"role": "system", "content": "12:01"}, ASK, message, MORE).json()["usage"]
    assert usage["tenuto"]["reuse_break"] == "history differs at message 0"


def test_a_schema_begins_after_the_thinking_or_at_once() -> None:
    """B48: JSON is content in either case."""
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    talk = saying("<think>\n{想}\n</think>\n\n{}", "{}", source=DROPS_EARLIER, tokenizer=thinking_tokenizer())
    app = app_over(talk.client)
    thinking = chat(app, ASK, response_format=schema).json()["choices"][0]["message"]
    assert (thinking["reasoning_content"], json.loads(thinking["content"])) == ("{想}", {})
    at_once = chat(app, ASK, response_format=schema, reasoning_effort="none").json()["choices"][0]["message"]
    assert "reasoning_content" not in at_once and json.loads(at_once["content"]) == {}
    frames = [params.grammar.reasoning is not None for params in talk.engine.params if params.grammar]
    assert frames == [True, False]


def test_scores_of_the_reasoning_stand_apart() -> None:
    reply = "<think>\n想\n</think>\n\n晴天"
    for stream in (False, True):
        app = app_over(saying(reply, source=APPENDS, tokenizer=thinking_tokenizer()).client)
        response = chat(app, ASK, logprobs=True, stream=stream)
        choices = [c["choices"][0] for c in events(response)[:-1]] if stream else response.json()["choices"]
        scored = [choice["logprobs"] for choice in choices if choice["logprobs"] is not None]
        text = {
            name: b"".join(bytes(t["bytes"]) for s in scored for t in s.get(name, ())).decode()
            for name in ("content", "reasoning_content")
        }
        assert text == {"content": "\n\n晴天", "reasoning_content": "<think>\n想\n</think>"}
