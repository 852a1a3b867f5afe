"""Options of the benchmarks of agents, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tenuto.bench.shape import Shape

SHAPE = Shape()  # the defaults

Agents = Annotated[int, typer.Option(min=1, help="Agents.")]
Turns = Annotated[int, typer.Option(min=1, help="Turns of each agent.")]
PromptWords = Annotated[int, typer.Option(min=1, help="Words of the shared system prompt.")]
ResultWords = Annotated[int, typer.Option(min=1, help="Words that each turn adds.")]
ToolMs = Annotated[float, typer.Option(min=0, help="Milliseconds that a tool takes.")]
Seed = Annotated[int, typer.Option(help="The workload follows from it.")]
JsonObject = Annotated[bool, typer.Option("--json", help="Only the numbers, as one JSON object.")]
Plot = Annotated[Path | None, typer.Option(help="Draw TTFT by turn, or the curve, to this SVG file.")]
