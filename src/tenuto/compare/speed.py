"""How long steps take on both sides: their rounds alternate, so that a busy machine slows both alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from tenuto.clock import Clock
from tenuto.compare.report import SpeedReport
from tenuto.compare.steps import Piece, ragged
from tenuto.model import Decoder

NUM_ROUNDS = 5
_CONTEXT = 256  # tokens that a decode step attends to
_PREFILL = 512
_STEPS = 4  # decode steps timed together
_SESSIONS = 8
PREFILL, DECODE, DECODE_MANY = "prefill", "decode, 1 session", f"decode, {_SESSIONS} sessions"
Rounds = dict[str, list[float]]  # seconds of a step in each round, by what it is


class SpeedProbe:
    """Times the steps of one model, on KV of its own.

    Args:
        ids: at least some tokens of text; they are repeated as far as need be.
    """

    def __init__(self, decoder: Decoder, ids: Sequence[int], clock: Clock) -> None:
        self._decoder = decoder
        self._clock = clock
        limit = decoder.config.max_model_tokens
        self._prompt = _repeated(ids, min(_PREFILL, limit))
        context = min(_CONTEXT, limit - 1)
        block_size = decoder.device.block_size
        per_session = -(-(context + 1) // block_size)
        self._kv = decoder.allocate_kv(max(per_session * _SESSIONS, -(-len(self._prompt) // block_size)))
        pieces = [Piece(self._prompt[:context], 0, i * per_session) for i in range(_SESSIONS)]
        for piece in pieces:  # so that decode steps read KV as it comes, not zeros
            decoder.compute(ragged([piece], block_size), self._kv)
        nexts = [Piece(self._prompt[:1], context, i * per_session) for i in range(_SESSIONS)]
        self._steps = {
            DECODE: (ragged(nexts[:1], block_size), _STEPS),
            DECODE_MANY: (ragged(nexts, block_size), _STEPS),
            PREFILL: (ragged([Piece(self._prompt)], block_size), 1),  # last: it overwrites what the others read
        }

    def num_tokens(self, what: str) -> int:
        return int(self._steps[what][0].token_ids.shape[0])

    def time(self, what: str) -> float:
        """Seconds of one step."""
        batch, times = self._steps[what]
        started = self._clock.now()
        for _ in range(times):
            self._decoder.compute(batch, self._kv)
        return (self._clock.now() - started) / times


def _repeated(ids: Sequence[int], num: int) -> list[int]:
    return (list(ids) * -(-num // len(ids)))[:num]


def time_rounds(probes: Sequence[SpeedProbe], done: Callable[[], None], num_rounds: int = NUM_ROUNDS) -> list[Rounds]:
    """Rounds of one probe, or of two by turns; `done` is called after each."""
    found: list[Rounds] = [{} for _ in probes]
    for number in range(num_rounds):
        order = range(len(probes)) if number % 2 == 0 else reversed(range(len(probes)))
        for index in order:
            for what in (DECODE, DECODE_MANY, PREFILL):
                found[index].setdefault(what, []).append(probes[index].time(what))
        done()
    return found


def speed_reports(
    a: Rounds, b: Rounds, num_tokens: Callable[[str], int], *, is_interleaved: bool
) -> tuple[SpeedReport, ...]:
    """Fastest of the rounds; the ratio is the median over pairs of rounds, of the fastest if they did not alternate."""
    found = []
    for what in (PREFILL, DECODE, DECODE_MANY):
        fastest_a, fastest_b = min(a[what]), min(b[what])
        pairs = [x / y for x, y in zip(a[what], b[what], strict=True)]
        found.append(
            SpeedReport(
                what=what,
                num_tokens=num_tokens(what),
                a_s=fastest_a,
                b_s=fastest_b,
                ratio=statistics.median(pairs) if is_interleaved else fastest_a / fastest_b,
                is_interleaved=is_interleaved,
            )
        )
    return tuple(found)
