"""Plain and streamed responses say the same, in OpenAI's form; chains of them remember everything."""

from __future__ import annotations

from typing import Any

import pytest
from responses_harness import PATH, WEATHER, bare, put_together, respond, typed_events
from server_harness import app_over, build, call
from starlette.middleware import Middleware

from tenuto.errors import EngineClosed, InvalidRequest, QueueFull, TenutoError
from tenuto.ids import CallId
from tenuto.protocol.chat import (
    ChatRequest,
    ChatUsage,
    ReplyFinished,
    ScoredToken,
    TextDelta,
    TokenScore,
    TokensScored,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from tenuto.protocol.messages import Message, ToolCall
from tenuto.testing.scripted_model import Reply

THREE_CALLS = Reply(
    "我查一下：",
    reasoning="先想想",
    calls=(
        ("weather", {"city": "北京", "opt": {"beds": [{"w": 2}], "text": 'end } here " and ] too'}}),
        ("ping", {}),
        ("weather", {"city": "São Paulo 👨‍👩‍👧", "night": 7}),
    ),
)


@pytest.mark.parametrize("reply", ["一二三四五六七", THREE_CALLS, Reply(calls=(("ping", {}), ("add", {"x": 42}))), ""])
@pytest.mark.parametrize("include", [[], ["message.output_text.logprobs"]])
def test_streamed_equals_plain(reply: Reply | str, include: list[str]):
    """B12 B35: three calls have places and ids of their own; one end, one usage."""
    _, app = build([reply, reply])
    plain = respond(app, tools=[WEATHER], include=include).json()
    events = typed_events(respond(app, tools=[WEATHER], include=include, stream=True))
    assert [e["type"] for e in events[:2]] == ["response.created", "response.in_progress"]
    assert events[0]["response"]["status"] == "in_progress" and events[0]["response"]["output"] == []
    last = events[-1]
    assert last["type"] == "response.completed"
    assert [e for e in events if "response" in e] == [*events[:2], last]
    response = last["response"]
    assert bare(put_together(events)) == bare(response["output"]) == bare(plain["output"])
    done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    assert done == response["output"]
    assert response["usage"] == plain["usage"]
    assert (plain["status"], plain["incomplete_details"], plain["error"]) == ("completed", None, None)
    ids = [item["id"] for item in response["output"]]
    assert len(set(ids)) == len(ids) and all(item["status"] == "completed" for item in response["output"])


def test_the_parts_of_a_response():
    _, app = build([THREE_CALLS])
    body = respond(app, tools=[WEATHER], metadata={"谁": "我"}, user="u1", instructions="说中文").json()
    thought, said, *calls = body["output"]
    assert (thought["type"], thought["summary"]) == ("reasoning", [])
    assert thought["content"] == [{"type": "reasoning_text", "text": "先想想"}]
    assert said["content"] == [{"type": "output_text", "text": "我查一下：", "annotations": [], "logprobs": []}]
    assert [item["name"] for item in calls] == ["weather", "ping", "weather"]
    assert calls[1]["arguments"] == "{}"
    assert len({item["call_id"] for item in calls}) == 3
    assert (body["object"], body["model"], body["store"]) == ("response", "smol", True)
    assert (body["metadata"], body["user"], body["instructions"]) == ({"谁": "我"}, "u1", "说中文")
    assert body["tools"] == [{**WEATHER, "strict": False}]
    usage = body["usage"]
    assert usage["output_tokens_details"] == {"reasoning_tokens": 1}
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def test_the_token_limit_leaves_an_incomplete_response():
    for stream in (False, True):
        model, app = build(["一二三四五六七"])
        answer = respond(app, max_output_tokens=1, stream=stream)
        body = typed_events(answer)[-1]["response"] if stream else answer.json()
        if stream:
            assert typed_events(answer)[-1]["type"] == "response.incomplete"
        assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        assert body["output"][-1]["status"] == "incomplete"
        assert body["output"][0]["content"][0]["text"] == "一二三"
        assert body["completed_at"] is None
        assert model.seen.requests[0].max_tokens == 1
        assert call(app, "GET", f"{PATH}/{body['id']}").json() == body


def test_a_reply_without_a_word_is_a_message():
    _, app = build(["", "好"])
    first = respond(app).json()
    assert [item["content"][0]["text"] for item in first["output"]] == [""]


class Played:
    """A model client that plays events."""

    def __init__(self, *played: Any, failure: Exception | None = None) -> None:
        self.played, self.failure = played, failure
        self.asked: list[ChatRequest] = []

    async def stream(self, request: ChatRequest):
        self.asked.append(request)
        for event in self.played:
            yield event
        if self.failure is not None:
            raise self.failure


def score(text: str, reasoning: bool = False) -> TokensScored:
    token = ScoredToken(id=7, data=text.encode(), logprob=-0.5)
    return TokensScored(tokens=(TokenScore(token=token, top=(token,), reasoning=reasoning),))


def finished(**fields: Any) -> ReplyFinished:
    message = Message(role="assistant", **fields)
    return ReplyFinished(reason="stop", message=message, usage=ChatUsage())


def test_text_between_calls_keeps_its_place_and_the_turn_is_one_message():
    """B06: before, call, between, call, after."""
    calls = [ToolCall(id=CallId(f"c{i}"), name="ping", arguments={}) for i in range(2)]
    played: list[Any] = []
    for index, text in enumerate(("前", "中", "后")):
        played.append(TextDelta(text=text))
        if index < 2:
            played += [
                ToolCallStarted(index=index, id=calls[index].id, name="ping"),
                ToolCallDelta(index=index, arguments="{}"),
                ToolCallFinished(index=index, call=calls[index]),
            ]
    whole = finished(content="前中后", tool_calls=tuple(calls))
    model = Played(*played, whole)
    app = app_over(model)
    body = respond(app).json()
    assert [item["type"] for item in body["output"]] == [
        "message",
        "function_call",
        "message",
        "function_call",
        "message",
    ]
    events = typed_events(respond(app, stream=True))
    assert bare(put_together(events)) == bare(body["output"])
    outputs = [{"type": "function_call_output", "call_id": c.id, "output": "pong"} for c in calls]
    respond(app, [{"role": "user", "content": "问"}, *body["output"], *outputs])
    sent = model.asked[-1].messages
    assert sent[1] == whole.message, "the same value as was generated, so its ids are kept"
    assert [m.role for m in sent] == ["user", "assistant", "tool", "tool"]


def test_a_call_that_breaks_off_is_incomplete_and_no_call_of_the_history():
    model = Played(
        TextDelta(text="好"),
        ToolCallStarted(index=0, id=CallId("c1"), name="ping"),
        ToolCallDelta(index=0, arguments='{"a'),
        TextDelta(text='<tool_call>{"a'),
        finished(content='好<tool_call>{"a'),
    )
    app = app_over(model)
    body = respond(app).json()
    assert [(i["type"], i["status"]) for i in body["output"]] == [
        ("message", "completed"),
        ("function_call", "incomplete"),
        ("message", "completed"),
    ]
    respond(app, [{"role": "user", "content": "问"}, *body["output"], {"role": "user", "content": "再问"}])
    assert model.asked[-1].messages[1] == Message(role="assistant", content='好<tool_call>{"a')
    respond(app, "再问", previous_response_id=body["id"])
    assert model.asked[-1].messages[1].content == '好<tool_call>{"a'


def test_only_the_text_is_scored():
    model = Played(
        score("想", reasoning=True),
        score("好"),
        TextDelta(text="好"),
        score("<tool_call>"),
        ToolCallStarted(index=0, id=CallId("c1"), name="ping"),
        score("{}"),
        ToolCallDelta(index=0, arguments="{}"),
        ToolCallFinished(index=0, call=ToolCall(id=CallId("c1"), name="ping", arguments={})),
        score("</tool_call>"),
        score("了"),
        TextDelta(text="了"),
        finished(content="好了"),
    )
    for stream in (False, True):
        answer = respond(app_over(model), stream=stream, include=["message.output_text.logprobs"], top_logprobs=1)
        output = put_together(typed_events(answer)) if stream else answer.json()["output"]
        texts = [item["content"][0] for item in output if item["type"] == "message"]
        assert [[one["token"] for one in text["logprobs"]] for text in texts] == [["好"], ["</tool_call>", "了"]]
        assert texts[0]["logprobs"][0]["top_logprobs"] == [
            {"token": "好", "logprob": -0.5, "bytes": list("好".encode())}
        ]
    assert model.asked[0].logprobs == 1


@pytest.mark.parametrize("error", [EngineClosed("the engine has stopped"), QueueFull("1024 requests are waiting")])
def test_an_error_after_the_first_byte_is_the_last_event(error: TenutoError):
    """B36"""
    _, app = build([Reply("一二三四五六", error=error)])
    events = typed_events(respond(app, stream=True))
    assert [e["type"] for e in events if e["type"].startswith("response.failed")] == [events[-1]["type"]]
    failed = events[-1]["response"]
    assert failed["status"] == "failed"
    assert failed["error"]["message"] == str(error)
    assert failed["output"][0]["content"][0]["text"] == "一二三四五六"
    assert call(app, "GET", f"{PATH}/{failed['id']}").status_code == 404, "what failed is not kept"


def test_an_error_before_the_first_byte_has_its_status():
    """B36"""
    for stream in (False, True):
        _, app = build([Reply(error=InvalidRequest("消息太多", "messages"))])
        response = respond(app, stream=stream)
        assert (response.status_code, response.json()["error"]["param"]) == (400, "input")


def test_an_unexpected_failure_says_nothing_about_itself():
    app = app_over(Played(TextDelta(text="秘密"), failure=ValueError("密码 123")))
    response = respond(app, stream=True)
    assert "密码" not in response.text and "Traceback" not in response.text
    assert typed_events(response)[-1]["response"]["error"]["code"] == "server_error"
    assert respond(app).status_code == 500


def test_a_chain_remembers_calls_and_older_turns_in_order():
    """B38: r1 makes a call, r2 sends its output, r3 asks about r1's question."""
    model, app = build([Reply("我查", calls=(("weather", {"city": "北京"}),)), "晴", "你问了北京", "好"])
    first = respond(app, "北京天气？", tools=[WEATHER], instructions="甲").json()
    (made,) = [item for item in first["output"] if item["type"] == "function_call"]
    output = {"type": "function_call_output", "call_id": made["call_id"], "output": "晴，二十度"}
    second = respond(app, [output], previous_response_id=first["id"], tools=[WEATHER], instructions="乙").json()
    third = respond(app, "我先问了什么？", previous_response_id=second["id"]).json()
    sent = model.seen.requests
    assert [m.content for m in sent[1].messages] == ["乙", "北京天气？", "我查", "晴，二十度"]
    assert sent[1].messages[2].tool_calls[0].id == made["call_id"] == sent[1].messages[3].tool_call_id
    roles = [(m.role, m.content) for m in sent[2].messages]
    assert roles == [
        ("user", "北京天气？"),
        ("assistant", "我查"),
        ("tool", "晴，二十度"),
        ("assistant", "晴"),
        ("user", "我先问了什么？"),
    ]
    assert third["previous_response_id"] == second["id"]
    listed = call(app, "GET", f"{PATH}/{third['id']}/input_items?order=asc&limit=100").json()
    kinds = [item["type"] for item in listed["data"]]
    assert kinds == ["message", "message", "function_call", "function_call_output", "message", "message"]
    assert listed["data"][1:3] == first["output"]
    assert (listed["has_more"], listed["first_id"]) == (False, listed["data"][0]["id"])
    assert [request.hints.run for request in sent] == [first["id"]] * 3, "a conversation is one run"
    # A branch from the first response does not see the second.
    branch = [output, {"role": "user", "content": "那上海呢？"}]
    respond(app, branch, previous_response_id=first["id"])
    assert [m.content for m in sent[3].messages] == ["北京天气？", "我查", "晴，二十度", "那上海呢？"]


def test_items_can_be_listed_in_pages_both_ways():
    _, app = build(["好"])
    given = [{"role": "user", "content": f"第{n}句"} for n in range(5)]
    body = respond(app, given).json()
    texts, after = [], ""
    while True:
        page = call(app, "GET", f"{PATH}/{body['id']}/input_items?limit=2{after}").json()
        texts += [item["content"][0]["text"] for item in page["data"]]
        if not page["has_more"]:
            break
        after = f"&after={page['last_id']}"
    assert texts == [f"第{n}句" for n in (4, 3, 2, 1, 0)]
    wrong = call(app, "GET", f"{PATH}/{body['id']}/input_items?after=none")
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "after")
    assert call(app, "GET", f"{PATH}/{body['id']}/input_items?limit=0").status_code == 400


def test_a_reference_stands_for_the_item():
    model, app = build([Reply("我查", calls=(("weather", {"city": "北京"}),)), "晴", "好"])
    first = respond(app, "天气？", tools=[WEATHER]).json()
    references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    call_id = first["output"][1]["call_id"]
    output = {"type": "function_call_output", "call_id": call_id, "output": "晴", "id": "fco_mine"}
    respond(app, [{"role": "user", "content": "天气？"}, *references, output], tools=[WEATHER])
    assert [m.content for m in model.seen.requests[1].messages] == ["天气？", "我查", "晴"]
    assert model.seen.requests[1].messages[1].tool_calls[0].id == call_id
    respond(app, [{"role": "user", "content": "天气？"}, *references, {"id": "fco_mine"}], store=False)
    assert [m.content for m in model.seen.requests[2].messages] == ["天气？", "我查", "晴"]
    unknown = respond(app, [{"type": "item_reference", "id": "msg_none"}])
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "input[0]")


def test_stored_responses_can_be_shown_and_deleted():
    _, app = build(["好", "再好", "不"])
    first = respond(app).json()
    second = respond(app, "然后？", previous_response_id=first["id"]).json()
    where = f"{PATH}/{first['id']}"
    assert call(app, "GET", where).json() == first
    assert call(app, "GET", where + "?stream=true").json()["error"]["param"] == "stream"
    cancelled = call(app, "POST", where + "/cancel")
    assert cancelled.status_code == 400 and "background" in cancelled.json()["error"]["message"]
    assert call(app, "DELETE", where).json() == {"id": first["id"], "object": "response", "deleted": True}
    for method, path in (
        ("GET", where),
        ("DELETE", where),
        ("GET", where + "/input_items"),
        ("POST", where + "/cancel"),
    ):
        gone = call(app, method, path)
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "not_stored")
    # What went on from it is still there, but half a history is none.
    assert call(app, "GET", f"{PATH}/{second['id']}").json() == second
    broken = respond(app, "再？", previous_response_id=second["id"])
    assert (broken.status_code, broken.json()["error"]["param"]) == (404, "previous_response_id")


def test_store_false_keeps_nothing():
    """B38"""
    model, app = build(["好", "好"])
    body = respond(app, store=False).json()
    assert body["store"] is False
    assert call(app, "GET", f"{PATH}/{body['id']}").status_code == 404
    assert respond(app, "再？", previous_response_id=body["id"]).status_code == 404
    assert len(model.seen.requests) == 1


def test_one_tenant_never_sees_anothers_responses():
    model, app = build(["好"] * 4)

    class AsTenant:
        """As the access gate does it: the tenant of a key."""

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            headers = dict(scope["headers"])
            scope["state"]["tenant"] = headers.get(b"x-tenant", b"").decode()
            await self.inner(scope, receive, send)

    app.user_middleware.append(Middleware(AsTenant))
    mine, theirs = {"X-Tenant": "a"}, {"X-Tenant": "b"}
    body = respond(app, headers=mine).json()
    assert call(app, "GET", f"{PATH}/{body['id']}", headers=mine).status_code == 200
    for headers in (theirs, {}):
        assert call(app, "GET", f"{PATH}/{body['id']}", headers=headers).status_code == 404
        assert call(app, "DELETE", f"{PATH}/{body['id']}", headers=headers).status_code == 404
        assert respond(app, "再", previous_response_id=body["id"], headers=headers).status_code == 404
        reference = [{"type": "item_reference", "id": body["output"][0]["id"]}]
        assert respond(app, reference, headers=headers).status_code == 404
    assert [request.hints.tenant for request in model.seen.requests] == ["a"]
    respond(app, headers={**mine, "X-Session-ID": "会话".encode().hex()})
    assert model.seen.requests[-1].hints.run == "会话".encode().hex()
