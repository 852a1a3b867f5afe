"""Every route of the server, and how a client comes to ask for it: path, headers, body, pieces, pace and leave."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fuzz_bodies import Bodies, Memory, encoded
from fuzz_damage import cut, damage, damage_bytes
from fuzz_visit import Leave, Visit

JSON, BINARY = b"application/json", b"application/octet-stream"


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    weight: int
    body: Callable[[Bodies], dict[str, Any]] | None = None  # None: takes none

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"


CHAT = Route("POST", "/v1/chat/completions", 30, Bodies.chat)
RESPONSES = Route("POST", "/v1/responses", 16, Bodies.responses)
COMPLETIONS = Route("POST", "/v1/completions", 8, Bodies.completions)
GENERATE = Route("POST", "/v1/sessions/{id}/generate", 14, Bodies.generate)
EXPORT = Route("GET", "/v1/sessions/{id}/export", 4)
IMPORTS = (Route("PUT", "/v1/sessions/{id}/import", 3), Route("POST", "/v1/sessions/{id}/import", 2))
ROUTES = (
    CHAT,
    RESPONSES,
    COMPLETIONS,
    GENERATE,
    EXPORT,
    *IMPORTS,
    Route("POST", "/v1/embeddings", 4, Bodies.embeddings),
    Route("POST", "/v1/rerank", 3, Bodies.rerank),
    Route("POST", "/v1/sessions", 9, Bodies.create),
    Route("GET", "/v1/sessions", 2),
    Route("GET", "/v1/sessions/{id}", 2),
    Route("DELETE", "/v1/sessions/{id}", 3),
    Route("GET", "/v1/sessions/{id}/tokens", 2),
    Route("POST", "/v1/sessions/{id}/append", 6, Bodies.append),
    Route("POST", "/v1/sessions/{id}/fork", 4, Bodies.fork),
    Route("POST", "/v1/sessions/{id}/suspend", 3, Bodies.suspend),
    Route("POST", "/v1/sessions/{id}/truncate", 3, Bodies.truncate),
    Route("GET", "/v1/responses/{response_id}", 2),
    Route("DELETE", "/v1/responses/{response_id}", 1),
    Route("GET", "/v1/responses/{response_id}/input_items", 2),
    Route("POST", "/v1/responses/{response_id}/cancel", 1, Bodies.nothing),
    Route("POST", "/release_kv_cache", 2, Bodies.release),
    Route("POST", "/v1/release_kv_cache", 2, Bodies.release),
    Route("GET", "/v1/models", 1),
    Route("GET", "/v1/models/{model}", 1),
    Route("GET", "/health", 1),
    Route("GET", "/ready", 1),
    Route("GET", "/metrics", 1),
)
QUERIES = (
    "",
    "limit=1",
    "limit=100&after=s1",
    "limit=0",
    "limit=x",
    "after=%00",
    "order=asc",
    "order=up",
    "stream=true",
)


class Visitors:
    """Draws visits. Args:
    keys: by tenant; the tenant "" has none.
    """

    def __init__(self, rng: random.Random, memory: Memory, keys: dict[str, str], counts: Counter[str]) -> None:
        self.rng = rng
        self.memory = memory
        self.keys = keys
        self.counts = counts

    def draw(self, routes: Sequence[Route] = ROUTES) -> Visit:
        rng = self.rng
        route = rng.choices(routes, [route.weight for route in routes])[0]
        tenant = rng.choice(list(self.keys))
        bodies = Bodies(rng, self.memory, tenant)
        visit = Visit(route.name, route.method, self._path(route, bodies), headers=self._headers(tenant), tenant=tenant)
        if route.method == "GET" and rng.random() < 0.3:
            visit.query = rng.choice(QUERIES)
        if route in IMPORTS:
            visit.headers.append((b"content-type", BINARY if rng.random() < 0.95 else JSON))
            visit.pieces = cut(self._exported(), rng)
        elif route.body is not None:
            self._write(visit, route.body(bodies))
        self._behave(visit, route)
        self.counts[f"route {route.name}"] += 1
        return visit

    def sound(self, route: Route, path: str, body: dict[str, Any] | None, tenant: str) -> Visit:
        """A visit on which nothing goes wrong."""
        visit = Visit(route.name, route.method, path, headers=self._headers(tenant, certain=True), tenant=tenant)
        if body is not None:
            visit.headers.append((b"content-type", JSON))
            visit.pieces = [json.dumps(body).encode()]
        return visit

    def _path(self, route: Route, bodies: Bodies) -> str:
        rng = self.rng
        odd = rng.random() < 0.02
        names = {
            "{id}": "x" * 200 if odd else f"i{rng.randrange(99)}" if self._is_new(route) else bodies.session(),
            "{response_id}": "名 /" if odd else bodies.response(),
            "{model}": rng.choice(("talker", "default", "org/other", "%")),
        }
        path = route.path
        for name, value in names.items():
            path = path.replace(name, value)
        if rng.random() < 0.01:
            self.counts["odd path"] += 1
            path += rng.choice(("/", "/more", "%2e%2e", "\x00"))
        return path

    def _is_new(self, route: Route) -> bool:
        """Whether a session that is imported gets a name of its own."""
        return route in IMPORTS and self.rng.random() < 0.7

    def _headers(self, tenant: str, certain: bool = False) -> list[tuple[bytes, bytes]]:
        rng, key = self.rng, self.keys[tenant]
        headers = [(b"host", b"localhost")]
        if key and not certain and rng.random() < 0.02:
            key = rng.choice(("", "tenuto-aaaaaaaa-" + "b" * 32, "x" * 600))
            self.counts["wrong key"] += 1
        if key:
            headers.append((b"authorization", f"Bearer {key}".encode()))
        if not certain and rng.random() < 0.05:
            headers.append(
                (rng.choice((b"x-session-id", b"session-id")), rng.choice((b"run-a", b"\xff\xfe", b"x" * 500)))
            )
        return headers

    def _write(self, visit: Visit, body: dict[str, Any]) -> None:
        rng = self.rng
        draw = rng.random()
        if draw < 0.68:
            visit.sent = body
        elif draw < 0.9:
            body = damage(body, rng)
            self.counts["body: changed values"] += 1
        content = encoded(body, rng)
        if draw >= 0.9:
            what, content = damage_bytes(content, rng)
            self.counts[f"body: {what}"] += 1
        kind = JSON if rng.random() < 0.97 else rng.choice((b"text/plain", b"", b"application/json; charset=utf-16"))
        visit.headers.append((b"content-type", kind))
        if rng.random() < 0.1:
            visit.headers.append((b"content-length", rng.choice((str(len(content)).encode(), b"99999999999999", b"x"))))
        visit.pieces = cut(content, rng)

    def _exported(self) -> bytes:
        """A session as bytes: whole, damaged, or none at all."""
        rng = self.rng
        if not self.memory.exports or rng.random() < 0.05:
            return rng.randbytes(rng.choice((0, 3, 200)))
        exported = rng.choice(self.memory.exports)
        if rng.random() < 0.4:
            return exported
        at = rng.randint(0, len(exported) - 1)
        self.counts["import: damaged"] += 1
        broken = (exported[:at], exported[:at] + rng.randbytes(3) + exported[at + 3 :], exported + b"\0", exported * 2)
        return rng.choice((*broken, exported + bytes(61_000)))

    def _behave(self, visit: Visit, route: Route) -> None:
        rng = self.rng
        visit.start_s = rng.choice((0.0, 0.0, rng.random() * 0.2))
        visit.gap_s = rng.choices((0.0, 0.01, 6.0), (80, 18, 2))[0]
        visit.pace_s = rng.choices((0.0, 0.02, 7.0), (72, 14, 14))[0]
        if rng.random() < (0.4 if route in (*IMPORTS, EXPORT) else 0.2):
            visit.leave = self.leaving()

    def leaving(self) -> Leave:
        rng = self.rng
        kind = rng.choice(("body", "time", "time", "time", "answer"))
        after = {"body": rng.randint(0, 4), "time": rng.random() ** 3, "answer": rng.choice((0, 0, 1, 2, 5))}[kind]
        return Leave(kind, after)  # type: ignore[arg-type]
