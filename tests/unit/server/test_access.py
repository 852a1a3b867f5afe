"""Who is let in: keys, names of this machine, exposure, browsers; and what the refused see."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_harness import CHAT, call
from structlog.testing import capture_logs

from tenuto.clock import RealClock
from tenuto.errors import ConfigError, QueueFull
from tenuto.ids import IdSource
from tenuto.protocol.chat import ChatRequest
from tenuto.server import Operations, ServerLimits, create_app
from tenuto.server.access import AccessRules, check_exposure, is_loopback
from tenuto.server.keys import ApiKeys, KeyFile, make_key
from tenuto.testing.scripted_model import Reply, ScriptedModel

BODY = {"model": "smol", "messages": [{"role": "user", "content": "你好"}]}
CANARY = "canary-4f1d0c2b9a77"


def app_with(script: Any = None, **operations: Any):
    model = ScriptedModel(script if script is not None else (lambda _: "好"))
    options = Operations(**operations)
    return create_app(model, served_names=("smol",), clock=RealClock(), ids=IdSource(1), operations=options)


@pytest.fixture
def keyed(tmp_path: Path) -> tuple[Any, str]:
    key, record = make_key("alice", "2026-11-30", random.Random(3).randbytes)
    file = KeyFile(tmp_path / "keys.json")
    file.add(record)
    keys = ApiKeys(file=file, single=CANARY, clock=RealClock())
    return app_with(rules=AccessRules(keys=keys)), key


def post(app: Any, *headers: tuple[str, str]) -> httpx.Response:
    return call(app, "POST", CHAT, json=BODY, headers=list(headers))


def test_a_key_is_needed_everywhere_but_for_probes_and_the_description(keyed: tuple[Any, str]):
    app, key = keyed
    for method, path in (("POST", CHAT), ("GET", "/v1/models"), ("GET", "/metrics"), ("GET", "/nowhere")):
        response = call(app, method, path)
        assert response.status_code == 401, path
        assert response.headers["www-authenticate"] == "Bearer"
        error = response.json()["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
        assert "Authorization" in error["message"]
    for path in ("/health", "/ready", "/docs", "/openapi.json"):
        assert call(app, "GET", path).status_code == 200, path
    assert post(app, ("Authorization", f"Bearer {key}")).status_code == 200
    assert post(app, ("authorization", f"bearer  {key} ")).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        [("Authorization", "Bearer")],
        [("Authorization", "Bearer ")],
        [("Authorization", f"Basic {CANARY}")],
        [("Authorization", CANARY)],
        [("Authorization", f"Bearer {CANARY}x")],
        [("Authorization", f"Bearer x{CANARY}")],
        [("Authorization", f"Bearer {CANARY}"), ("Authorization", f"Bearer {CANARY}")],
        [("Authorization", "Bearer " + "k" * 5000)],
        [("X-API-Key", CANARY)],
    ],
)
def test_anything_but_one_known_key_is_refused_and_not_repeated(keyed: tuple[Any, str], headers: list[tuple[str, str]]):
    """B67: a wrong key, which may be the right one of another server, is not told to anybody either."""
    app, _ = keyed
    with capture_logs() as logs:
        response = post(app, *headers)
    assert response.status_code == 401
    for shown in (response.text, str(response.headers), str(logs)):
        assert CANARY not in shown and "kkkk" not in shown


def test_the_tenant_is_the_keys(keyed: tuple[Any, str]):
    app, key = keyed
    seen: list[str] = []

    async def asgi(scope: dict[str, Any], receive: Any, send: Any) -> None:
        seen.append(scope["state"]["tenant"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    app.router.default = asgi
    call(app, "GET", "/whose", headers={"Authorization": f"Bearer {key}"})
    call(app, "GET", "/whose", headers={"Authorization": f"Bearer {CANARY}"})
    assert seen == ["alice", "default"]
    open_app = app_with()
    open_app.router.default = asgi
    call(open_app, "GET", "/whose", headers={"Authorization": "Bearer anything"})
    assert seen[-1] == ""


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LOCALHOST.", "a.localhost"])
def test_names_of_this_machine(host: str):
    assert is_loopback(host)
    assert check_exposure(host, has_keys=False, allow_anonymous=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com", "localhost.example.com", ""])
def test_other_addresses_need_keys_or_the_word_that_it_is_meant(host: str):
    assert not is_loopback(host)
    with pytest.raises(ConfigError, match=r"tenuto keys new.*--allow-anonymous"):
        check_exposure(host, has_keys=False, allow_anonymous=False)
    assert not check_exposure(host, has_keys=True, allow_anonymous=False)
    assert not check_exposure(host, has_keys=False, allow_anonymous=True)


def test_without_keys_only_names_of_this_machine_are_answered():
    """DNS rebinding: a page of another site gives its own name our address; its requests then bear that name."""
    app = app_with(rules=AccessRules(loopback_names_only=True))
    for host in ("localhost:8000", "127.0.0.1", "[::1]:8000", "127.0.0.1:1"):
        assert post(app, ("Host", host)).status_code == 200, host
    for host in ("evil.example:8000", "evil.example", "127.0.0.1.evil.example", ""):
        response = post(app, ("Host", host))
        assert response.status_code == 401, host
        assert "localhost" in response.json()["error"]["message"]


def test_pages_of_other_sites_are_let_in_only_if_they_are_named():
    preflight = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    preflight["Access-Control-Request-Headers"] = "authorization,content-type"
    closed = call(app_with(), "OPTIONS", CHAT, headers=preflight)
    assert "access-control-allow-origin" not in closed.headers
    app = app_with(cors_origins=("https://app.example",))
    allowed = call(app, "OPTIONS", CHAT, headers=preflight)
    assert allowed.headers["access-control-allow-origin"] == "https://app.example"
    assert "authorization" in allowed.headers["access-control-allow-headers"].lower()
    other = call(app, "OPTIONS", CHAT, headers={**preflight, "Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in other.headers
    answer = call(app, "POST", CHAT, json=BODY, headers={"Origin": "https://app.example"})
    assert answer.headers["access-control-allow-origin"] == "https://app.example"


def test_too_much_at_once_is_429_with_a_time_to_come_back():
    async def main() -> None:
        app = app_with(lambda _: Reply("好", delay_s=0.3), limits=ServerLimits(max_requests=2))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://tenuto") as client:
            answers = await asyncio.gather(*(client.post(CHAT, json=BODY) for _ in range(5)))
            assert sorted(answer.status_code for answer in answers) == [200, 200, 429, 429, 429]
            for answer in answers:
                if answer.status_code == 429:
                    assert int(answer.headers["retry-after"]) >= 1
                    assert answer.json()["error"]["code"] == "rate_limit_exceeded"
            assert (await client.get("/v1/models")).status_code == 200
            assert (await client.post(CHAT, json=BODY)).status_code == 200

    asyncio.run(main())


def test_one_tenants_flood_leaves_places_for_others(tmp_path: Path):
    made = [make_key(tenant, "2026-11-30", random.Random(n).randbytes) for n, tenant in enumerate(("alice", "bob"))]
    file = KeyFile(tmp_path / "keys.json")
    for _, record in made:
        file.add(record)
    alice, bob = (key for key, _ in made)
    app = app_with(
        lambda _: Reply("好", delay_s=0.3),
        limits=ServerLimits(max_requests=10, max_tenant_requests=3),
        rules=AccessRules(keys=ApiKeys(file=file, clock=RealClock())),
    )

    async def main() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tenuto") as client:

            async def ask(key: str) -> int:
                headers = {"Authorization": f"Bearer {key}"}
                return (await client.post(CHAT, json=BODY, headers=headers)).status_code

            answers = await asyncio.gather(*(ask(alice) for _ in range(8)), *(ask(bob) for _ in range(3)))
            assert sorted(answers[:8]) == [200] * 3 + [429] * 5
            assert answers[8:] == [200] * 3

    asyncio.run(main())


def test_a_full_queue_behind_the_model_has_a_time_to_come_back_too():
    app = app_with([QueueFull("1024 requests are waiting already")])
    response = call(app, "POST", CHAT, json=BODY)
    assert response.status_code == 429
    assert 1 <= int(response.headers["retry-after"]) <= 60


LIMITS = ServerLimits(max_messages=3, max_tools=2, max_output_tokens=20)
TOOL = {"type": "function", "function": {"name": "t", "parameters": {"type": "object", "properties": {}}}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": BODY["messages"] * 4}, "messages"),
        ({"tools": [{**TOOL, "function": {"name": f"t{n}"}} for n in range(3)]}, "tools"),
        ({"max_tokens": 21}, "max_tokens"),
        ({"max_completion_tokens": 10**9, "stream": True}, "max_tokens"),
    ],
)
def test_more_than_is_allowed_is_400_and_names_the_field(fields: dict[str, Any], param: str):
    response = call(app_with(limits=LIMITS), "POST", CHAT, json={**BODY, **fields})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_a_reply_is_never_longer_than_the_limit():
    asked: list[ChatRequest] = []

    def script(request: ChatRequest) -> str:
        asked.append(request)
        return "字" * 1000

    answer = call(app_with(script, limits=LIMITS), "POST", CHAT, json=BODY).json()
    assert asked[0].max_tokens == 20
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 20


def test_the_settings_never_show_a_key(monkeypatch: pytest.MonkeyPatch):
    from tenuto.config import Config

    monkeypatch.setenv("TENUTO_API_KEY", CANARY)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization={CANARY}")
    config = Config.load()
    assert config.api_key is not None and config.api_key.get_secret_value() == CANARY
    assert CANARY not in repr(config) + str(config) + str(config.model_dump(mode="json"))
