"""The whole server under clients of every kind; and the fuzzer finds what is broken on purpose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fuzz_routes import ROUTES
from server_fuzz import ServerFuzz
from starlette.types import Receive

from tenuto.chat import local
from tenuto.engine.kv_cache import KVCache
from tenuto.errors import UnknownModel
from tenuto.server import answers, disconnect, errors, sampling_fields, sse
from tenuto.server.admission import Admission
from tenuto.server.hints import routes as hint_routes
from tenuto.server.keys import ApiKeys
from tenuto.server.responses.writer import ResponseWriter
from tenuto.testing import Violation

STATUSES = (200, 400, 401, 404, 408, 409, 413, 415, 429)
LEFT = ("body", "waiting", "first piece", "mid-stream", "slow reader", "export", "import")
DAMAGE = ("changed values", "truncated", "flipped byte", "inserted bytes", "empty", "oversized", "duplicate keys")
TWINS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/sessions/{id}/generate")
MUST_HAPPEN = (
    *(f"status {status}" for status in STATUSES),
    *(f"left: {stage}" for stage in LEFT),
    *(f"body: {what}" for what in (*DAMAGE, "deep nesting", "byte order mark", "noise")),
    *(f"route {route.name}" for route in ROUTES),
    *(f"served {route.name}" for route in ROUTES if not route.path.endswith("/cancel")),
    *(f"twins {path} 200" for path in TWINS),
    *(f"crowd: {kind}" for kind in ("any", "storm", "one session")),
    *(f"cancel: {place}" for place in ("queued", "before the first step", "prefill", "decode", "step in flight")),
    *(f"ended: {how}" for how in ("appended", "length", "stop", "grammar")),
    "refused: queue_full",
    "import: damaged",
    "wrong key",
    "odd path",
)


def test_thousands_of_clients() -> None:
    counts: Counter[str] = Counter()
    for seed in (1, 2):
        counts += ServerFuzz(seed).run(900).counts
    assert not [name for name in MUST_HAPPEN if not counts[name]], "what never happens is not tested"


@pytest.mark.soak
@pytest.mark.parametrize("part", range(20))
def test_a_hundred_thousand_clients(part: int) -> None:
    counts = ServerFuzz(1000 + part).run(5000).counts
    assert not [name for name in MUST_HAPPEN if not counts[name]]


def test_a_seed_replays_to_the_letter() -> None:
    first, second, other = ServerFuzz(3).run(60), ServerFuzz(3).run(60), ServerFuzz(4).run(20)
    assert first == second
    assert first.digest != other.digest


# Servers that are broken on purpose


def found(max_cases: int = 1500) -> str:
    """What the fuzzer says of the server as it is now."""
    with pytest.raises(Violation) as violation:
        ServerFuzz(5).run(max_cases)
    return str(violation.value)


def test_a_session_leaks_with_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(*_: Any) -> None:
        return None

    monkeypatch.setattr(local, "close_session", forget)
    said = found()
    assert "sessions that nobody knows of" in said
    assert "--seed 5 --era" in said, "it says how to replay it"


@pytest.mark.parametrize("writer", [sse.ChunkWriter, ResponseWriter])
def test_a_stream_has_no_end(monkeypatch: pytest.MonkeyPatch, writer: Any) -> None:
    if writer is sse.ChunkWriter:
        monkeypatch.setattr(writer, "end", lambda self: b"")
        assert "a stream has exactly one end" in found()
    else:
        pieces = writer.pieces
        monkeypatch.setattr(writer, "pieces", lambda self, event: pieces(self, event)[:1])
        assert "Broken: " in found()


def test_an_odd_body_is_not_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling_fields, "_logit_bias", lambda biases: {}["5"] if "5" in str(biases) else ())
    assert "status 500" in found()


def test_an_odd_place_is_not_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hint_routes, "_kept", lambda body, asked: asked.messages[5])
    assert "status 500" in found()


def test_work_goes_on_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def to_the_end(receive: Receive, work: Any, cancel_deadline_s: float) -> Any:
        return await work

    monkeypatch.setattr(answers, "until_disconnect", to_the_end)
    assert "after its client has gone" in found()


def test_a_task_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def leave(*_: Any) -> None:
        return None

    monkeypatch.setattr(disconnect, "_end", leave)
    said = found()
    assert "tasks are left" in said or "Task was destroyed but it is pending" in said


def test_a_request_is_counted_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    working = Admission.working

    @contextmanager
    def leaky(self: Admission, tenant: str) -> Iterator[None]:
        with working(self, tenant):
            yield
        self._num_working += tenant == "beta"

    monkeypatch.setattr(Admission, "working", leaky)
    assert "counted as being answered" in found()


def test_blocks_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    release = KVCache.release
    monkeypatch.setattr(
        KVCache, "release", lambda self, table: release(self, table) if table.num_computed % 5 else None
    )
    found()


def test_a_streamed_answer_says_less(monkeypatch: pytest.MonkeyPatch) -> None:
    delta = sse._delta
    monkeypatch.setattr(sse, "_delta", lambda event: {k: v for k, v in delta(event).items() if len(str(v)) != 3})
    assert "whole and streamed differ" in found()


def test_an_error_tells_where_it_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    body = errors.error_body
    monkeypatch.setattr(errors, "error_body", lambda message, *rest: body(f"{message} ({__file__})", *rest))
    assert "tells of the inside" in found()


def test_an_error_tells_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(self: ApiKeys, presented: str) -> str:
        raise UnknownModel(f"nothing for {presented}")

    monkeypatch.setattr(ApiKeys, "tenant_of", tell)
    assert "an API key is in the answer" in found()
