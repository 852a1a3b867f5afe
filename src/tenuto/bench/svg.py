"""What our plots are drawn with: a few strings, so that no plotting library is needed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import escape

from tenuto.errors import ConfigError

COLOURS = ("#1f5fa8", "#c25a1c", "#2d8a4e", "#8a3d8f", "#7a6a16", "#b03050", "#3d7f8f", "#555555", "#9a6a3a")
_INK = "#222222"
_TITLE_SIZE = 16


def document(width: int, height: int, parts: Iterable[str], font_size: int = 12) -> str:
    """A whole picture on white, in pixels."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="{font_size}">'
    )
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="white"/>', *parts, "</svg>"]) + "\n"


def text(x: float, y: float, content: str, anchor: str = "start", colour: str = _INK, more: str = "") -> str:
    """Args:
    more: further attributes.
    """
    told = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {told}{' ' if more else ''}{more}>{escape(content)}</text>"


def title(x: float, y: float, content: str) -> str:
    return text(x, y, content, more=f'font-size="{_TITLE_SIZE}"')


def upright(x: float, y: float, content: str) -> str:
    """Read from below, its middle at the point."""
    return text(x, y, content, "middle", more=f'transform="rotate(-90 {x:g} {y:g})"')


def write(svg: str, path: Path) -> None:
    """Raises ConfigError if the file cannot be written."""
    try:
        path.write_text(svg, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the plot cannot be written to {path}: {error.strerror or error}") from error
