"""A fuzzer of the whole server, in virtual time and from a seed: many clients at once, broken bodies, odd pieces, and
clients that leave at any moment. After each burst of clients nothing may be left of them.

    PYTHONPATH=tests:tests/simulation python tests/simulation/server_fuzz.py --seed 7 --cases 5000
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz_bodies import Bodies, Memory
from fuzz_oracle import check, events_of, expect, outcome
from fuzz_routes import CHAT, COMPLETIONS, EXPORT, GENERATE, RESPONSES, ROUTES, Route, Visitors
from fuzz_stage import Stage, staged
from fuzz_visit import Visit, pay
from structlog.testing import capture_logs

from tenuto.clock import run_virtual
from tenuto.server.sessions.names import session_of
from tenuto.testing import Violation
from tenuto.testing.world_history import History

ERA_CASES = 150
"""Then everything is closed, and the next era draws another server."""
MAX_BURST_S = 2000.0  # of virtual time: nothing takes that long, so it is a hang
SETTLE_S = 0.3
LIST = Route("GET", "/v1/sessions", 0)


@dataclass
class FuzzSummary:
    """What happened. Equal digests mean the same answers and engine events in the same order."""

    seed: int
    num_cases: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    digest: str = ""


class ServerFuzz:
    """See the module's docstring. Args:
    seed: decides everything.
    trace: called with a line for each visit, and each event of the engine.
    """

    def __init__(self, seed: int, trace: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self._trace = trace

    def run(self, num_cases: int, first_era: int = 0) -> FuzzSummary:
        """At least so many cases. Raises Violation, which says how to replay it."""
        summary, digest, era = FuzzSummary(self.seed), hashlib.blake2b(digest_size=16), first_era
        while summary.num_cases < num_cases:
            history, done = History(self._trace), Counter[str]()
            one = _Era(random.Random(f"fuzz {self.seed} era {era}"), history, done)
            try:
                with tempfile.TemporaryDirectory() as folder:
                    run_virtual(one.live(Path(folder), min(ERA_CASES, num_cases - summary.num_cases)))
            except Exception as error:
                raise Violation(self._report(history.violation or error, era, one)) from error
            digest.update(history.digest.encode())
            summary.num_cases += one.num_cases
            summary.counts += done + history.counts
            era += 1
        summary.digest = digest.hexdigest()
        return summary

    def _report(self, cause: BaseException, era: int, one: _Era) -> str:
        visits = "\n".join(f"  {visit}" for visit in one.burst[:8])
        return (
            f"{type(cause).__name__}: {cause}\nafter {one.num_cases} cases of era {era} of seed {self.seed}, at\n"
            f"{visits}\nreplay it with\n  PYTHONPATH=tests:tests/simulation python tests/simulation/server_fuzz.py "
            f"--seed {self.seed} --era {era} --cases {ERA_CASES} --trace"
        )


class _Era:
    """One server from its start to its end."""

    def __init__(self, rng: random.Random, history: History, counts: Counter[str]) -> None:
        self.rng = rng
        self.history = history
        self.counts = counts
        self.num_cases = 0
        self.burst: list[Visit] = []
        self.memory = Memory()
        self.logs: list[Any] = []

    async def live(self, folder: Path, num_cases: int) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self._note(context))
        with capture_logs() as self.logs:
            async with staged(self.rng, folder, self.history) as self.stage:
                described = self.stage.app.openapi()["paths"].items()
                known = {f"{method.upper()} {path}" for path, methods in described for method in methods}
                expect(known == {route.name for route in ROUTES}, f"not every route is tried: {known}")
                self.visitors = Visitors(self.rng, self.memory, self.stage.keys, self.counts)
                for tenant in self.stage.keys:
                    await self._open(tenant)
                while self.num_cases < num_cases:
                    await (self._twins() if self.rng.random() < 0.15 else self._crowd())
                await self._end()
        if self.history.violation is not None:
            raise self.history.violation

    # What clients do

    async def _open(self, tenant: str) -> None:
        """Something to begin with."""
        for path, body in (("", {"id": "s1"}), ("/s1/append", {"text": "天气"}), ("/s1/fork", {"id": "s2"})):
            route = Route("POST", "/v1/sessions/{id}/fork" if body.get("id") else "/v1/sessions/{id}/append", 0)
            visit = await pay(self.visitors.sound(route, f"/v1/sessions{path}", body, tenant), self.stage.app)
            check(visit, tuple(key for key in self.stage.keys.values() if key))
            expect(visit.status == 200, f"no session can be opened: {visit}")
            self._learn(visit)
        self._learn(await pay(self.visitors.sound(EXPORT, "/v1/sessions/s1/export", None, tenant), self.stage.app))

    async def _crowd(self) -> None:
        rng = self.rng
        size = rng.choice((1, 2, 4, 6, 10))
        kind = rng.choice(("any", "any", "any", "storm", "one session"))
        visits = [self.visitors.draw() for _ in range(size)]
        if kind == "storm":
            for visit in visits:
                visit.leave = self.visitors.leaving()
        if kind == "one session":
            visits = [self.visitors.draw([r for r in ROUTES if "{id}" in r.path]) for _ in range(size)]
            name, tenant = Bodies(rng, self.memory, visits[0].tenant).session(), visits[0].tenant
            visits = [visit for visit in visits if visit.tenant == tenant]
            for visit in visits:
                visit.path = visit.route.split(" ")[1].replace("{id}", name)
        self.counts[f"crowd: {kind}"] += 1
        await self._pay(visits)

    async def _twins(self) -> None:
        """The same request, whole and streamed: they say the same."""
        rng = self.rng
        tenant = rng.choice(list(self.stage.keys))
        bodies = Bodies(rng, self.memory, tenant)
        route = rng.choice((CHAT, CHAT, RESPONSES, COMPLETIONS, GENERATE))
        assert route.body is not None
        body = route.body(bodies) | {"seed": rng.randrange(100)}
        for name in (
            "session_id",
            "agent_hint",
            "cache_salt",
            "cache_sharing",
            "stream_options",
            "previous_response_id",
        ):
            body.pop(name, None)
        paths = [route.path, route.path]
        if route is GENERATE:
            forks = await self._two_forks(bodies, tenant)
            if forks is None:
                return
            paths = [route.path.replace("{id}", name) for name in forks]
        pair = []
        for path, stream in zip(paths, (False, True), strict=True):
            visit = self.visitors.sound(route, path, body | {"stream": stream}, tenant)
            await self._pay([visit])
            pair.append(visit)
        whole, streamed = map(outcome, pair)
        self.burst = pair
        if 429 in (pair[0].status, pair[1].status) or b"rate_limit" in pair[1].body:
            return  # several choices may or may not find a place in a short queue
        expect(whole == streamed, f"whole and streamed differ:\n{whole}\n{streamed}")
        self.counts[f"twins {route.path} {pair[0].status}"] += 1

    async def _two_forks(self, bodies: Bodies, tenant: str) -> tuple[str, str] | None:
        """Two sessions that hold the same."""
        made = (("/v1/sessions", {"id": "t1"}), ("/v1/sessions/t1/append", bodies.append()))
        statuses = []
        for name in ("t1", "t2"):
            await self._delete(tenant, name)
        for path, body in (*made, ("/v1/sessions/t1/fork", {"id": "t2"})):
            statuses.append((await pay(self.visitors.sound(GENERATE, path, body, tenant), self.stage.app)).status)
        return ("t1", "t2") if statuses == [200, 200, 200] else None

    async def _pay(self, visits: Sequence[Visit]) -> None:
        self.burst = list(visits)
        try:
            async with asyncio.timeout(MAX_BURST_S):
                await asyncio.gather(*(pay(visit, self.stage.app) for visit in visits))
        except TimeoutError as error:
            raise AssertionError("a request hangs") from error
        self.num_cases += len(visits)
        for visit in visits:
            check(visit, tuple(key for key in self.stage.keys.values() if key))
            self.counts[f"status {visit.status}"] += visit.status is not None
            self.counts[f"served {visit.route}"] += visit.status == 200 and visit.whole
            self.counts["error in a stream"] += visit.status == 200 and b'data: {"error"' in visit.body
            if visit.left is not None:
                place = visit.route.rpartition("/")[2]
                self.counts[f"left: {place if place in ('export', 'import') else visit.left}"] += 1
                self.counts[f"left: {visit.left}"] += place in ("export", "import")
            told = visit.status if "metrics" in visit.route else (visit.status, visit.body, visit.left)
            self.history.add(asyncio.get_running_loop().time(), visit.route, told)
            self._learn(visit)
        await self._check_settled()

    def _learn(self, visit: Visit) -> None:
        if visit.status != 200 or not visit.whole or visit.left is not None:
            return
        memory, tenant = self.memory, visit.tenant
        if visit.route == "DELETE /v1/sessions/{id}":
            gone = visit.path.rpartition("/")[2]
            memory.sessions[tenant] = [name for name in memory.sessions[tenant] if name != gone]
        if visit.route.endswith("/export"):
            memory.add(memory.exports, visit.body)
        elif visit.route in ("POST /v1/sessions", "POST /v1/sessions/{id}/fork") or visit.route.endswith("/import"):
            memory.add(memory.sessions[tenant], json.loads(visit.body)["id"])
        elif visit.route == RESPONSES.name:
            is_whole = visit.answer_headers["content-type"].startswith("application/json")
            response = json.loads(visit.body) if is_whole else events_of(visit)[-1]["response"]  # type: ignore[index]
            memory.add(memory.responses[tenant], response["id"])
        elif visit.route == CHAT.name and visit.sent is not None:
            if visit.sent.get("session_id"):
                memory.add(memory.sessions[tenant], visit.sent["session_id"])
            if not visit.sent.get("stream"):
                reply = json.loads(visit.body)["choices"][0]["message"]
                said = [*visit.sent["messages"], {k: v for k, v in reply.items() if v is not None}]
                if len(said) <= 6:
                    memory.add(memory.talks[tenant], said)

    # What must hold afterwards

    async def _check_settled(self) -> None:
        """Nobody works any more, for anybody."""
        await asyncio.sleep(SETTLE_S)  # a step of a request that was left may still be in flight
        if self.history.violation is not None:
            raise self.history.violation
        self.stage.engine.check_idle()
        admission = self.stage.app.state.admission
        expect(admission.num_working == 0, f"{admission.num_working} requests are counted as being answered")
        async with asyncio.timeout(1):
            await admission.idle()
        expect(not self.stage.others_at_work(), f"tasks are left: {self.stage.others_at_work()}")
        errors = [log for log in self.logs if log["log_level"] in ("error", "critical")]
        expect(not errors, f"the server logged errors: {errors[:3]}")
        self.logs.clear()
        await self._check_sessions()

    async def _check_sessions(self) -> None:
        """The engine's sessions are those that clients know of."""
        known = set()
        for tenant in self.stage.keys:
            known |= {session_of(tenant, name) for name in await self._listed(tenant)}
        lost = self.stage.engine.open_sessions - known
        expect(not lost, f"sessions that nobody knows of: {sorted(lost)}")

    async def _listed(self, tenant: str) -> list[str]:
        visit = self.visitors.sound(LIST, "/v1/sessions", None, tenant)
        visit.query = "limit=100"
        await pay(visit, self.stage.app)
        expect(visit.status == 200, f"sessions cannot be listed: {visit}")
        return [one["id"] for one in json.loads(visit.body)["data"]]

    async def _end(self) -> None:
        """Clients delete what they opened; then every block is free or cached."""
        for tenant in self.stage.keys:
            for name in await self._listed(tenant):
                visit = await self._delete(tenant, name)
                expect(visit.status == 200, f"a session cannot be deleted: {visit}")
        await asyncio.sleep(SETTLE_S)
        self.stage.engine.check_quiet()

    async def _delete(self, tenant: str, name: str) -> Visit:
        path = f"/v1/sessions/{name}"
        return await pay(self.visitors.sound(Route("DELETE", path, 0), path, None, tenant), self.stage.app)

    def _note(self, context: dict[str, Any]) -> None:
        """An exception that nobody received."""
        self.history.violate(context.get("exception") or AssertionError(context["message"]))

    stage: Stage
    visitors: Visitors


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds from the command line; 1 if one of them fails."""
    parser = argparse.ArgumentParser(description="Fuzz the server from a seed.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, counting up from --seed")
    parser.add_argument("--cases", type=int, default=3000, help="for each seed")
    parser.add_argument("--era", type=int, default=0, help="begin with this era of the seed")
    parser.add_argument("--trace", action="store_true", help="print every event")
    options = parser.parse_args(arguments)
    failed = False
    for seed in range(options.seed, options.seed + options.seeds):
        start_s = time.process_time()
        try:
            summary = ServerFuzz(seed, print if options.trace else None).run(options.cases, options.era)
        except Violation as violation:
            failed = True
            print(violation, file=sys.stderr, flush=True)
            continue
        spent_s = time.process_time() - start_s
        print(f"seed {seed}: {summary.num_cases} cases in {spent_s:.1f} s, digest {summary.digest}", flush=True)
        if options.seeds == 1:
            print("\n".join(f"  {name}: {count}" for name, count in sorted(summary.counts.items())))
    return int(failed)


if __name__ == "__main__":
    logging.getLogger("tenuto").setLevel(logging.CRITICAL)
    sys.exit(main())
