"""`tenuto bench service`: what the server adds to the engine."""

from __future__ import annotations

from typing import Annotated

import anyio
import typer

from tenuto.bench.shape import Shape
from tenuto.cli import bench_options, options
from tenuto.cli.bench_options import SHAPE
from tenuto.event_loop import loop_options


def bench_service(
    agents: bench_options.Agents = SHAPE.agents,
    turns: bench_options.Turns = SHAPE.turns,
    prompt_words: bench_options.PromptWords = SHAPE.prompt_words,
    result_words: bench_options.ResultWords = SHAPE.result_words,
    output_tokens: Annotated[int, typer.Option(min=2, help="Tokens generated a turn.")] = SHAPE.output_tokens,
    tool_ms: bench_options.ToolMs = SHAPE.tool_s * 1000,
    seed: bench_options.Seed = SHAPE.seed,
    rounds: Annotated[int, typer.Option(min=1, help="How often each side runs.")] = 3,
    as_json: bench_options.JsonObject = False,
    model: options.Model = None,
    precision: options.Precision = None,
    kv_type: options.KVType = None,
    speculation: options.Speculation = None,
    threads: options.Threads = None,
) -> None:
    """The same agents in this process and through `tenuto serve`: plain chat, sessions, and an idle client's TTFT."""
    from tenuto.cli.service_runs import run_service  # brings in torch

    config = options.config_from(model, precision, threads, kv_type=kv_type, speculation=speculation)
    shape = Shape(
        agents=agents,
        turns=turns,
        prompt_words=prompt_words,
        result_words=result_words,
        output_tokens=output_tokens,
        tool_s=tool_ms / 1000,
        seed=seed,
    )
    anyio.run(run_service, config, shape, rounds, as_json, backend_options=loop_options())
