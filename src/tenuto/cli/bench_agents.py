"""`tenuto bench agents`: agents with tool waits, on this engine or on any server."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import anyio
import typer

from tenuto.bench.shape import Shape
from tenuto.cli import bench_options, options
from tenuto.cli.bench_options import SHAPE

Workload: TypeAlias = Literal["agents", "tools", "prose"]
RunMode: TypeAlias = Literal["held", "serial", "reprefill"]
Preset: TypeAlias = Literal["tool-loop"]


def bench_agents(
    agents: bench_options.Agents = SHAPE.agents,
    turns: bench_options.Turns = SHAPE.turns,
    prompt_words: bench_options.PromptWords = SHAPE.prompt_words,
    result_words: bench_options.ResultWords = SHAPE.result_words,
    output_tokens: Annotated[
        int | None,
        typer.Option(min=1, show_default="40", help="Tokens generated a turn, exactly; with tools at most."),
    ] = None,
    tool_ms: bench_options.ToolMs = SHAPE.tool_s * 1000,
    seed: bench_options.Seed = SHAPE.seed,
    workload: Annotated[
        Workload,
        typer.Option(help="Plain tokens; tool calls under their grammar; or sampled text that does not repeat."),
    ] = "agents",
    mode: Annotated[
        RunMode, typer.Option(help="All at once and held; one after the other; or that with re-prefill.")
    ] = "held",
    preset: Annotated[Preset | None, typer.Option(help="A curve: 1 to 16 agents of 8 turns, 50 ms tools.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Held at once against one at a time, re-prefill.")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="How often --compare runs each side.")] = 2,
    baseline_agents: Annotated[int, typer.Option(min=1, help="Agents of the slow side of --compare.")] = 1,
    pairs: Annotated[int | None, typer.Option(min=1, help="Runs with and without speculation, in turns.")] = None,
    url: Annotated[str | None, typer.Option(help="Any server with OpenAI's API, instead of this engine.")] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="OPENAI_API_KEY", show_envvar=True, help="Sent to that server; shown nowhere.")
    ] = None,
    as_json: bench_options.JsonObject = False,
    plot: bench_options.Plot = None,
    model: options.Model = None,
    precision: options.Precision = None,
    kv_type: options.KVType = None,
    speculation: options.Speculation = None,
    threads: options.Threads = None,
) -> None:
    """Run agents with tool waits on this engine or a server: agents/s, TTFT, TPOT, tokens, KV."""
    from tenuto.cli.bench_runs import Plan, run_plan  # brings in torch: seconds that `--help` need not wait for

    chosen = [name for name, given in (("--compare", compare), ("--pairs", pairs), ("--preset", preset)) if given]
    if len(chosen) > 1:
        raise typer.BadParameter(f"{' and '.join(chosen)} are different experiments; choose one")
    if url is not None and (compare or pairs or mode != "held" or workload != "agents"):
        raise typer.BadParameter("a server is given the plain workload, all agents at once", param_hint="--url")
    if workload == "tools" and (compare or preset or mode != "held"):
        raise typer.BadParameter("tool calls run all at once and held", param_hint="--workload tools")
    config = options.config_from(model, precision, threads, kv_type=kv_type, speculation=speculation)
    shape = Shape(
        agents=agents,
        turns=turns,
        prompt_words=prompt_words,
        result_words=result_words,
        output_tokens=output_tokens or (128 if workload == "tools" else SHAPE.output_tokens),
        tool_s=tool_ms / 1000,
        seed=seed,
    )
    plan = Plan(
        config=config,
        shape=shape,
        workload=workload,
        mode=mode,
        is_curve=preset is not None,
        rounds=rounds if compare else 0,
        baseline_agents=baseline_agents,
        pairs=pairs or 0,
        url=url,
        api_key=api_key,
    )
    anyio.run(run_plan, plan, as_json, plot)
