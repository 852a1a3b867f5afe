"""Measures a loaded model's kernels and steps, and the machine they run on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tenuto.bench.kernels.cases import Case, Sizes, kernel_cases, linear_shapes
from tenuto.bench.kernels.limits import Probe
from tenuto.bench.kernels.report import KernelTime, Limits, StepTime
from tenuto.bench.kernels.steps import steps_to_measure, time_step, weight_bytes
from tenuto.bench.kernels.timing import time_runs
from tenuto.model import Decoder


@dataclass(frozen=True)
class Wanted:
    """What is measured."""

    sizes: Sizes
    context: int  # tokens of each session before a decode step
    prefill_tokens: int = 512
    memory_bytes: int = 1 << 30  # of the buffer that no cache holds


def needed_bytes(decoder: Decoder, wanted: Wanted) -> int:
    """What measuring holds at once beside the model, about."""
    config, sizes = decoder.config, wanted.sizes
    kv = decoder.kv_bytes_per_token() * sizes.num_sessions
    step = kv * (wanted.context + decoder.device.block_size)
    one_layer = kv * max(sizes.contexts) // config.num_layers
    matrix = (
        2 * 4 * max(num_out * num_in for num_out, num_in in linear_shapes(config).values())
    )  # as floats, and packed
    reading = weight_bytes(decoder, sizes.num_sessions) + step  # a buffer as large as what a step reads
    return max(wanted.memory_bytes, step + reading, sizes.working_bytes + max(one_layer, matrix))


def measure(
    decoder: Decoder, probe: Probe, wanted: Wanted, note: Callable[[str], None]
) -> tuple[Limits, tuple[KernelTime, ...], tuple[StepTime, ...]]:
    """
    Args:
        note: told what is measured next.
    """
    sessions = wanted.sizes.num_sessions
    kv_bytes = sessions * (wanted.context + 1) * decoder.kv_bytes_per_token()
    step_bytes = weight_bytes(decoder, sessions) + kv_bytes

    def limits() -> Limits:
        note("the machine")
        return probe.limits(step_bytes, wanted.memory_bytes)

    best = limits()
    with torch.inference_mode():
        note("whole steps")
        made = steps_to_measure(wanted.context, sessions, wanted.prefill_tokens)
        steps = [time_step(decoder, step, probe, best) for step in made]
        best = best.merged(limits())
        kernels = []
        for case in kernel_cases(decoder, wanted.sizes):
            note(f"{case.kernel}, {case.setting}")
            kernels.append(_time(case, probe, best))
        best = best.merged(limits())
    return best, tuple(one.against(best) for one in kernels), tuple(one.against(best) for one in steps)


def _time(case: Case, probe: Probe, limits: Limits) -> KernelTime:
    timing = time_runs(case.run, probe.now, probe.effort)
    floor_s, bound = limits.floor(case.num_bytes, case.num_operations, case.arithmetic)
    return KernelTime(
        kernel=case.kernel,
        setting=case.setting,
        rows=case.rows,
        time_s=timing.best_s / case.num_calls,
        median_s=timing.median_s / case.num_calls,
        num_runs=timing.num_runs,
        num_bytes=case.num_bytes,
        num_operations=case.num_operations,
        arithmetic=case.arithmetic,
        floor_s=floor_s,
        bound=bound,
    )
