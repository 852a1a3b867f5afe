"""`tenuto bench peers`: the same agents on other engines."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import anyio
import typer

from tenuto.bench.shape import Shape
from tenuto.cli import bench_options, options
from tenuto.cli.bench_options import SHAPE

_PEERS = "openvino,llama.cpp"


def bench_peers(
    peers: Annotated[str, typer.Option(help="Which, separated by commas: openvino, llama.cpp, vllm.")] = _PEERS,
    folder: Annotated[Path, typer.Option(help="For their environments and models; a gigabyte or several.")] = Path(
        ".venv-peers"
    ),
    pip_flags: Annotated[str, typer.Option(help="Passed to pip, e.g. an index.")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="How often each runs, in turns.")] = 1,
    agents: bench_options.Agents = SHAPE.agents,
    turns: bench_options.Turns = SHAPE.turns,
    prompt_words: bench_options.PromptWords = SHAPE.prompt_words,
    result_words: bench_options.ResultWords = SHAPE.result_words,
    output_tokens: Annotated[int, typer.Option(min=1, help="Tokens generated a turn.")] = SHAPE.output_tokens,
    tool_ms: bench_options.ToolMs = SHAPE.tool_s * 1000,
    seed: bench_options.Seed = SHAPE.seed,
    as_json: bench_options.JsonObject = False,
    plot: bench_options.Plot = None,
    model: options.Model = None,
    precision: Annotated[str, typer.Option(help="Ours: fp32, bf16, int8 or int4.")] = "int8",
    kv_type: Annotated[str, typer.Option(help="Ours: float or int8.")] = "int8",
    threads: options.Threads = None,
) -> None:
    """Run the same tokens on this engine and on others, installed beside it, one after the other."""
    from tenuto.cli.peers_runs import NAMES, PeersPlan, run_peers  # brings in torch

    chosen = tuple(name.strip() for name in peers.split(",") if name.strip())
    strange = [name for name in chosen if name not in NAMES]
    if strange or not chosen:
        raise typer.BadParameter(
            f"{', '.join(strange) or 'nothing'}: give some of {', '.join(NAMES)}", param_hint="--peers"
        )
    shape = Shape(
        agents=agents,
        turns=turns,
        prompt_words=prompt_words,
        result_words=result_words,
        output_tokens=output_tokens,
        tool_s=tool_ms / 1000,
        seed=seed,
    )
    config = options.config_from(model, precision, threads, kv_type=kv_type)
    plan = PeersPlan(config, shape, chosen, folder.absolute(), tuple(shlex.split(pip_flags)), rounds)
    anyio.run(run_peers, plan, as_json, plot)
