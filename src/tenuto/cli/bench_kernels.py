"""`tenuto bench kernels`: each kernel against what this machine can do at best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tenuto.cli import options

if TYPE_CHECKING:
    from tenuto.bench.kernels.report import KernelReport
    from tenuto.config import Config

_SESSIONS = 8


def bench_kernels(
    context: Annotated[int, typer.Option(min=1, help="Tokens of each session before a decode step.")] = 1024,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes and shorter, rougher times.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Only the numbers, as one JSON object.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the roofline to this SVG file.")] = None,
    model: options.Model = None,
    precision: Annotated[str, typer.Option(help="fp32, bf16, int8 or int4.")] = "int8",
    kv_type: options.KVType = None,
    threads: options.Threads = None,
) -> None:
    """Time each kernel and whole steps against this machine's read bandwidth and peaks, measured in the same run."""
    import msgspec

    config = options.config_from(model, precision, threads, kv_type=kv_type)
    report = _measure(config, context, quick)
    if plot is not None:
        from tenuto.bench.kernels.plot import write_roofline

        write_roofline(report, plot)
    if as_json:
        typer.echo(msgspec.json.encode(report).decode())
    else:
        _print(report)


def _measure(config: Config, context: int, quick: bool) -> KernelReport:
    """Raises ConfigError where there are no native kernels, or the model's context is shorter; NeverFits."""
    import time

    from tenuto.bench.kernels.cases import Sizes
    from tenuto.bench.kernels.limits import Probe
    from tenuto.bench.kernels.report import KernelReport
    from tenuto.bench.kernels.run import Wanted, measure, needed_bytes
    from tenuto.bench.kernels.timing import Effort
    from tenuto.bench.machine import describe_machine
    from tenuto.clock import RealClock
    from tenuto.device.choose import num_cores
    from tenuto.device.cpu import native_library
    from tenuto.errors import ConfigError, NeverFits
    from tenuto.field import available_bytes
    from tenuto.wiring import load

    library = native_library()
    if library is None:
        raise ConfigError("there are no native kernels to measure: install a C++ compiler and install Tenuto again")
    loaded = load(config, RealClock())
    most = loaded.decoder.config.max_model_tokens
    if context >= most:
        raise ConfigError(f"--context: {context} tokens and one more exceed the model's {most}")
    effort = Effort(0.05, 3) if quick else Effort(0.3, 9)
    sizes = Sizes(rows=(1, 8, 512), contexts=(1024,), num_sessions=_SESSIONS) if quick else Sizes()
    wanted = Wanted(sizes, context, prefill_tokens=min(512, most), memory_bytes=1 << 28 if quick else 1 << 30)
    needed, available = needed_bytes(loaded.decoder, wanted), available_bytes() if config.check_memory else None
    if available is not None and needed > available:
        raise NeverFits(
            f"measuring needs {needed / 1e9:.2f} GB beside the model, {available / 1e9:.2f} GB are free; "
            "a smaller --context, --kv-type int8 or --quick takes less"
        )
    probe = Probe(library, config.num_threads or num_cores(), time.perf_counter, effort)
    with Console(stderr=True).status("measuring") as status:
        limits, kernels, steps = measure(loaded.decoder, probe, wanted, lambda what: status.update(f"measuring {what}"))
    return KernelReport(
        model=loaded.name,
        precision=config.precision,
        kv_type=config.kv_type,
        machine=describe_machine(),
        limits=limits,
        kernels=kernels,
        steps=steps,
    )


def _print(report: KernelReport) -> None:
    from tenuto.bench.kernels.tables import kernels_table, limits_table, steps_table

    console, machine = Console(), report.machine
    console.print(
        f"{report.model}, {report.precision}, KV {report.kv_type}, on {machine['processor']}, "
        f"{machine['cores']} cores, load {machine['load']}, kernels for {report.limits.instruction_set}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    for table in (limits_table(report.limits), steps_table(report), kernels_table(report)):
        console.print(table)
