"""A curve as SVG."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from tenuto.bench import svg

_WIDTH, _HEIGHT = 720, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 46, 54


class Series(msgspec.Struct, frozen=True):
    """A line of a plot."""

    name: str
    points: tuple[tuple[float, float], ...]


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False  # then every x must be positive


def write_svg(plot: Plot, path: Path) -> None:
    """Raises ConfigError if the file cannot be written."""
    svg.write(to_svg(plot), path)


def to_svg(plot: Plot) -> str:
    """The document. Its y axis begins at 0; ticks of x stand at its points."""
    points = [point for series in plot.series for point in series.points]
    assert points and all(math.isfinite(y) and (x > 0 or not plot.log_x) for x, y in points), "nothing can be plotted"
    xs = sorted({x for x, _ in points})
    scale = math.log if plot.log_x else float
    step = _nice_step(max(y for _, y in points))
    top = step * max(1, math.ceil(max(y for _, y in points) / step - 1e-9))

    def place(x: float, y: float) -> tuple[float, float]:
        low, high = scale(xs[0]), scale(xs[-1])
        across = 0.5 if high == low else (scale(x) - low) / (high - low)
        return (
            _LEFT + 16 + across * (_WIDTH - _LEFT - _RIGHT - 32),
            _HEIGHT - _BOTTOM - max(y, 0) / top * (_HEIGHT - _TOP - _BOTTOM),
        )

    parts = [svg.title(_LEFT, 24, plot.title)]
    for index in range(round(top / step) + 1):
        y = place(xs[0], index * step)[1]
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#dddddd"/>')
        parts.append(svg.text(_LEFT - 8, y + 4, f"{index * step:g}", "end"))
    parts += [svg.text(place(x, 0)[0], _HEIGHT - _BOTTOM + 20, f"{x:g}", "middle") for x in xs]
    parts.append(svg.text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 12, plot.x_label, "middle"))
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    parts.append(svg.upright(18, middle, plot.y_label))
    for index, series in enumerate(plot.series):
        colour = svg.COLOURS[index % len(svg.COLOURS)]
        places = [place(x, y) for x, y in sorted(series.points)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in places]
        parts.append(svg.text(_LEFT + 12, _TOP + 6 + 18 * index, series.name, colour=colour))
    return svg.document(_WIDTH, _HEIGHT, parts, font_size=13)


def _nice_step(highest: float) -> float:
    """A round distance of grid lines, about five of them."""
    if highest <= 0:
        return 1.0
    rough = highest / 5
    power = 10.0 ** math.floor(math.log10(rough))
    return power * next(factor for factor in (1, 2, 2.5, 5, 10) if rough <= factor * power * (1 + 1e-9))
