"""How a download tells what it is doing. The room draws nothing itself."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called by the downloading thread; `begin` comes once, then any number of the others."""

    def begin(self, what: str, total_bytes: int, done_bytes: int) -> None:
        """A download of `total_bytes` starts, of which `done_bytes` lie here already."""
        ...

    def advance(self, num_bytes: int) -> None:
        """More bytes are on disk; negative where a file had to be started over."""
        ...

    def note(self, message: str) -> None:
        """Something a person would like to know: waiting for another process, trying again."""
        ...


class _Silent:
    def begin(self, what: str, total_bytes: int, done_bytes: int) -> None: ...

    def advance(self, num_bytes: int) -> None: ...

    def note(self, message: str) -> None: ...


SILENT: Progress = _Silent()
