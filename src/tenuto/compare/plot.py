"""KL divergence by position as a picture: an SVG file without dependencies."""

from __future__ import annotations

from html import escape

from tenuto.compare.report import Comparison, TextReport

_WIDTH, _HEIGHT = 720, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 20, 50, 50
_COLOURS = ("#1f5fa8", "#b8442f", "#3c8a3c", "#8a5fa8")
_NUM_LINES = 4  # of the grid


def svg(comparison: Comparison) -> str:
    """Mean KL of each bucket of positions, a line a text; positions are as far apart as the buckets."""
    texts = [text for text in comparison.texts if text.num_broken == 0]
    top = max((bucket.mean_kl for text in texts for bucket in text.buckets), default=0.0) or 1.0
    longest = max(texts, key=lambda text: len(text.buckets), default=None)
    title = f"KL divergence by position: {comparison.b.setting} against {comparison.a.setting}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="24" font-size="15">{escape(title)}</text>',
        *_grid(top),
        *_labels(longest),
    ]
    for index, text in enumerate(texts):
        parts += _line(text, top, _COLOURS[index % len(_COLOURS)], len(longest.buckets) if longest else 1, index)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(index: int, num: int) -> float:
    return _LEFT + (index + 0.5) * (_WIDTH - _LEFT - _RIGHT) / num


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)


def _grid(top: float) -> list[str]:
    parts = []
    for step in range(_NUM_LINES + 1):
        value = top * step / _NUM_LINES
        y = _y(value, top)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.2g}</text>')
    return parts


def _labels(longest: TextReport | None) -> list[str]:
    if longest is None:
        return []
    num = len(longest.buckets)
    return [
        f'<text x="{_x(index, num):.1f}" y="{_HEIGHT - 24}" text-anchor="middle">{b.start}-{b.end}</text>'
        for index, b in enumerate(longest.buckets)
    ]


def _line(text: TextReport, top: float, colour: str, num: int, index: int) -> list[str]:
    points = [(_x(i, num), _y(bucket.mean_kl, top)) for i, bucket in enumerate(text.buckets)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    legend = f'<text x="{_WIDTH - _RIGHT}" y="{40 + 14 * index}" text-anchor="end" fill="{colour}">'
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *dots,
        f"{legend}{escape(text.text)}</text>",
    ]
