"""Plain and streamed answers: the same content, usage and finish reason, in OpenAI's form."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from server_harness import WEATHER, app_over, build, chat, events, noted
from structlog.testing import capture_logs

from tenuto.errors import EngineClosed, InvalidRequest, QueueFull, TenutoError
from tenuto.protocol.chat import ChatRequest, ChatUsage, ModelInfo, ReplyFinished, TextDelta
from tenuto.protocol.messages import Message
from tenuto.testing.scripted_model import Reply

THREE_CALLS = Reply(
    "我查一下：",
    calls=(
        ("weather", {"city": "北京", "opt": {"beds": [{"w": 2}], "text": 'end } here " and ] too'}}),
        ("ping", {}),
        ("weather", {"city": "São Paulo 👨‍👩‍👧", "night": 7}),
    ),
)


def joined(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a client puts together from chunks, by index."""
    message: dict[str, Any] = {"content": "", "tool_calls": {}}
    for chunk in chunks:
        for choice in chunk["choices"]:
            message["content"] += choice["delta"].get("content") or ""
            for piece in choice["delta"].get("tool_calls", ()):
                made = message["tool_calls"].setdefault(piece["index"], {"arguments": ""})
                if "id" in piece:
                    assert "id" not in made and piece["type"] == "function"
                    made |= {"id": piece["id"], "name": piece["function"]["name"]}
                made["arguments"] += piece["function"]["arguments"]
    return message


def finish_reasons(chunks: list[dict[str, Any]]) -> list[str]:
    return [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"] is not None]


def test_plain_answer():
    _, app = build(["今天北京晴，二十度。"])
    body = chat(app).json()
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "今天北京晴，二十度。", "refusal": None}
    assert (choice["index"], choice["finish_reason"]) == (0, "stop")
    assert (body["object"], body["model"]) == ("chat.completion", "smol")
    assert body["id"].startswith("chatcmpl-")
    usage = body["usage"]
    assert usage["completion_tokens"] == 4
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}


def test_answers_carry_the_real_name_whatever_alias_was_asked_for():
    for alias in ("smol", "org/smol", "default"):
        _, app = build(["好"])
        assert chat(app, model=alias).json()["model"] == "smol"


@pytest.mark.parametrize("reply", ["一二三四五六七", THREE_CALLS, Reply(calls=(("ping", {}), ("add", {"x": 42}))), ""])
def test_streamed_equals_plain(reply: Reply | str):
    """B01 B03 B06 B10 B12 B35"""
    _, app = build([reply])
    plain = chat(app, tools=[WEATHER]).json()
    _, app = build([reply])
    *chunks, done = events(chat(app, tools=[WEATHER], stream=True, stream_options={"include_usage": True}))
    assert done == "[DONE]"
    (choice,) = plain["choices"]
    message = choice["message"]
    streamed = joined(chunks)
    assert streamed["content"] == (message["content"] or "")
    calls = message.get("tool_calls", [])
    assert sorted(streamed["tool_calls"]) == list(range(len(calls)))
    for index, made in enumerate(calls):
        assert streamed["tool_calls"][index] == {"id": made["id"], **made["function"]}
    assert len({made["id"] for made in calls}) == len(calls)
    assert finish_reasons(chunks) == [choice["finish_reason"]]
    assert chunks[-1]["usage"] == plain["usage"] and chunks[-1]["choices"] == []
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)


def test_the_first_chunk_has_the_role_and_all_share_id_and_time():
    _, app = build(["一二三四五六七"])
    *chunks, _ = events(chat(app, stream=True))
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all("role" not in chunk["choices"][0]["delta"] for chunk in chunks[1:])
    assert len({(c["id"], c["created"], c["model"], c["object"]) for c in chunks}) == 1


def test_no_usage_unless_asked():
    """B35"""
    for options in ({}, {"stream_options": {"include_usage": False}}, {"stream_options": {}}):
        _, app = build(["好"])
        *chunks, _ = events(chat(app, stream=True, **options))
        assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)


def test_tool_call_arguments_come_in_pieces_as_they_are_generated():
    _, app = build([THREE_CALLS])
    *chunks, _ = events(chat(app, tools=[WEATHER], stream=True))
    pieces = [c["choices"][0]["delta"]["tool_calls"][0] for c in chunks if "tool_calls" in c["choices"][0]["delta"]]
    opening = [piece for piece in pieces if "id" in piece]
    assert [(p["index"], p["function"]["name"]) for p in opening] == [(0, "weather"), (1, "ping"), (2, "weather")]
    assert len([piece for piece in pieces if piece["index"] == 0]) > 5


def test_calls_without_text_have_null_content():
    _, app = build([Reply(calls=(("ping", {}),))])
    (choice,) = chat(app).json()["choices"]
    assert choice["message"]["content"] is None
    assert choice["finish_reason"] == "tool_calls"


def test_length_and_stop():
    _, app = build(["一二三四五六七", "答案。结束。再见"])
    assert chat(app, max_tokens=1).json()["choices"][0]["finish_reason"] == "length"
    (choice,) = chat(app, stop="结束").json()["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("答案。", "stop")


class OneReply:
    """A model client with a usage, or a failure, that the scripted one does not play."""

    def __init__(self, usage: ChatUsage = ChatUsage(), failure: Exception | None = None, finished: bool = True) -> None:
        self.usage, self.failure, self.finished = usage, failure, finished

    async def info(self) -> ModelInfo:
        raise EngineClosed("the engine has stopped")

    async def stream(self, request: ChatRequest):
        yield TextDelta(text="秘密")
        if self.failure is not None:
            raise self.failure
        if self.finished:
            message = Message(role="assistant", content="秘密")
            yield ReplyFinished(reason="stop", message=message, usage=self.usage)


def test_cached_tokens_are_held_and_shared():
    app = app_over(OneReply(ChatUsage(num_prompt=30, num_held=10, num_shared=15, num_computed=5, num_recomputed=9)))
    usage = chat(app).json()["usage"]
    assert (usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]) == (30, 25)


@pytest.mark.parametrize("error", [EngineClosed("the engine has stopped"), QueueFull("1024 requests are waiting")])
def test_an_error_after_the_first_byte_is_one_event_and_one_terminator(error: TenutoError):
    """B36"""
    _, app = build([Reply("一二三四五六", error=error)])
    data = events(chat(app, stream=True, stream_options={"include_usage": True}))
    assert data[-1] == "[DONE]" and data.count("[DONE]") == 1
    assert data[-2]["error"]["message"] == str(error)
    assert [one for one in data[:-1] if "error" in one] == [data[-2]]
    assert finish_reasons(data[:-2]) == []
    assert joined(data[:-2])["content"] == "一二三四五六"


def test_an_error_before_the_first_byte_has_its_status():
    """B36"""
    for stream in (False, True):
        _, app = build([Reply(error=InvalidRequest("消息太多", "messages"))])
        response = chat(app, stream=stream)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "messages"


@pytest.mark.parametrize("model", [OneReply(failure=ValueError("密码 123")), OneReply(finished=False)])
def test_an_unexpected_failure_says_nothing_about_itself(model: OneReply):
    with capture_logs() as logs:
        plain = chat(app_over(model))
        data = events(chat(app_over(model), stream=True))
    assert_internal_error(plain)
    assert data[-1] == "[DONE]" and data[-2] == plain.json()
    assert [entry["event"] for entry in noted(logs)] == ["request_failed", "request_failed"]
    logged = str(logs)
    assert "密码" not in logged and "秘密" not in logged and "Traceback" not in logged
    assert "test_chat_answers.py" in logged or "answers.py" in logged  # where it happened is said


def assert_internal_error(response: httpx.Response) -> None:
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal_error"
    assert "密码" not in response.text and "Traceback" not in response.text
    assert response.headers["x-request-id"].startswith("req-")
