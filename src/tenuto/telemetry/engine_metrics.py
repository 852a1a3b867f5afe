"""The engine's counters as metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tenuto.protocol.counters import EngineCounters, EngineLevels, StepSizes


class EngineCollector(Collector):
    """Renders the counters it was last handed; None of them: only that the engine is down."""

    def __init__(self) -> None:
        self.counters: EngineCounters | None = None

    def describe(self) -> Iterable[Metric]:
        return self._metrics(EngineCounters())

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "tenuto_engine_up", "1 while the engine takes requests.", value=self.counters is not None
        )
        if self.counters is not None:
            yield from self._metrics(self.counters)

    def _metrics(self, counters: EngineCounters) -> Iterator[Metric]:
        yield CounterMetricFamily("tenuto_engine_steps", "Steps computed.", value=counters.num_steps)
        yield CounterMetricFamily("tenuto_engine_failed_steps", "Steps that failed.", value=counters.num_failed_steps)
        yield _histogram("tenuto_engine_step_requests", "Batch size: requests in a step.", counters.step_requests)
        yield _histogram("tenuto_engine_step_tokens", "Tokens computed in a step.", counters.step_tokens)
        yield _counters(
            "tenuto_engine_tokens",
            "Tokens by what was done with them; recomputed and accepted ones are among others too.",
            "kind",
            {
                "computed": counters.num_computed_tokens,
                "recomputed": counters.num_recomputed_tokens,
                "shared": counters.num_shared_tokens,
                "sampled": counters.num_sampled_tokens,
                "forced": counters.num_forced_tokens,
                "drafted": counters.num_drafted_tokens,
                "accepted": counters.num_accepted_tokens,
            },
        )
        for_others = counters.num_preempted_for_others
        yield _counters(
            "tenuto_engine_preemptions",
            "Running requests sent back to wait, by why.",
            "reason",
            {"for_better_ranked": for_others, "no_room_to_go_on": counters.num_preemptions - for_others},
        )
        idle = counters.num_discarded_idle
        yield _counters(
            "tenuto_engine_evictions",
            "KV given up for others, by whose: cached blocks, or all KV of a session.",
            "reason",
            {
                "cached_block": counters.num_evictions,
                "idle_session": idle,
                "waiting_request": counters.num_discards - idle,
            },
        )
        yield CounterMetricFamily("tenuto_engine_block_copies", "Blocks copied on write.", value=counters.num_copies)
        yield from _levels(counters.levels)


def _levels(levels: EngineLevels) -> Iterator[Metric]:
    requests = {"waiting": levels.num_waiting, "running": levels.num_running}
    yield _gauges("tenuto_engine_requests", "Requests in the engine.", "state", requests)
    held = {"suspended": levels.num_suspended, "other": levels.num_sessions - levels.num_suspended}
    yield _gauges("tenuto_engine_sessions", "Open sessions; suspended ones wait, e.g. for a tool.", "state", held)
    yield GaugeMetricFamily(
        "tenuto_engine_suspended_tokens", "Tokens whose KV suspended sessions hold.", value=levels.num_suspended_tokens
    )
    blocks = {
        "free": levels.num_blocks_free,
        "cached": levels.num_blocks_cached,
        "owned": levels.num_blocks_owned,
        "shared": levels.num_blocks_shared,
    }
    yield _gauges("tenuto_engine_kv_blocks", "Blocks of the KV pool, by state.", "state", blocks)


def _counters(name: str, text: str, label: str, values: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family


def _gauges(name: str, text: str, label: str, values: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family


def _histogram(name: str, text: str, sizes: StepSizes) -> Metric:
    buckets: list[tuple[str, float]] = []
    total = 0
    for index, count in enumerate(sizes.counts):
        total += count
        bound = str(float(2**index)) if index < len(sizes.counts) - 1 else "+Inf"
        buckets.append((bound, total))
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=sizes.total)
