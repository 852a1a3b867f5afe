"""The roofline as SVG: operations a second against operations a byte, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

from tenuto.bench import svg
from tenuto.bench.kernels.report import KernelReport, KernelTime

_WIDTH, _HEIGHT = 820, 520
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 210, 46, 54


def write_roofline(report: KernelReport, path: Path) -> None:
    """Raises ConfigError if the file cannot be written."""
    svg.write(roofline(report), path)


def roofline(report: KernelReport) -> str:
    """The document."""
    axes = _Axes(report)
    names = list(dict.fromkeys(one.kernel for one in report.kernels))
    parts = [
        svg.title(_LEFT, 24, f"Kernels of {report.model}, {report.precision}, {report.limits.num_threads} threads"),
        *_grid(axes),
        *_roofs(report, axes),
    ]
    for index, name in enumerate(names):
        colour = svg.COLOURS[index % len(svg.COLOURS)]
        parts += [_dot(one, axes, colour) for one in report.kernels if one.kernel == name]
        parts.append(svg.text(_WIDTH - _RIGHT + 16, _TOP + 12 + 18 * index, f"● {name}", colour=colour))
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    parts.append(svg.text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 12, "operations a byte", anchor="middle"))
    parts.append(svg.upright(18, middle, "operations a second"))
    return svg.document(_WIDTH, _HEIGHT, parts)


class _Axes:
    """Whole powers of ten around everything that is drawn."""

    def __init__(self, report: KernelReport) -> None:
        limits, drawn = report.limits, report.kernels
        x = [one.intensity for one in drawn] + [limits.int8 / limits.read]
        y = [one.num_operations / one.time_s for one in drawn] + [limits.int8, limits.int8_tiles or limits.int8]
        self.x = math.floor(math.log10(min(x))), math.ceil(math.log10(max(x)) + 1e-9)
        self.y = math.floor(math.log10(min(y))), math.ceil(math.log10(max(y)) + 1e-9)

    def across(self, intensity: float) -> float:
        low, high = self.x
        return _LEFT + (math.log10(intensity) - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    def up(self, rate: float) -> float:
        low, high = self.y
        return _HEIGHT - _BOTTOM - (math.log10(rate) - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)


def _grid(axes: _Axes) -> Iterator[str]:
    for power in range(axes.x[0], axes.x[1] + 1):
        x = axes.across(10.0**power)
        yield f'<path d="M{x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="#e4e4e4"/>'
        yield svg.text(x, _HEIGHT - _BOTTOM + 18, f"{10.0**power:g}", anchor="middle")
    for power in range(axes.y[0], axes.y[1] + 1):
        y = axes.up(10.0**power)
        yield f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#e4e4e4"/>'
        yield svg.text(_LEFT - 8, y + 4, _rate(10.0**power), anchor="end")


def _roofs(report: KernelReport, axes: _Axes) -> Iterator[str]:
    """What reading allows, up to each peak."""
    limits = report.limits
    peaks = [("INT8 vectors", limits.int8), ("float32", limits.fp32), ("INT8 tiles", limits.int8_tiles)]
    left, right = 10.0 ** axes.x[0], 10.0 ** axes.x[1]
    for name, peak in peaks:
        if not peak:
            continue
        start, bend = max(left, 10.0 ** axes.y[0] / limits.read), min(peak / limits.read, right)
        line = [
            (start, start * limits.read),
            (bend, min(bend * limits.read, peak)),
            (right, min(peak, right * limits.read)),
        ]
        points = " ".join(f"{axes.across(x):.1f},{axes.up(y):.1f}" for x, y in line)
        yield f'<polyline points="{points}" fill="none" stroke="#222222" stroke-width="1.5"/>'
        yield svg.text(_WIDTH - _RIGHT - 4, axes.up(line[-1][1]) - 5, f"{name}, {_rate(peak)}", anchor="end")
    y = axes.up(max(10.0 ** axes.y[0], limits.read * left)) - 8
    yield svg.text(
        axes.across(max(left, 10.0 ** axes.y[0] / limits.read)) + 14, y, f"reading, {limits.read / 1e9:.0f} GB/s"
    )


def _dot(one: KernelTime, axes: _Axes, colour: str) -> str:
    x, y = axes.across(one.intensity), axes.up(one.num_operations / one.time_s)
    told = f"{one.kernel}, {one.setting}: {100 * one.of_limit:.0f} % of the limit"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{escape(told)}</title></circle>'


def _rate(rate: float) -> str:
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if rate >= size:
            return f"{rate / size:.3g} {unit}"
    return f"{rate:.3g}"
