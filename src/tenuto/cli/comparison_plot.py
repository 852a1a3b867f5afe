"""KL divergence by position as a picture."""

from __future__ import annotations

from pathlib import Path

from tenuto.bench.plot import Plot, Series, write_svg
from tenuto.compare.plan import Plan
from tenuto.compare.report import Comparison
from tenuto.errors import ConfigError


def check_plot(path: Path, plan: Plan) -> None:
    """Raises ConfigError, before anything is measured, if nothing could be plotted there."""
    if "accuracy" not in plan.parts:
        raise ConfigError("--plot needs the part accuracy, which --only leaves out")
    if not path.absolute().parent.is_dir() or path.is_dir():
        raise ConfigError(f"--plot {path}: no file can be written there")


def write_plot(found: Comparison, path: Path) -> None:
    """A line a text, at the end of each bucket of positions. Raises ConfigError: no numbers, or the file."""
    series = tuple(
        Series(text.text, tuple((float(bucket.end), bucket.mean_kl) for bucket in text.buckets))
        for text in found.texts
        if text.num_broken == 0
    )
    if not series:
        raise ConfigError(f"{path}: nothing to plot, for no text has finite probabilities only")
    title = f"{found.b.setting} against {found.a.setting}"
    write_svg(
        Plot(title=title, x_label="tokens before", y_label="mean KL divergence, nats", series=series, log_x=True), path
    )
