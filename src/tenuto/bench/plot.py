"""A curve as SVG, drawn in a few lines so that no plotting library is needed."""

from __future__ import annotations

import math
from pathlib import Path
from xml.sax.saxutils import escape

import msgspec

from tenuto.errors import ConfigError

_WIDTH, _HEIGHT = 720, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 46, 54
_INK = 'fill="#222222"'
_COLOURS = ("#1f5fa8", "#c25a1c", "#2d8a4e", "#8a3d8f", "#7a6a16")


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
    try:
        path.write_text(to_svg(plot), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the plot cannot be written to {path}: {error.strerror or error}") from error


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

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, 24, plot.title, "start", f'font-size="16" {_INK}'),
    ]
    for index in range(round(top / step) + 1):
        y = place(xs[0], index * step)[1]
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#dddddd"/>')
        parts.append(_text(_LEFT - 8, y + 4, f"{index * step:g}", "end"))
    parts += [_text(place(x, 0)[0], _HEIGHT - _BOTTOM + 20, f"{x:g}", "middle") for x in xs]
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 12, plot.x_label, "middle"))
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    parts.append(_text(18, middle, plot.y_label, "middle", f'{_INK} transform="rotate(-90 18 {middle:g})"'))
    for index, series in enumerate(plot.series):
        colour = _COLOURS[index % len(_COLOURS)]
        places = [place(x, y) for x, y in sorted(series.points)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in places]
        parts.append(_text(_LEFT + 12, _TOP + 6 + 18 * index, series.name, "start", f'fill="{colour}"'))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, anchor: str, more: str = _INK) -> str:
    """Args:
    more: further attributes.
    """
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'


def _nice_step(highest: float) -> float:
    """A round distance of grid lines, about five of them."""
    if highest <= 0:
        return 1.0
    rough = highest / 5
    power = 10.0 ** math.floor(math.log10(rough))
    return power * next(factor for factor in (1, 2, 2.5, 5, 10) if rough <= factor * power * (1 + 1e-9))
