"""Summaries as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rich import box
from rich.table import Table
from rich.text import Text

from tenuto.bench.summary import Spread, Summary


def comparison(summaries: Sequence[Summary], title: str = "") -> Table:
    """One column a run, one row a number; what a system does not tell is a dash."""
    table = Table(title=title or None, title_justify="left")
    table.add_column("")
    for summary in summaries:
        table.add_column(Text(f"{summary.system}\n{summary.mode}"), justify="right")
    for name, cells in _rows(summaries):
        if any(cell != "–" for cell in cells):
            table.add_row(name, *cells)
    return table


def _rows(summaries: Sequence[Summary]) -> list[tuple[str, list[str]]]:
    return [
        ("agents × turns", [f"{s.agents} × {s.turns}" for s in summaries]),
        ("agents/s", [f"{s.agents_per_s:.3f}" for s in summaries]),
        ("new tokens/s", [f"{s.tokens_per_s:.1f}" for s in summaries]),
        ("TTFT first turn, p50 / p99", [seconds(s.ttft_first_s) for s in summaries]),
        ("TTFT after a tool, p50 / p99", [seconds(s.ttft_after_tool_s) for s in summaries]),
        ("TTFT of the last turn, p50", [_seconds(s.by_turn[-1].ttft_s) for s in summaries]),
        ("  at tokens of context", [f"{s.by_turn[-1].context:,.0f}" for s in summaries]),
        ("TPOT, p50 / p99", [seconds(s.tpot_s) for s in summaries]),
        ("run time, p50 / p99", [seconds(s.run_s) for s in summaries]),
        ("tokens given", [count(s.tokens.given) for s in summaries]),
        ("  computed", [count(s.tokens.computed) for s in summaries]),
        ("  held by the session", [count(s.tokens.held) for s in summaries]),
        ("  shared", [count(s.tokens.shared) for s in summaries]),
        ("tokens generated", [count(s.tokens.generated) for s in summaries]),
        ("  forced by a grammar", [count(s.tokens.forced) for s in summaries]),
        ("  drafted", [_guessed(s, "num_drafted") for s in summaries]),
        ("  accepted", [_guessed(s, "num_accepted") for s in summaries]),
        ("  a decode step", [_number(s.tokens_per_decode_step) for s in summaries]),
        ("KV held at the end", ["–" if s.kv is None else megabytes(s.kv.kv_bytes) for s in summaries]),
        ("  of separate bf16 caches", [_kv_part(s) for s in summaries]),
    ]


def curve(summaries: Sequence[Summary]) -> Table:
    """One row a run: agents per second against agents."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption_justify="left")
    table.caption = "Times are medians; after a tool also p99."
    for name in ("agents", "agents/s", "TTFT first", "TTFT after a tool", "TPOT", "run time", "KV held"):
        table.add_column(name, justify="right", no_wrap=True)
    for s in summaries:
        table.add_row(
            str(s.agents),
            f"{s.agents_per_s:.3f}",
            median(s.ttft_first_s),
            seconds(s.ttft_after_tool_s),
            median(s.tpot_s),
            median(s.run_s),
            "–" if s.kv is None else megabytes(s.kv.kv_bytes),
        )
    return table


def median(spread: Spread | None) -> str:
    if spread is None:
        return "–"
    return _seconds(spread.p50)


def _seconds(value: float) -> str:
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.2f} s"


def seconds(spread: Spread | None) -> str:
    if spread is None:
        return "–"
    if spread.p99 < 1:
        return f"{spread.p50 * 1e3:.0f} / {spread.p99 * 1e3:.0f} ms"
    return f"{spread.p50:.2f} / {spread.p99:.2f} s"


def count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f} MB"


def _number(number: float | None) -> str:
    return "–" if number is None else f"{number:.2f}"


def _guessed(summary: Summary, name: Literal["num_drafted", "num_accepted"]) -> str:
    return "–" if summary.speculation is None else count(getattr(summary.speculation, name))


def _kv_part(summary: Summary) -> str:
    kv = summary.kv
    if kv is None or not kv.separate_bf16_bytes:
        return "–"
    return f"{100 * kv.kv_bytes / kv.separate_bf16_bytes:.0f} %"
