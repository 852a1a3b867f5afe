"""Getting the configured model before a command needs it, with its progress on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from tenuto.config import Config
from tenuto.hub import locate
from tenuto.wiring_hub import model_store


class _Shown:
    """A bar while bytes arrive; without a terminal, a line when it begins and one for each note."""

    def __init__(self, console: Console, bar: Progress) -> None:
        self._console = console
        self._bar = bar
        self._task: TaskID | None = None

    def begin(self, what: str, total_bytes: int, done_bytes: int) -> None:
        if self._console.is_terminal:
            self._task = self._bar.add_task(escape(what), total=total_bytes, completed=done_bytes)
        elif total_bytes > done_bytes:
            self.note(f"fetching {what}: {(total_bytes - done_bytes) / 1e6:.0f} MB")

    def advance(self, num_bytes: int) -> None:
        if self._task is not None:
            self._bar.advance(self._task, num_bytes)

    def note(self, message: str) -> None:
        self._console.print(message, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def shown_progress() -> Iterator[_Shown]:
    """Progress of a download, on standard error."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield _Shown(console, bar)


def fetch_model(config: Config) -> Path:
    """The path of the configured model; one given by an id is fetched first. Raises what `hub.locate` does."""
    with model_store(config) as store, shown_progress() as progress:
        return locate(config.model, store, progress)
