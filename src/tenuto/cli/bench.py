"""`tenuto bench`: how fast this machine is at what agents do."""

from __future__ import annotations

import typer

from tenuto.cli.bench_agents import bench_agents
from tenuto.cli.bench_kernels import bench_kernels
from tenuto.cli.bench_peers import bench_peers
from tenuto.cli.bench_service import bench_service

bench = typer.Typer(no_args_is_help=True, help="Measure agents, and what they are made of, on this machine.")
bench.command("agents")(bench_agents)
bench.command("kernels")(bench_kernels)
bench.command("peers")(bench_peers)
bench.command("service")(bench_service)
