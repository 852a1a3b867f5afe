"""Plots are SVG that a parser takes, with every point inside."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tenuto.bench.plot import Plot, Series, to_svg, write_svg
from tenuto.errors import ConfigError

SVG = "{http://www.w3.org/2000/svg}"


def _plot(*series: Series, log_x: bool = True) -> Plot:
    return Plot(title="a < b & c", x_label="智能体", y_label="agents/s", series=series, log_x=log_x)


@pytest.mark.parametrize("log_x", [True, False])
def test_points_lie_inside_and_higher_values_higher(log_x: bool) -> None:
    line = Series("tenuto <held>", ((1, 0.2), (2, 0.5), (4, 0.9), (16, 1.3)))
    root = ElementTree.fromstring(to_svg(_plot(line, log_x=log_x)))
    circles = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in root.iter(f"{SVG}circle")]
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert len(circles) == 4 and all(0 < x < width and 0 < y < height for x, y in circles)
    assert [x for x, _ in circles] == sorted(x for x, _ in circles)
    assert [y for _, y in circles] == sorted((y for _, y in circles), reverse=True)
    texts = [t.text for t in root.iter(f"{SVG}text")]
    assert {"a < b & c", "智能体", "tenuto <held>", "1", "16"} <= set(texts)


def test_agents_that_double_stand_at_equal_distances() -> None:
    root = ElementTree.fromstring(to_svg(_plot(Series("s", ((1, 1), (2, 1), (4, 1))))))
    a, b, c = (float(e.attrib["cx"]) for e in root.iter(f"{SVG}circle"))
    assert b - a == pytest.approx(c - b, abs=0.2)


@pytest.mark.parametrize("points", [((3.0, 0.0),), ((1.0, 1e-9), (2.0, 1e6)), ((1.0, 5.0), (2.0, 5.0))])
def test_single_points_zeros_and_extremes_are_drawn(points: tuple[tuple[float, float], ...]) -> None:
    text = to_svg(_plot(Series("s", points)))
    ElementTree.fromstring(text)
    assert "nan" not in text and "inf" not in text
    assert 2 <= len(re.findall('stroke="#dddddd"', text)) <= 8


def test_grid_lines_are_round_numbers() -> None:
    root = ElementTree.fromstring(to_svg(_plot(Series("s", ((1, 0.23), (2, 1.31))))))
    ends = [t.text for t in root.iter(f"{SVG}text") if t.attrib["text-anchor"] == "end"]
    assert ends == ["0", "0.5", "1", "1.5"]


def test_a_file_that_cannot_be_written_is_told_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        write_svg(_plot(Series("s", ((1, 1),))), tmp_path / "nowhere" / "图.svg")
    write_svg(_plot(Series("s", ((1, 1),))), tmp_path / "图.svg")
    ElementTree.parse(tmp_path / "图.svg")
