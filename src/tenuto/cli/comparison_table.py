"""A comparison as a person reads it."""

from __future__ import annotations

import math
from collections.abc import Callable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tenuto.compare.report import CallReport, Comparison, CopyReport, LayerReport, SpeedReport, TextReport

_BAR = 16  # characters of the longest bar
_SHOWN = 3  # of what differs; the rest is in the JSON


def show(found: Comparison, console: Console) -> None:
    console.print(f"[bold]B[/] {escape(found.b.setting)} against [bold]A[/] {escape(found.a.setting)}", highlight=False)
    console.print(_sides(found), highlight=False)
    if found.texts:
        console.print(_texts(found.texts), highlight=False)
        console.print(_positions(found.texts), highlight=False)
    lines = [*_layers(found.layers), *_copies(found.copies), *_calls(found.calls)]
    for line in (*lines, *(f"not measured: {escape(reason)}" for reason in found.skipped)):
        console.print(line, highlight=False, soft_wrap=True)
    if found.speeds:
        console.print(_speeds(found.speeds), highlight=False)
    for line in _verdict(found):
        console.print(line, highlight=False, soft_wrap=True)


def _table(*columns: str) -> Table:
    table = Table()
    table.add_column(columns[0])
    for name in columns[1:]:
        table.add_column(escape(name), justify="right", overflow="fold")
    return table


def _sides(found: Comparison) -> Table:
    a, b = found.a, found.b
    table = _table("", "A", "B", "B / A")
    for name in ("model", "device", "precision", "kv_type"):
        table.add_row(name.replace("kv_type", "KV"), *(escape(str(getattr(side, name))) for side in (a, b)), "")
    table.add_row("weights", _size(a.weight_bytes), _size(b.weight_bytes), f"{b.weight_bytes / a.weight_bytes:.1%}")
    kv = (a.kv_bytes_per_token, b.kv_bytes_per_token)
    table.add_row("KV a token", *(f"{num_bytes} B" for num_bytes in kv), f"{kv[1] / kv[0]:.1%}")
    grown = [None if side.loaded_bytes is None else _size(side.loaded_bytes) for side in (a, b)]
    table.add_row("process grew by", *(each or "not known" for each in grown), "")
    return table


def _texts(texts: tuple[TextReport, ...]) -> Table:
    table = _table("", *(text.text for text in texts))
    rows: dict[str, Callable[[TextReport], str]] = {
        "tokens": lambda t: str(t.num_tokens),
        "perplexity A": lambda t: f"{t.perplexity_a:.3f}",
        "perplexity B": lambda t: f"{t.perplexity_b:.3f}",
        "B / A": lambda t: f"{t.perplexity_change:+.2%} ± {t.perplexity_change_error:.2%}",
        "KL divergence, mean": lambda t: f"{t.mean_kl:.5f}",
        "KL divergence, 99 % below": lambda t: f"{t.p99_kl:.4f}",
        "same likeliest token": lambda t: f"{t.same_top:.2%}",
        "another where A is sure": lambda t: f"{t.num_sure_flips} of {t.num_sure}",
    }
    for name, value in rows.items():
        table.add_row(name, *(value(text) for text in texts))
    return table


def _positions(texts: tuple[TextReport, ...]) -> Table:
    table = Table(title="Mean KL divergence by position", title_justify="left")
    table.add_column("positions", no_wrap=True)
    for text in texts:
        table.add_column(escape(text.text), overflow="fold")
    top = max((b.mean_kl for t in texts for b in t.buckets), default=0.0)
    longest = max(texts, key=lambda t: len(t.buckets))
    for index, place in enumerate(longest.buckets):
        values = [t.buckets[index].mean_kl if index < len(t.buckets) else None for t in texts]
        table.add_row(f"{place.start}-{place.end}", *("" if v is None else f"{v:.5f} {_bar(v, top)}" for v in values))
    return table


def _bar(value: float, top: float) -> str:
    return "█" * round(_BAR * value / top) if top > 0 and math.isfinite(value / top) else ""


def _layers(layers: LayerReport | None) -> list[str]:
    if layers is None:
        return []
    errors = layers.errors
    where = "nowhere" if layers.first is None else ("the embedding" if layers.first == 0 else f"layer {layers.first}")
    return [
        f"Hidden states part by more than {layers.threshold:.0%} at: [bold]{where}[/] (relative error after layer 1 "
        f"{errors[1]:.2%}, halfway {errors[len(errors) // 2]:.2%}, after the last {errors[-1]:.2%})"
    ]


def _copies(copies: tuple[CopyReport, ...]) -> list[str]:
    lines = []
    for c in copies:
        of = f"of {c.num_lines}: A {c.num_exact_a}, B {c.num_exact_b}, lost by B {len(c.lost)}"
        lines.append(f"Lines of {c.kind} copied exactly, {of}")
        lines += [f"  {escape(lost.text)}  [red]→[/] {escape(lost.wrote)}" for lost in c.lost[:_SHOWN]]
    return lines


def _calls(calls: CallReport | None) -> list[str]:
    if calls is None:
        return []
    right = f"right: A {calls.num_right_a}, B {calls.num_right_b} of {calls.num_prompts}"
    lines = [f"Tool calls: [bold]{calls.agreement:.1%}[/] the same ({right})"]
    return lines + [
        f"  {escape(d.prompt)}  A: {escape(d.a)}  [red]B:[/] {escape(d.b)}" for d in calls.different[:_SHOWN]
    ]


def _speeds(speeds: tuple[SpeedReport, ...]) -> Table:
    table = _table("speed", "A", "B", "B is faster by")
    for s in speeds:
        if s.what == "prefill":
            shown = [f"{s.num_tokens / seconds:.0f} tokens/s" for seconds in (s.a_s, s.b_s)]
        else:
            shown = [f"{seconds * 1e3:.1f} ms" for seconds in (s.a_s, s.b_s)]
        table.add_row(s.what, *shown, f"{s.ratio:.2f} times")
    if not all(s.is_interleaved for s in speeds):
        table.caption = "not at once: there was no room for both"
    return table


def _verdict(found: Comparison) -> list[str]:
    v = found.verdict
    lines = []
    if v.is_close is not None:
        close = "[green]close to A[/]" if v.is_close else "[yellow]noticeably another model than A[/]"
        lines.append(f"As a model of text, B is {close}.")
    match v.is_safe_for_exact:
        case True:
            lines.append("[green]No sign that B is unsafe for exact numbers or code, where A is safe.[/]")
        case False:
            lines.append("[red bold]B is unsafe for exact numbers and code.[/]")
        case None:
            lines.append("Whether B is safe for exact numbers and code was not measured.")
    return lines + [f"  - {escape(reason)}" for reason in v.reasons]


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f} MB"
