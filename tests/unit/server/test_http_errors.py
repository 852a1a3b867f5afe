"""Every error leaves in OpenAI's shape with its status; no body, however broken, makes the server fail."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from server_harness import CHAT, app_over, build, call, chat, noted
from structlog.testing import capture_logs

from tenuto.errors import (
    CapacityError,
    ContextLengthError,
    EngineClosed,
    GrammarError,
    InvalidRequest,
    ModelFileError,
    NeverFits,
    QueueFull,
    SessionBusy,
    SessionNotFound,
    TemplateError,
    TenutoError,
)
from tenuto.protocol.chat import ModelInfo
from tenuto.server import ServerLimits

VALID = {"model": "smol", "messages": [{"role": "user", "content": "你好"}]}


def post(body: bytes, limits: ServerLimits = ServerLimits(), **headers: str) -> httpx.Response:
    _, app = build([], limits)
    return call(app, "POST", CHAT, content=body, headers={"Content-Type": "application/json", **headers})


def error_of(response: httpx.Response) -> dict[str, Any]:
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert response.headers["x-request-id"].startswith("req-")
    return body["error"]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InvalidRequest("坏", "messages"), 400, "invalid_request"),
        (ContextLengthError(9000, 8192), 400, "context_length_exceeded"),
        (TemplateError("模板：system must come first"), 400, "template_error"),
        (GrammarError("bad regex"), 400, "grammar_error"),
        (SessionNotFound("gone"), 404, "session_not_found"),
        (SessionBusy("busy"), 409, "session_busy"),
        (NeverFits("needs 9000 tokens of KV, there are 4096"), 400, "never_fits"),
        (QueueFull("1024 requests are waiting"), 429, "rate_limit_exceeded"),
        (CapacityError("no room"), 503, "capacity_error"),
        (EngineClosed("the engine has stopped"), 503, "engine_closed"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_typed_errors_have_their_status(error: TenutoError, status: int, code: str, stream: bool):
    _, app = build([error])
    response = chat(app, stream=stream)
    assert response.status_code == status
    found = error_of(response)
    assert (found["message"], found["code"]) == (str(error), code)
    assert response.headers.get("retry-after") == ("1" if status == 429 else None)


def test_errors_that_are_not_for_clients_are_500_and_logged():
    _, app = build([ModelFileError("/secret/path is broken")])
    with capture_logs() as logs:
        response = chat(app)
    assert response.status_code == 500
    assert "secret" not in response.text
    assert error_of(response)["code"] == "internal_error"
    assert [entry["error"] for entry in noted(logs)] == ["ModelFileError"]
    assert noted(logs)[0]["request_id"] == response.headers["x-request-id"]


def test_unknown_model_and_paths():
    model, app = build([])
    response = chat(app, model="gpt-99")
    assert response.status_code == 404
    error = error_of(response)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "org/smol" in error["message"]
    assert model.seen.requests == []
    assert call(app, "GET", "/v1/models/gpt-99").status_code == 404
    missing = call(app, "GET", "/v1/图片")
    assert (missing.status_code, error_of(missing)["code"]) == (404, "not_found")
    wrong = call(app, "GET", CHAT)
    assert (wrong.status_code, error_of(wrong)["code"], wrong.headers["allow"]) == (405, "method_not_allowed", "POST")


def test_models_and_health():
    _, app = build([])
    listed = call(app, "GET", "/v1/models").json()
    assert [card["id"] for card in listed["data"]] == ["smol", "org/smol", "default"]
    for card in listed["data"]:
        assert call(app, "GET", f"/v1/models/{card['id']}").json() == card
        assert (card["object"], card["max_model_tokens"]) == ("model", 8192)
    assert call(app, "GET", "/health").json() == {"status": "ok", "model": "scripted"}


class Closed:
    async def info(self) -> ModelInfo:
        raise EngineClosed("the engine has stopped")


def test_health_says_when_the_engine_has_stopped():
    response = call(app_over(Closed()), "GET", "/health")
    assert (response.status_code, error_of(response)["code"]) == (503, "engine_closed")


def in_content(raw: bytes) -> bytes:
    return json.dumps(VALID, ensure_ascii=False).encode().replace("你好".encode(), raw)


DEEP = b'{"model": "smol", "messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
BROKEN = {
    "empty": b"",
    "not json": b"hello",
    "cut": in_content(b"x")[:-5],
    "two values": in_content(b"x") * 2,
    "a list": b"[]",
    "null": b"null",
    "invalid utf-8": in_content(b"\xff\xfe"),
    "encoded surrogate": in_content(b"\xed\xa0\x80"),
    "lone high surrogate": in_content(b"\\ud83d"),
    "lone high surrogate, then text": in_content(b"\\ud83d then"),
    "lone low surrogate": in_content(b"\\ude00"),
    "control character": in_content(b"\x00"),
    "NaN": b'{"model": "smol", "temperature": NaN}',
    "infinity": b'{"model": "smol", "temperature": Infinity}',
    "huge float": b'{"model": "smol", "temperature": 1e999}',
    "huge integer": b'{"model": "smol", "seed": ' + b"9" * 5000 + b"}",
    "integer of 65 bits": b'{"model": "smol", "seed": 18446744073709551616}',
    "deep": DEEP,
    "rather deep": b'{"model": "smol", "metadata": ' + b"[" * 150 + b"]" * 150 + b"}",
    "byte order mark": b"\xef\xbb\xbf" + in_content(b"x"),
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN.keys())
def test_broken_bodies_are_400(body: bytes):
    response = post(body)
    assert response.status_code == 400
    assert error_of(response)["type"] == "invalid_request_error"


def test_escapes_that_are_pairs_are_one_character():
    model, app = build(["好"])
    body = in_content(b"\\ud83d\\ude00")
    assert call(app, "POST", CHAT, content=body, headers={"Content-Type": "application/json"}).status_code == 200
    assert model.seen.requests[0].messages[0].content == "😀"


def test_the_body_is_bounded_whether_its_length_is_declared_or_not():
    limits = ServerLimits(max_body_bytes=1000)
    body = in_content(b"x" * 2000)
    assert post(body, limits).status_code == 413

    async def pieces():
        for at in range(0, len(body), 100):
            yield body[at : at + 100]

    _, app = build([], limits)
    response = call(app, "POST", CHAT, content=pieces(), headers={"Content-Type": "application/json"})
    assert (response.status_code, error_of(response)["code"]) == (413, "body_too_large")


def test_the_body_must_be_declared_as_json():
    _, app = build(["好"])
    for media_type in ("text/plain", "application/x-www-form-urlencoded", ""):
        response = call(app, "POST", CHAT, content=in_content(b"x"), headers={"Content-Type": media_type})
        assert response.status_code == 415
        assert "application/json" in error_of(response)["message"]
    response = call(
        app, "POST", CHAT, content=in_content(b"x"), headers={"Content-Type": "Application/JSON; charset=utf-8"}
    )
    assert response.status_code == 200


def test_a_body_that_does_not_arrive_is_given_up():
    async def slow():
        import asyncio

        yield b'{"model"'
        await asyncio.sleep(60)

    _, app = build([], ServerLimits(body_deadline_s=0.01))
    response = call(app, "POST", CHAT, content=slow(), headers={"Content-Type": "application/json"})
    assert (response.status_code, error_of(response)["code"]) == (408, "body_timeout")


def test_the_description_covers_the_routes_and_every_field():
    _, app = build([])
    described = call(app, "GET", "/openapi.json").json()
    assert {CHAT, "/v1/responses", "/v1/models", "/v1/models/{model}", "/health", "/ready"} <= set(described["paths"])
    schemas = described["components"]["schemas"]
    text = json.dumps(described)
    assert all(f'"#/components/schemas/{name}"' in text for name in schemas)
    body = schemas["ChatCompletionBody"]["properties"]
    assert {"messages", "tools", "tool_choice", "temperature", "top_k", "ignore_eos", "stream_options"} <= set(body)
    bodies = [schema for name, schema in schemas.items() if name.endswith("Body")]
    assert len(bodies) >= 5
    assert all(field["description"] for schema in bodies for field in schema["properties"].values())
    assert "Default 1" in body["temperature"]["description"]
    post = described["paths"][CHAT]["post"]
    assert post["requestBody"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/ChatCompletionBody"
    }
    assert "text/event-stream" in post["responses"]["200"]["content"]
    assert {"400", "404", "413", "429", "500", "503"} <= set(post["responses"])
    assert '"422"' not in text
    assert call(app, "GET", "/docs").status_code == 200
