"""What `tenuto bench service` does once its options are read."""

from __future__ import annotations

import sys

import anyio
import msgspec
import numpy as np
from rich.console import Console

from tenuto.bench.local import LocalBench, chat_tokens
from tenuto.bench.machine import describe_machine
from tenuto.bench.report import Report
from tenuto.bench.served import served
from tenuto.bench.service import FirstTokens, ServiceBench, service_client
from tenuto.bench.shape import Shape
from tenuto.cli.bench_shown import show_report, shown_turns
from tenuto.cli.fetching import fetch_model
from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.wiring import load, running

_RUNS_A_ROUND = 4


async def run_service(config: Config, shape: Shape, rounds: int, as_json: bool) -> None:
    """Raises what loading, serving and running do."""
    console, clock = Console(stderr=True), RealClock()
    config = config.model_copy(update={"kv_tokens": max(config.kv_tokens, chat_tokens(shape))})
    fetch_model(config)
    with console.status("loading the model, here and in the server ..."):
        loaded = await anyio.to_thread.run_sync(load, config, clock)
    num_turns = shape.agents * shape.turns * rounds * _RUNS_A_ROUND
    async with served(config) as address, service_client() as http:
        with shown_turns(console, num_turns) as progress:
            bench = ServiceBench(LocalBench(loaded, config, clock, progress), http, address, clock, progress)
            async with running(loaded, config, clock=clock) as started:
                first = await bench.first_tokens(started.model)
            tokenizer = loaded.text.tokenizer
            runs, ratios = await bench.rounds(shape, lambda text: tokenizer.encode(text, "inside"), rounds)
    report = Report(workload="service", shape=shape, machine=describe_machine(), runs=tuple(runs), ratios=tuple(ratios))
    if as_json:
        out = {**msgspec.to_builtins(report), "idle_client": msgspec.to_builtins(first)}
        sys.stdout.buffer.write(msgspec.json.encode(out) + b"\n")
        sys.stdout.buffer.flush()
        return
    show_report(report, Console())
    Console().print(_told(first), highlight=False)


def _told(first: FirstTokens) -> str:
    here, served, through_httpx = (np.median(times) for times in (first.here_ms, first.served_ms, first.httpx_ms))
    return (
        f"TTFT of one idle client, p50: {here:.1f} ms in process, {served:.1f} ms served ({served - here:+.1f} ms); "
        f"asked through httpx, whose own work is part of it, {through_httpx:.1f} ms ({through_httpx - here:+.1f} ms)"
    )
