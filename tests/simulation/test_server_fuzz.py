"""The whole server under clients of every kind; and the fuzzer finds what is broken on purpose."""

from __future__ import annotations

from collections import Counter

import pytest
from fuzz_routes import ROUTES
from server_fuzz import ServerFuzz

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
    *(f"refused: {code}" for code in ("queue_full", "session_busy", "session_exists", "session_not_found")),
    "import: damaged",
    "wrong key",
    "odd path",
)


def test_thousands_of_clients() -> None:
    counts: Counter[str] = Counter()
    for seed in (1, 2):
        counts += ServerFuzz(seed).run(1500).counts
    assert not [name for name in MUST_HAPPEN if not counts[name]], "what never happens is not tested"


@pytest.mark.soak
@pytest.mark.parametrize("part", range(20))
def test_a_hundred_thousand_clients(part: int) -> None:
    summary = ServerFuzz(1000 + part).run(5000)
    assert not [name for name in MUST_HAPPEN if not summary.counts[name]]


def test_a_seed_replays_to_the_letter() -> None:
    first, second, other = ServerFuzz(3).run(200), ServerFuzz(3).run(200), ServerFuzz(4).run(200)
    assert first == second
    assert first.digest != other.digest


# Servers that are broken on purpose
