"""Whole forward calls of a model, against the reading of its weights and KV and against its multiplications."""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.bench.kernels.batches import blocks_of, fill, made_batch
from tenuto.bench.kernels.cases import linear_shapes
from tenuto.bench.kernels.limits import Probe
from tenuto.bench.kernels.report import Arithmetic, Limits, StepTime
from tenuto.bench.kernels.timing import time_in_turns
from tenuto.device.protocol import INTEGERS
from tenuto.field.measure import held_bytes
from tenuto.model import Decoder
from tenuto.model.layers import MixtureOfExperts


@dataclass(frozen=True)
class MadeStep:
    name: str
    queries: tuple[tuple[int, int], ...]  # (tokens before the step, tokens of it) of each session

    @property
    def rows(self) -> int:
        return sum(length for _, length in self.queries)


def steps_to_measure(context: int, num_sessions: int, chunk: int) -> tuple[MadeStep, ...]:
    """A decode of one session and of several, and the first `chunk` tokens of a prompt."""
    return (
        MadeStep(f"decode, 1 × {context}", ((context, 1),)),
        MadeStep(f"decode, {num_sessions} × {context}", ((context, 1),) * num_sessions),
        MadeStep(f"prefill, {chunk}", ((0, chunk),)),
    )


def weight_bytes(decoder: Decoder, rows: int) -> int:
    """Bytes of the weights that a step of so many rows reads: not the embedding, of which it reads a row a token, and
    of a mixture at most as many experts as its rows choose."""
    tables = held_bytes(decoder.embedding) + held_bytes(decoder.rotary)
    experts = decoder.config.experts
    if experts is None:
        return held_bytes(decoder) - tables
    mixtures = [layer.mlp for layer in decoder.layers if isinstance(layer.mlp, MixtureOfExperts)]
    of_experts = sum(held_bytes(mlp.mixture.experts) for mlp in mixtures)
    read = min(1.0, rows * experts.num_active / experts.num_experts)
    return held_bytes(decoder) - tables - round(of_experts * (1 - read))


def matrix_operations(decoder: Decoder, rows: int, logit_rows: int) -> int:
    """Multiplications and additions of all products with weights."""
    config, shapes = decoder.config, linear_shapes(decoder.config)
    head = shapes.pop("head")
    active = 1 if config.experts is None else config.experts.num_active
    inner = shapes["down"][1]
    layer = sum(shapes[name][0] * shapes[name][1] for name in ("qkv", "output"))
    sparse = sum(told.sparse for told in config.layers)
    mlp = 3 * config.hidden_size * (inner * active * sparse + config.intermediate_size * (config.num_layers - sparse))
    return 2 * (rows * (layer * config.num_layers + mlp) + logit_rows * head[0] * head[1])


def time_step(decoder: Decoder, step: MadeStep, probe: Probe, limits: Limits) -> StepTime:
    """A step in turns with the reading of as many bytes as it must read."""
    device = decoder.device
    kv = decoder.allocate_kv(blocks_of(step.queries, device.block_size))
    batch = made_batch(step.queries, device.block_size)
    fill(decoder, kv, decoder.config.num_layers)
    weights = weight_bytes(decoder, step.rows)
    kv_bytes = decoder.kv_bytes_per_token() * sum(start + length for start, length in step.queries)
    read = probe.reader(weights + kv_bytes)
    stepped, reading = time_in_turns([lambda: decoder.forward(batch, kv), read], probe.now, probe.effort)
    arithmetic: Arithmetic = "int8" if device.precision in INTEGERS else "fp32"
    operations = matrix_operations(decoder, step.rows, len(step.queries))
    return StepTime(
        step=step.name,
        rows=step.rows,
        num_sessions=len(step.queries),
        num_context=step.queries[0][0],
        time_s=stepped.best_s,
        median_s=stepped.median_s,
        num_runs=stepped.num_runs,
        weight_bytes=weights,
        kv_bytes=kv_bytes,
        num_operations=operations,
        arithmetic=arithmetic,
        read_per_s=(weights + kv_bytes) / reading.best_s,
        stream_s=reading.best_s,
        compute_s=operations / limits.peak(arithmetic),
    )
