"""Metrics of requests and of the engine: right numbers, few labels, all of them documented."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tenuto.clock import RealClock
from tenuto.errors import QueueFull
from tenuto.ids import IdSource
from tenuto.protocol.counters import EngineCounters, EngineLevels, StepSizes
from tenuto.server import Operations, OtherClients, create_app
from tenuto.telemetry import ServerMetrics, Telemetry
from tenuto.testing.scripted_engine import ScriptedEngine
from tenuto.testing.scripted_model import Reply, ScriptedModel

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "smol", "messages": [{"role": "user", "content": "你好"}]}
DOCS = (Path(__file__).parents[3] / "docs" / "telemetry.md").read_text(encoding="utf-8")
ALLOWED_LABELS = {
    "method": {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other"},
    "operation": {"chat", "text_completion", "generate", "embeddings", "rerank"},
    "finish": {"stop", "length", "tool_calls", "grammar", "error", "cancelled"},
    "source": {"held", "shared", "computed", "sampled", "forced", "accepted"},
    "state": {"waiting", "running", "suspended", "other", "free", "cached", "owned", "shared"},
    "reason": {"for_better_ranked", "no_room_to_go_on", "cached_block", "idle_session", "waiting_request"},
}
BOUNDED_LABELS = {*ALLOWED_LABELS, "route", "status", "kind", "le", "model", "device", "precision"}


def served(script: Any) -> tuple[Any, ServerMetrics]:
    clock = RealClock()
    telemetry = Telemetry(clock)
    app = create_app(
        ScriptedModel(script),
        served_names=("smol",),
        clock=clock,
        ids=IdSource(1),
        others=OtherClients(engine=ScriptedEngine([])),
        operations=Operations(telemetry=telemetry),
    )
    return app, telemetry.metrics


def ask(app: Any, *requests: tuple[str, str, Any]) -> list[httpx.Response]:
    async def main() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tenuto") as client:
            return [await client.request(method, path, json=body) for method, path, body in requests]

    return asyncio.run(main())


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(app: Any, name: str, **labels: str) -> float:
    (response,) = ask(app, ("GET", "/metrics", None))
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    return samples(response.text)[(name, tuple(sorted(labels.items())))]


def test_requests_tokens_and_times_are_counted():
    app, _ = served(lambda _: Reply("你好世界你好世界", piece_delay_s=0.001))
    for body in (BODY, {**BODY, "stream": True}, {**BODY, "n": 2}):
        ask(app, ("POST", CHAT, body))
    assert value(app, "tenuto_http_requests_total", method="POST", route=CHAT, status="200") == 3
    assert value(app, "tenuto_replies_total", operation="chat", finish="stop") == 4
    assert value(app, "tenuto_output_tokens_total", source="sampled") == 4 * 3
    assert value(app, "tenuto_prompt_tokens_total", source="computed") == 3 * 2
    assert value(app, "tenuto_time_to_first_token_seconds_count", operation="chat") == 3
    assert value(app, "tenuto_time_per_output_token_seconds_count", operation="chat") == 4
    assert value(app, "tenuto_queue_seconds_count", operation="chat") == 3
    assert value(app, "tenuto_http_requests_open") == 1, "the one that asks"


def test_errors_are_counted_by_kind():
    replies: list[Any] = [QueueFull("full"), ValueError("secret"), Reply("好", error=QueueFull("late"))]

    class Failing(ScriptedModel):
        async def stream(self, request: Any):
            reply = replies.pop(0)
            if isinstance(reply, ValueError):
                raise reply
            self._script = [reply]
            self._played = 0
            async for event in super().stream(request):
                yield event

    app, _ = served([])
    failing = create_app(Failing([]), served_names=("smol",), clock=RealClock(), ids=IdSource(1))
    ask(failing, ("POST", CHAT, BODY), ("POST", CHAT, BODY), ("POST", CHAT, {**BODY, "stream": True}))
    ask(failing, ("POST", CHAT, {"model": "smol"}), ("GET", "/nowhere", None), ("POST", CHAT, {**BODY, "model": "x"}))
    assert value(failing, "tenuto_errors_total", kind="queue_full") == 2
    assert value(failing, "tenuto_errors_total", kind="internal_error") == 1
    assert value(failing, "tenuto_errors_total", kind="invalid_request") == 1
    assert value(failing, "tenuto_errors_total", kind="unknown_model") == 1
    assert value(failing, "tenuto_errors_total", kind="not_found") == 1
    assert value(failing, "tenuto_replies_total", operation="chat", finish="error") == 3
    assert value(app, "tenuto_engine_up") == 1


COUNTERS = EngineCounters(
    num_steps=7,
    num_computed_tokens=50,
    num_sampled_tokens=9,
    num_preemptions=5,
    num_preempted_for_others=2,
    num_discards=4,
    num_discarded_idle=1,
    num_evictions=11,
    step_requests=StepSizes(counts=(3, 4, *[0] * 11, 2), total=9000),
    levels=EngineLevels(
        num_waiting=3,
        num_running=2,
        num_sessions=9,
        num_suspended=4,
        num_blocks=64,
        num_blocks_free=30,
        num_blocks_cached=20,
        num_blocks_owned=10,
        num_blocks_shared=4,
    ),
)


def test_the_engines_counters_are_told_as_they_are():
    told = samples(ServerMetrics().exposition(COUNTERS).decode())
    expected = {
        ("tenuto_engine_up", ()): 1,
        ("tenuto_engine_steps_total", ()): 7,
        ("tenuto_engine_tokens_total", (("kind", "computed"),)): 50,
        ("tenuto_engine_preemptions_total", (("reason", "for_better_ranked"),)): 2,
        ("tenuto_engine_preemptions_total", (("reason", "no_room_to_go_on"),)): 3,
        ("tenuto_engine_evictions_total", (("reason", "cached_block"),)): 11,
        ("tenuto_engine_evictions_total", (("reason", "idle_session"),)): 1,
        ("tenuto_engine_evictions_total", (("reason", "waiting_request"),)): 3,
        ("tenuto_engine_requests", (("state", "waiting"),)): 3,
        ("tenuto_engine_sessions", (("state", "suspended"),)): 4,
        ("tenuto_engine_sessions", (("state", "other"),)): 5,
        ("tenuto_engine_step_requests_bucket", (("le", "1.0"),)): 3,
        ("tenuto_engine_step_requests_bucket", (("le", "2.0"),)): 7,
        ("tenuto_engine_step_requests_bucket", (("le", "4096.0"),)): 7,
        ("tenuto_engine_step_requests_bucket", (("le", "+Inf"),)): 9,
        ("tenuto_engine_step_requests_count", ()): 9,
        ("tenuto_engine_step_requests_sum", ()): 9000,
    }
    assert {key: told[key] for key in expected} == expected
    blocks = [count for (name, _), count in told.items() if name == "tenuto_engine_kv_blocks"]
    assert sum(blocks) == COUNTERS.levels.num_blocks


def test_a_stopped_engine_is_down_and_the_rest_is_still_told():
    told = samples(ServerMetrics().exposition(None).decode())
    assert told[("tenuto_engine_up", ())] == 0
    assert not any(name.startswith("tenuto_engine_steps") for name, _ in told)
    assert ("tenuto_http_requests_open", ()) in told


def test_no_client_can_make_a_series():
    """Paths, methods, names and ids are the clients'; none of them becomes a label."""
    app, metrics = served(lambda _: "好")
    rng = random.Random(5)
    word = lambda: "".join(rng.choices("abcdefgh", k=8))  # noqa: E731

    def round_of_requests() -> None:
        requests: list[tuple[str, str, Any]] = [
            ("GET", f"/v1/models/{word()}", None),
            ("GET", f"/{word()}/{word()}?x={word()}", None),
            (word().upper(), CHAT, None),
            ("POST", CHAT, {**BODY, "model": word()}),
            ("POST", CHAT, {**BODY, "user": word(), "messages": [{"role": "user", "content": word()}]}),
            ("POST", CHAT, {**BODY, "tool_choice": word(), word(): word()}),
            ("POST", CHAT, {**BODY, "messages": [{"role": word(), "content": word()}]}),
        ]
        ask(app, *requests)

    round_of_requests()
    before = {key for key, _ in samples(metrics.exposition(COUNTERS).decode()).items()}
    for _ in range(10):
        round_of_requests()
    assert {key for key, _ in samples(metrics.exposition(COUNTERS).decode()).items()} == before


def test_labels_take_only_values_that_are_known_beforehand():
    app, metrics = served([Reply("好", calls=(("t", {}),)), "长" * 99])
    ask(app, ("POST", CHAT, BODY), ("POST", CHAT, {**BODY, "max_tokens": 1}), ("TRACE", "/x", None))
    routes = {"other", *app.openapi()["paths"]}
    for _, labels in samples(metrics.exposition(COUNTERS).decode()):
        for label, one in labels:
            assert label in BOUNDED_LABELS
            assert one in ALLOWED_LABELS.get(label, {one})
            assert label != "route" or one in routes


def test_a_route_is_named_as_it_is_documented_and_no_series_says_when_another_began():
    app, metrics = served([Reply("好")])
    ask(app, ("POST", CHAT, BODY), ("GET", "/v1/models/org/smol", None), ("GET", "/v1/sessions/s", None))
    found = samples(metrics.exposition(COUNTERS).decode())
    routes = {dict(labels).get("route") for _, labels in found}
    assert {"/v1/models/{model}", "/v1/sessions/{id}", CHAT} <= routes
    assert not [name for name, _ in found if name.endswith("_created")]


def families() -> dict[str, set[str]]:
    """Every metric there is, with its labels."""
    metrics = ServerMetrics()
    metrics._engine.counters = COUNTERS
    found: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        labels = {name for sample in family.samples for name in sample.labels} - {"le"}
        suffix = "_total" if family.type == "counter" else ""
        found[family.name + suffix] = labels
    for metric in vars(metrics).values():
        if hasattr(metric, "_labelnames"):
            suffix = "_total" if metric._type == "counter" else ""
            found[metric._name + suffix] = set(metric._labelnames)
    return found


@pytest.mark.parametrize("name", sorted(families()))
def test_every_metric_is_documented_with_its_labels(name: str):
    row = re.search(rf"^\| `{name}` \|(.*)\|$", DOCS, re.M)
    assert row, name
    for label in families()[name]:
        assert f"`{label}`" in row[1], f"{name}: {label}"


def test_no_metric_is_documented_that_is_gone():
    assert set(re.findall(r"^\| `(tenuto_\w+)` \|", DOCS, re.M)) == set(families())


def test_the_registry_is_the_servers_own():
    first, second = ServerMetrics(), ServerMetrics()
    first.opened()
    assert b"tenuto_http_requests_open 1.0" in first.exposition(None)
    assert b"tenuto_http_requests_open 0.0" in second.exposition(None)
