"""Each kernel alone, at the sizes of a model, through the operations of the `Device` protocol.

One run of a case goes through many copies of its weights, or many layers of KV, as a step does: a single one would lie
in a cache after its first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from torch import Tensor

from tenuto.bench.kernels.batches import blocks_of, fill, made_batch, made_rows
from tenuto.bench.kernels.report import Arithmetic
from tenuto.checkpoint import ModelConfig
from tenuto.device.packing import PackingDevice
from tenuto.device.protocol import INTEGERS, Device, HeadTransform, LinearWeight
from tenuto.field.measure import held_bytes
from tenuto.model import Decoder

ROWS = (1, 8, 64, 512)
CONTEXTS = (256, 1024, 2048)
_CHUNK = 512
_FEW_ROWS, _FEW_COPIES = 8, 4
_MOST_COPIES = 256
_MANY = 30  # calls that are timed together where one takes microseconds


@dataclass(frozen=True)
class Case:
    """One kernel at one size."""

    kernel: str
    setting: str
    rows: int
    run: Callable[[], None]  # calls it `num_calls` times
    num_calls: int
    num_bytes: int  # of one call
    num_operations: int
    arithmetic: Arithmetic


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rows: tuple[int, ...] = ROWS
    contexts: tuple[int, ...] = CONTEXTS
    num_sessions: int = 8
    working_bytes: int = 96_000_000  # of weights or KV that one run goes through


def linear_shapes(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """Name -> (out, in) of a layer's matrices, as they are stacked, and of the head."""
    heads, kv_heads = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    inner = config.intermediate_size if config.experts is None else config.experts.intermediate_size
    return {
        "qkv": (heads + 2 * kv_heads, config.hidden_size),
        "output": (config.hidden_size, heads),
        "gate+up": (2 * inner, config.hidden_size),
        "down": (config.hidden_size, inner),
        "head": (config.vocab_size, config.hidden_size),
    }


def kernel_cases(decoder: Decoder, sizes: Sizes) -> Iterator[Case]:
    """One after the other: each group's memory is free again when the next is made."""
    yield from _linear_cases(decoder, sizes)
    yield from _attention_cases(decoder, sizes)
    yield from _row_cases(decoder, sizes)


def _linear_cases(decoder: Decoder, sizes: Sizes) -> Iterator[Case]:
    device = decoder.device
    arithmetic: Arithmetic = "int8" if device.precision in INTEGERS else "fp32"
    for name, (num_out, num_in) in linear_shapes(decoder.config).items():
        weights = _copies(device, num_out, num_in, sizes.working_bytes)
        for rows in sizes.rows[:2] if name == "head" else sizes.rows:  # no step wants the logits of 64 rows
            used = weights[: _enough(len(weights), rows)]
            yield Case(
                kernel=f"{name} {num_in}→{num_out}",
                setting=_rows(rows),
                rows=rows,
                run=_each(device.linear, made_rows(device, rows, num_in), used),
                num_calls=len(used),
                num_bytes=held_bytes(weights[0]),
                num_operations=2 * rows * num_in * num_out,
                arithmetic=arithmetic,
            )


def _enough(count: int, rows: int) -> int:
    """Of so many copies: with many rows, memory matters little and a call takes long."""
    return count if rows <= _FEW_ROWS else max(min(_FEW_COPIES, count), count * _FEW_ROWS // rows)


def _each(operation: Callable[..., object], x: Tensor, others: Sequence[object], *more: object) -> Callable[[], None]:
    def run() -> None:
        for other in others:
            operation(x, other, *more)

    return run


def _copies(device: Device, num_out: int, num_in: int, working_bytes: int) -> list[LinearWeight]:
    draw = np.random.default_rng(0)
    first = device.prepare_linear([draw.standard_normal((num_out, num_in), np.float32)])
    count = min(max(1, working_bytes // held_bytes(first)), _MOST_COPIES)
    if isinstance(device, PackingDevice):
        packed = device.export_linear(first)
        more = (replace(packed, packed=packed.packed.clone()) for _ in range(count - 1))
        return [first, *(device.import_linear(one) for one in more)]
    matrix = draw.standard_normal((num_out, num_in), np.float32)
    return [first, *(device.prepare_linear([matrix]) for _ in range(count - 1))]


def _attention_cases(decoder: Decoder, sizes: Sizes) -> Iterator[Case]:
    device, config, spec = decoder.device, decoder.config, decoder.attention_specs[0]
    token_bytes, sessions = device.kv_bytes_per_token([spec]), sizes.num_sessions
    contexts = [n for n in sizes.contexts if n < config.max_model_tokens]
    num_blocks = blocks_of([(max(contexts, default=0), 1)] * sessions, device.block_size)
    num_layers = max(1, min(config.num_layers, sizes.working_bytes // (num_blocks * device.block_size * token_bytes)))
    kv = device.allocate_kv([spec] * num_layers, num_blocks)
    fill(decoder, kv, num_layers)
    made: list[tuple[str, str, list[tuple[int, int]], int]] = []
    for n in contexts:
        made += [
            ("attention, decode", f"1 × {n}", [(n, 1)], 0),
            ("attention, decode", f"{sessions} × {n}", [(n, 1)] * sessions, 0),
        ]
        made.append(("attention, decode", f"{sessions} × {n} shared", [(n, 1)] * sessions, n // device.block_size))
        made += (
            [("attention, prefill", f"{_CHUNK} after {n - _CHUNK}", [(n - _CHUNK, _CHUNK)], 0)] if n >= _CHUNK else []
        )
    for kernel, setting, queries, num_shared in sorted(made, key=lambda one: one[0]):
        step = device.begin_step(made_batch(queries, device.block_size, num_shared), decoder.rotary, kv)
        rows = sum(length for _, length in queries)
        q = made_rows(device, rows, config.num_heads * config.head_dim).view(rows, config.num_heads, config.head_dim)
        read = sum(start + length for start, length in queries) - num_shared * device.block_size * (len(queries) - 1)
        seen = sum(start + i + 1 for start, length in queries for i in range(length))
        used = [kv.layer(index) for index in range(_enough(num_layers, rows))]
        yield Case(
            kernel=kernel,
            setting=setting,
            rows=rows,
            run=_each(device.attention, q, used, step),
            num_calls=len(used),
            num_bytes=token_bytes * read,
            num_operations=4 * config.num_heads * config.head_dim * seen,
            arithmetic="fp32",
        )


def _row_cases(decoder: Decoder, sizes: Sizes) -> Iterator[Case]:
    """Kernels that read no weights to speak of: what they move are the rows themselves."""
    device, config = decoder.device, decoder.config
    hidden, inner = config.hidden_size, linear_shapes(config)["down"][1]
    heads, kv_heads = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    spec = decoder.attention_specs[0]
    norm, written = device.upload_norm(np.ones(hidden, np.float32)), device.kv_bytes_per_token([spec])
    cases = []
    for rows in (rows for rows in sizes.rows if rows <= config.max_model_tokens):
        x, gate_up, qkv = (made_rows(device, rows, width) for width in (hidden, 2 * inner, heads + 2 * kv_heads))
        kv = device.allocate_kv([spec], blocks_of([(0, rows)], device.block_size))
        step = device.begin_step(made_batch([(0, rows)], device.block_size), decoder.rotary, kv)
        normed = partial(device.add_rms_norm, x, x, norm, config.rms_norm_eps)
        gated = partial(device.gated, gate_up, config.activation)
        rotated = partial(device.rotate_and_write, qkv, kv.layer(0), step, HeadTransform())
        rotated_bytes = (2 * heads + 2 * kv_heads) * x.itemsize + written
        cases += [
            _row_case("norm with residual", rows, normed, (4 * hidden * x.itemsize, 5 * hidden)),
            _row_case("gated", rows, gated, (3 * inner * x.itemsize, 6 * inner)),
            _row_case("rotate and write", rows, rotated, (rotated_bytes, 6 * (heads + kv_heads))),
        ]
    yield from sorted(cases, key=lambda case: case.kernel)


def _row_case(kernel: str, rows: int, run: Callable[[], object], of_a_row: tuple[int, int]) -> Case:
    """Args:
    of_a_row: bytes read and written, operations; roughly.
    """
    num_bytes, num_operations = of_a_row
    return Case(kernel, _rows(rows), rows, _many(run), _MANY, rows * num_bytes, rows * num_operations, "fp32")


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _many(run: Callable[[], object]) -> Callable[[], None]:
    def repeated() -> None:
        for _ in range(_MANY):
            run()

    return repeated
