"""/v1/sessions: ids and text in and out, names, errors, and what a client that goes away leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from session_harness import BINARY, SESSIONS, Desk, key_of, with_sessions
from structlog.testing import capture_logs

from chat_harness import END, TOKENIZER, said
from tenuto.chat import LocalSessionClient
from tenuto.errors import EngineClosed, InvalidRequest
from tenuto.ids import SessionId, TokenId
from tenuto.server import ServerLimits
from tenuto.server.limits import SessionLimits

PROMPT = "<|im_start|>user\n北京明天天气怎么样？<|im_end|>\n<|im_start|>assistant\n"
S = SessionId("s")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


def test_a_tool_loop_computes_only_what_is_new() -> None:
    async def body(desk: Desk) -> None:
        opened = await desk.post("", id="s", run="r1")
        assert (opened["id"], opened["object"], opened["num_tokens"], opened["run"]) == ("s", "session", 0, "r1")
        first = await desk.post("/s/generate", text=PROMPT, control=True, temperature=0, max_tokens=20)
        prompt = TOKENIZER.encode_with_control(PROMPT)
        assert first["input_ids"] == prompt and first["session"] == "s"
        assert first["token_ids"] == said("我查一下。") and first["text"] == "我查一下。"
        assert (first["finish_reason"], first["stop_reason"]) == ("stop", END)
        assert first["usage"]["prompt_tokens_details"]["computed_tokens"] == len(prompt)
        assert (await desk.post("/s/suspend", seconds=3, reason="get_weather"))["num_tokens"] > 0
        assert desk.engine.suspends[0][1].reason == "get_weather"
        added = await desk.post("/s/append", text="晴，最高 21 度<|im_end|>")
        assert END not in added["input_ids"] and TOKENIZER.decode(added["input_ids"]) == "晴，最高 21 度<|im_end|>"
        last = await desk.post("/s/generate", token_ids=[END, 198], temperature=0)
        usage = last["usage"]
        assert last["text"] == "晴。" and usage["prompt_tokens_details"]["computed_tokens"] == 2
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        told = await desk.get("/s")
        assert told["num_tokens"] == len(desk.engine.sessions[S]) == usage["total_tokens"]
        tokens = await desk.get("/s/tokens")
        assert tokens["token_ids"] == list(desk.engine.sessions[S]) and tokens["text"].startswith(PROMPT)
        assert (await desk.delete("/s"))["deleted"] and not desk.engine.sessions
        assert "no session 's'" in (await desk.get("/s", 404))["error"]["message"]

    with_sessions(body, [said("我查一下。"), said("晴。")])


def test_a_stream_says_what_the_whole_answer_says() -> None:
    async def body(desk: Desk) -> None:
        answers = []
        for name in ("a", "b"):
            await desk.post("", id=name)
            fields = {"text": PROMPT, "control": True, "logprobs": True, "top_logprobs": 2, "stop": ["。后"]}
            if name == "a":
                answers.append(await desk.post("/a/generate", **fields))
                continue
            events = await desk.events("/b/generate", **fields)
            assert events.pop() == "[DONE]"
            assert {event["object"] for event in events} == {"session.generation.chunk"}
            assert [event["finish_reason"] for event in events][:-1] == [None] * (len(events) - 1)
            ids = [token for event in events for token in event["token_ids"]]
            scores = [one for e in events for one in (e.get("logprobs") or {"content": []})["content"]]
            answers.append(
                events[-1]
                | {"token_ids": ids, "text": "".join(e["text"] for e in events)}
                | {"logprobs": {"content": scores, "refusal": None}}
            )
        whole, streamed = ({k: v for k, v in a.items() if k not in ("id", "object", "session")} for a in answers)
        assert streamed | {"usage": None} == whole | {"usage": None}
        assert whole["text"] == "今天天气很好" and whole["stop_reason"] == "。后"
        assert desk.engine.sessions[SessionId("a")] == desk.engine.sessions[SessionId("b")]
        assert (await desk.get("/a/tokens"))["text"] == PROMPT + "今天天气很好"

    with_sessions(body, [said("今天天气很好。后天下雨"), said("今天天气很好。后天下雨")])


def test_a_stop_string_cuts_session_and_text_at_the_same_place() -> None:
    """Also where it begins within a token: what stands before it is encoded anew."""
    word = TOKENIZER.encode(" international")
    assert len(word) == 1

    async def body(desk: Desk) -> None:
        await desk.post("", id="s")
        answer = await desk.post("/s/generate", text="An", stop=["nation"])
        assert answer["text"] == " inter" and answer["stop_reason"] == "nation"
        assert TOKENIZER.decode(answer["token_ids"]) == " inter"
        held = (await desk.get("/s/tokens"))["token_ids"]
        assert held == answer["input_ids"] + answer["token_ids"]
        assert answer["usage"]["prompt_tokens_details"]["computed_tokens"] == len(answer["input_ids"])
        assert (await desk.get("/s"))["num_tokens"] == len(held)
        assert (await desk.post("/s/generate", max_tokens=1))["usage"]["prompt_tokens"] == len(held)

    with_sessions(body, [[*word, *said("x")], said("y")])


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("stop", ["界", "，世", "世界！再见", "!", "没有", "👨‍👩‍👧", "d👨"])
def test_however_ids_come_text_and_session_agree(size: int, stop: str) -> None:
    text = "你好，世界！再见, world👨‍👩‍👧!"

    async def body(desk: Desk) -> None:
        await desk.post("", id="s")
        answer = await desk.post("/s/generate", token_ids=[1], stop=[stop])
        want = text.split(stop, maxsplit=1)[0]
        assert answer["text"] == want
        stopped_by_id = answer["stop_reason"] == END
        assert stopped_by_id == (stop not in text)
        ids = answer["token_ids"][:-1] if stopped_by_id else answer["token_ids"]
        assert TOKENIZER.decode(ids) == want
        assert list(desk.engine.sessions[S]) == [1, *answer["token_ids"]]

    with_sessions(body, [said(text)], ids_per_delta=size)


def test_half_characters_wait_for_their_other_half() -> None:
    async def body(desk: Desk) -> None:
        await desk.post("", id="s")
        events = await desk.events("/s/generate", token_ids=[1])
        texts = [event["text"] for event in events[:-2]]
        assert "".join(texts) == "👨‍👩‍👧家" and not any("\ufffd" in text for text in texts)
        assert [t for e in events[:-1] for t in e["token_ids"]] == said("👨‍👩‍👧家")

    with_sessions(body, [said("👨‍👩‍👧家")])


def test_forks_share_and_truncate_forgets() -> None:
    async def body(desk: Desk) -> None:
        await desk.post("", id="s", run="r", priority=3)
        await desk.post("/s/append", token_ids=list(range(40)))
        fork = await desk.post("/s/fork", id="f")
        assert (fork["parent"], fork["num_tokens"], fork["run"]) == ("s", 40, "r")
        other = await desk.post("", parent="s", run="r2")
        assert other["id"].startswith("sess-") and other["run"] == "r2"
        assert (await desk.post("/f/truncate", num_tokens=7))["num_tokens"] == 7
        assert (await desk.get("/s"))["num_tokens"] == 40
        assert (await desk.post("/f/truncate", 400, num_tokens=8))["error"]["type"] == "invalid_request_error"
        await desk.post("/none/fork", 404)
        await desk.post("", 404, parent="none")
        await desk.post("/s/fork", 409, id="f")

    with_sessions(body)


def test_sessions_are_listed_in_pages() -> None:
    async def body(desk: Desk) -> None:
        for i in range(5):
            await desk.post("", id=f"s{i}")
        page = await desk.get("?limit=2")
        assert [one["id"] for one in page["data"]] == ["s4", "s3"] and page["has_more"]
        page = await desk.get(f"?limit=3&after={page['last_id']}")
        assert [one["id"] for one in page["data"]] == ["s2", "s1", "s0"] and not page["has_more"]
        await desk.get("?after=gone", 404)
        for limit in ("0", "101", "x"):
            error = (await desk.get(f"?limit={limit}", 400))["error"]
            assert error["param"] == "limit" and error["message"].startswith("limit: Input should be")

    with_sessions(body)


def test_an_export_that_breaks_off_ends_its_connection_and_is_no_failure_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(self: LocalSessionClient, session: SessionId) -> AsyncIterator[bytes]:
        yield b"begin"
        raise EngineClosed("the engine has stopped")

    monkeypatch.setattr(LocalSessionClient, "export", broken)
    path = f"{SESSIONS}/s/export"
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": [(name.lower().encode(), value.encode()) for name, value in key_of("").items()]}
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    async def body(desk: Desk) -> None:
        await desk.post("", id="s")
        with capture_logs() as logs:
            await desk.app(scope, receive, send)
        assert [(one["type"], one.get("more_body")) for one in sent] == [
            ("http.response.start", None),
            ("http.response.body", True),
        ]
        (line,) = logs
        assert (line["event"], line["error"]) == ("request", "engine_closed")

    with_sessions(body)


def test_an_exported_session_comes_back() -> None:
    async def body(desk: Desk) -> None:
        await desk.post("", id="s")
        await desk.post("/s/generate", text=PROMPT, control=True)
        data = await desk.export("/s")
        for method, name in (("PUT", "a"), ("POST", "b")):
            answer = await desk.http.request(
                method, f"{SESSIONS}/{name}/import", content=data, headers=BINARY | key_of("")
            )
            assert answer.status_code == 200, answer.text
            assert answer.json()["num_computed_tokens"] == (await desk.get("/s"))["num_computed_tokens"]
            assert desk.engine.sessions[SessionId(name)] == desk.engine.sessions[S]
        answer = await desk.http.put(f"{SESSIONS}/a/import", content=data, headers=BINARY | key_of(""))
        assert answer.status_code == 409

    with_sessions(body, [said("好。")])


@pytest.mark.parametrize(
    ("name", "headers", "content", "status"),
    [
        ("x", {"Content-Type": "text/plain"}, b"{}", 415),
        ("x", BINARY, b"no session", 400),
        ("x", BINARY, b"", 400),
        ("x" * 129, BINARY, b"[[],0]", 400),
        ("x", BINARY, b"[" * 5000, 413),
        ("x", BINARY | {"Content-Length": "99999999"}, b"[[],0]", 413),
    ],
)
def test_what_cannot_be_imported_is_refused_and_leaves_nothing(
    name: str, headers: dict[str, str], content: bytes, status: int
) -> None:
    async def body(desk: Desk) -> None:
        answer = await desk.http.put(f"{SESSIONS}/{name}/import", content=content, headers=headers | key_of(""))
        assert answer.status_code == status and answer.json()["error"]["message"], answer.text
        assert not desk.engine.sessions and not (await desk.get())["data"]

    with_sessions(body, limits=ServerLimits(sessions=SessionLimits(max_import_bytes=4096)))


def test_an_import_that_does_not_arrive_is_given_up() -> None:
    async def body(desk: Desk) -> None:
        async def slow() -> object:
            yield b"[["
            await asyncio.sleep(5)

        answer = await desk.http.put(f"{SESSIONS}/x/import", content=slow(), headers=BINARY | key_of(""))  # type: ignore[arg-type]
        assert answer.status_code == 408, answer.text
        await desk.post("", id="x")

    with_sessions(body, limits=ServerLimits(sessions=SessionLimits(import_deadline_s=0.05)))


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("", {"id": ""}, "id"),
        ("", {"id": "with space"}, "id"),
        ("", {"id": "名字"}, "id"),
        ("", {"id": "a/b"}, "id"),
        ("", {"id": 5}, "id"),
        ("", {"priority": 11}, "priority"),
        ("/s/append", {}, "token_ids"),
        ("/s/append", {"token_ids": []}, "token_ids"),
        ("/s/append", {"token_ids": [1], "text": "x"}, "text"),
        ("/s/append", {"token_ids": [1, -1]}, "token_ids[1]"),
        ("/s/append", {"token_ids": ["1"]}, "token_ids[0]"),
        ("/s/append", {"token_ids": [1], "control": True}, "control"),
        ("/s/generate", {"token_ids": [1], "max_tokens": 0}, "max_tokens"),
        ("/s/generate", {"token_ids": [1], "stop": [""]}, "stop"),
        ("/s/generate", {"token_ids": [1], "top_logprobs": 2}, "top_logprobs"),
        ("/s/generate", {"token_ids": [1], "stop_token_ids": [2**40]}, "stop_token_ids[0]"),
        ("/s/generate", {"token_ids": [1], "n": 2}, "n"),
        ("/s/generate", {"token_ids": [1], "response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            "/s/generate",
            {
                "token_ids": [1],
                "grammar": {"kind": "regex", "source": "a"},
                "response_format": {"type": "json_object"},
            },
            "grammar",
        ),
        ("/s/suspend", {"seconds": -1}, "seconds"),
        ("/s/truncate", {}, "num_tokens"),
        ("/s/truncate", {"num_tokens": -1}, "num_tokens"),
        ("", {"id": "t", "paernt": "s"}, "paernt"),
        ("", {"id": "t", "text": "x"}, "text"),
        ("/s/fork", {"num_tokens": 1}, "num_tokens"),
        ("/s/append", {"token_ids": [1], "txt": "x"}, "txt"),
        ("/s/append", {"ids": [1]}, "ids"),
        ("/s/generate", {"token_ids": [1], "max_token": 3}, "max_token"),
        ("/s/generate", {"token_ids": [1], "停": None}, "停"),
        ("/s/generate", {"messages": [{"role": "user", "content": "好"}]}, "messages"),
        ("/s/generate", {"token_ids": [1], "grammar": {"kind": "regex", "source": "a", "flags": "i"}}, "grammar.flags"),
        ("/s/suspend", {"second": 1}, "second"),
        ("/s/truncate", {"num_token": 0}, "num_token"),
        ("/s/generate", {}, "token_ids"),
        ("/s/truncate", {"num_tokens": 3}, "num_tokens"),
        ("/s/generate", {"token_ids": [1], "grammar": "x"}, "grammar"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(path: str, fields: dict[str, object], param: str) -> None:
    async def body(desk: Desk) -> None:
        await desk.post("", id="s")
        error = (await desk.post(path, 400, **fields))["error"]
        assert error["param"] == param and error["type"] == "invalid_request_error"
        assert list(desk.engine.sessions.values()) == [()]

    with_sessions(body)


@pytest.mark.parametrize(
    ("path", "theirs", "ours"),
    [
        ("/s/append", "ids", "token_ids"),
        ("/s/generate", "ids", "token_ids"),
        ("/s/generate", "stop_ids", "stop_token_ids"),
        ("/s/generate", "top_k", "top_k"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_the_engine_refuses_is_named_as_the_client_sent_it(
    path: str, theirs: str, ours: str, stream: bool
) -> None:
    def refuse(name: str, _: int) -> Exception | None:
        is_asked = name in ("append", "generate")
        return InvalidRequest("token id 9 is out of range", theirs) if is_asked else None

    async def body(desk: Desk) -> None:
        await desk.post("", id="s")
        desk.engine.fault = refuse
        fields = {"stream": stream} if path.endswith("generate") else {}
        error = (await desk.post(path, 400, token_ids=[9], **fields))["error"]
        assert error["param"] == ours and "token id 9" in error["message"]

    with_sessions(body)


def test_unknown_sessions_and_lost_ones_are_404() -> None:
    async def body(desk: Desk) -> None:
        for path, fields in (
            ("/x/append", {"token_ids": [1]}),
            ("/x/generate", {"token_ids": [1]}),
            ("/x/suspend", {}),
            ("/x/truncate", {"num_tokens": 0}),
        ):
            assert (await desk.post(path, 404, **fields))["error"]["code"] == "session_not_found"
        for path in ("/x", "/x/tokens", "/x/export"):
            await desk.get(path, 404)
        await desk.delete("/x", 404)
        await desk.post("", id="x")
        desk.engine.lose(SessionId("x"))
        await desk.post("/x/append", 404, token_ids=[1])
        await desk.post("", id="x")

    with_sessions(body)


def test_one_call_at_a_time_and_a_deleted_session_ends_its_call() -> None:
    async def body(desk: Desk) -> None:
        await desk.post("", id="s")
        await desk.post("", 409, id="s")
        call = desk.http.post(SESSIONS + "/s/generate", json={"token_ids": [1]}, headers=key_of(""))
        running = asyncio.create_task(call)
        await until(lambda: bool(desk.engine.sessions[S]))
        assert (await desk.post("/s/append", 409, token_ids=[1]))["error"]["code"] == "session_busy"
        await desk.post("/s/truncate", 409, num_tokens=0)
        await desk.post("/s/fork", 409)
        assert (await desk.get("/s"))["num_tokens"] > 0
        await desk.delete("/s")
        answer = await running
        assert answer.status_code == 409 and answer.json()["error"]["code"] == "cancelled"
        assert not desk.engine.sessions
        await desk.post("", id="s")

    with_sessions(body, lambda tokens: TokenId(len(tokens) % 100 + 5), max_model_tokens=1 << 20)


def test_a_session_that_is_still_being_imported_is_busy_not_gone() -> None:
    async def body(desk: Desk) -> None:
        await desk.post("", id="s")
        await desk.post("/s/append", token_ids=[1, 2, 3])
        data = await desk.export("/s")
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def slowly() -> AsyncIterator[bytes]:
            yield data[:3]
            begun.set()
            await may_end.wait()
            yield data[3:]

        call = desk.http.put(f"{SESSIONS}/t/import", content=slowly(), headers=BINARY | key_of(""))
        importing = asyncio.create_task(call)
        await begun.wait()
        errors = [await desk.get(path, 409) for path in ("/t", "/t/tokens", "/t/export")]
        for path, fields in (("append", {"token_ids": [1]}), ("generate", {}), ("truncate", {"num_tokens": 0})):
            errors.append(await desk.post(f"/t/{path}", 409, **fields))
        errors += [await desk.post("/t/fork", 409), await desk.post("/t/suspend", 409)]
        for error in errors:
            assert error["error"]["code"] == "session_busy", error
            assert "gone" not in error["error"]["message"]
        may_end.set()
        assert (await importing).status_code == 200
        assert (await desk.get("/t/tokens"))["token_ids"] == [1, 2, 3]

    with_sessions(body)


async def call_and_leave(desk: Desk, path: str, body: dict[str, object], leave: Callable[[], bool]) -> None:
    """A POST whose client closes its connection as soon as `leave` says so."""
    data = json.dumps(body).encode()
    pieces = [{"type": "http.request", "body": data, "more_body": False}]

    async def receive() -> Any:
        if pieces:
            return pieces.pop()
        await until(leave)
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        pass

    headers = [(b"content-type", b"application/json"), (b"authorization", b"Bearer nobody"), (b"host", b"tenuto")]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    await desk.app({**scope, "headers": headers, "http_version": "1.1", "client": None, "state": {}}, receive, send)


def test_a_client_that_goes_away_cancels_its_call() -> None:
    async def body(desk: Desk) -> None:
        await desk.post("", id="s")
        for stream in (False, True):
            before = len(desk.engine.sessions[S])
            fields = {"token_ids": [1], "stream": stream}
            await call_and_leave(
                desk, SESSIONS + "/s/generate", fields, lambda n=before + 3: len(desk.engine.sessions[S]) >= n
            )
            kept = len(desk.engine.sessions[S])
            await asyncio.sleep(0.01)
            assert before + 3 <= len(desk.engine.sessions[S]) == kept
            await desk.post("/s/truncate", num_tokens=kept)

    with_sessions(body, lambda tokens: TokenId(len(tokens) % 100 + 5), max_model_tokens=1 << 20)


def test_the_engine_s_own_errors_have_their_status() -> None:
    async def body(desk: Desk) -> None:
        await desk.post("", id="s")
        error = (await desk.post("/s/append", 400, token_ids=[1] * 65))["error"]
        assert error["code"] == "context_length_exceeded"
        error = (await desk.post("/s/append", 400, text="字" * 10_000))["error"]
        assert error["code"] == "context_length_exceeded"
        assert desk.engine.sessions[S] == ()

    with_sessions(body, max_model_tokens=64)


def test_what_the_description_lists_is_what_is_served() -> None:
    async def body(desk: Desk) -> None:
        paths = desk.app.openapi()["paths"]
        ours = {path: sorted(methods) for path, methods in paths.items() if path.startswith(SESSIONS)}
        assert ours[SESSIONS] == ["get", "post"] and ours[SESSIONS + "/{id}/import"] == ["post", "put"]
        assert len(ours) == 10
        body_schema = paths[SESSIONS + "/{id}/generate"]["post"]["requestBody"]
        name = body_schema["content"]["application/json"]["schema"]["$ref"].split("/")[-1]
        assert "stop_token_ids" in desk.app.openapi()["components"]["schemas"][name]["properties"]

    with_sessions(body)


def test_sampling_defaults_and_stop_ids_reach_the_engine() -> None:
    async def body(desk: Desk) -> None:
        await desk.post("", id="s", run="r", parent_run="p", priority=2)
        ids: Sequence[int] = [7, 9]
        await desk.post("/s/generate", token_ids=[1], stop_token_ids=ids, seed=3, top_k=4)
        await desk.post("/s/generate", token_ids=[1], ignore_eos=True, priority=-1, max_tokens=2)
        first, second = desk.engine.params
        assert first.stop_ids == frozenset((*ids, *TOKENIZER.eos_ids)) and first.sampling.seed == 3
        assert (first.sampling.temperature, first.sampling.top_k) == (1.0, 4)
        assert (first.hints.run, first.hints.parent, first.hints.priority) == ("r", "p", 2)
        assert second.stop_ids == frozenset() and second.hints.priority == -1

    with_sessions(body, [said("一"), said("二")])
