"""The kernels' numbers as tables for a terminal."""

from __future__ import annotations

from rich.table import Table

from tenuto.bench.kernels.report import KernelReport, Limits


def limits_table(limits: Limits) -> Table:
    table = Table(title=f"This machine, {limits.num_threads} threads, in bare loops", title_justify="left")
    for name in ("", "best"):
        table.add_column(name, justify="right" if name else "left")
    table.add_row(f"reading {limits.step_bytes / 1e6:.0f} MB again and again", f"{limits.read / 1e9:.1f} GB/s")
    table.add_row("reading memory that no cache holds", f"{limits.read_memory / 1e9:.1f} GB/s")
    table.add_row("INT8, vector instructions", operations_per_s(limits.int8))
    if limits.int8_tiles:
        table.add_row("INT8, tiles (AMX)", operations_per_s(limits.int8_tiles))
    table.add_row("float32, multiply and add", operations_per_s(limits.fp32))
    return table


def steps_table(report: KernelReport) -> Table:
    """Whole steps, against reading and against the peaks."""
    table = Table(title="Whole steps", title_justify="left")
    for name in ("step", "time", "reads", "× reading", "op/s", "of vectors", "of tiles"):
        if name != "of tiles" or report.limits.int8_tiles:
            table.add_column(name, justify="left" if name == "step" else "right")
    for step in report.steps:
        rate = step.num_operations / step.time_s
        cells = [
            step.step,
            duration(step.time_s),
            f"{(step.weight_bytes + step.kv_bytes) / 1e6:.0f} MB",
            f"{step.of_streaming:.2f}",
            operations_per_s(rate),
            f"{100 * step.of_peak:.0f} %",
        ]
        tiles = [f"{100 * rate / report.limits.int8_tiles:.0f} %"] if report.limits.int8_tiles else []
        table.add_row(*cells, *tiles)
    table.caption = (
        "× reading: the time over that of reading weights and KV once, measured in turns with the step.\n"
        "Operations are those of the products with weights."
    )
    table.caption_justify = "left"
    return table


def kernels_table(report: KernelReport) -> Table:
    table = Table(title="Kernels, each over as many weights or as much KV as a step has", title_justify="left")
    for name in ("kernel", "size", "time", "bytes/s", "op/s", "limit", "of it"):
        table.add_column(name, justify="left" if name in ("kernel", "size", "limit") else "right")
    before = ""
    for one in report.kernels:
        table.add_row(
            "" if one.kernel == before else one.kernel,
            one.setting,
            duration(one.time_s),
            f"{one.num_bytes / one.time_s / 1e9:.1f} G",
            operations_per_s(one.num_operations / one.time_s),
            one.bound,
            f"{100 * one.of_limit:.0f} %",
        )
        before = one.kernel
    table.caption = (
        "Limit: whichever takes longer, the bytes at the read rate or the operations at the vector peak.\n"
        "Rows of activations lie in a cache, so kernels that only move those may pass it."
    )
    table.caption_justify = "left"
    return table


def duration(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def operations_per_s(rate: float) -> str:
    return f"{rate / 1e12:.2f} T" if rate >= 1e12 else f"{rate / 1e9:.1f} G"
