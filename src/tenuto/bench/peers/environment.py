"""Environments of other engines: one folder each, filled from the package index, never mixed with ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import Process

from tenuto.errors import TenutoError

_INSTALL_S = 3600
_STOP_S = 20.0
_LAST_BREATH_S = 2.0  # from a connection that breaks to the end of the process behind it
_SHOWN_LINES = 4


class PeerUnavailable(TenutoError):
    """A peer cannot be had here; says why. The others go on."""


class PeerEnvironment:
    """A virtual environment of its own.

    Args:
        folder: holds it, and its logs.
        packages: requirements, as pip takes them.
        without: packages that came along with them and are removed again.
        pip_flags: passed to pip, e.g. an index.
    """

    def __init__(
        self, folder: Path, packages: Sequence[str], pip_flags: Sequence[str] = (), *, without: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self._without = tuple(without)
        self._packages = tuple(packages)
        self._pip_flags = tuple(pip_flags)
        self._record = folder / "installed.json"

    @property
    def python(self) -> Path:
        return self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def install(self) -> None:
        """Takes minutes the first time, nothing later. Raises PeerUnavailable with pip's own last words."""
        wanted = json.dumps(self._packages)
        if self._record.exists() and self._record.read_text(encoding="utf-8") == wanted:
            return
        if not self.python.exists():
            self.run([sys.executable, "-m", "venv", str(self.folder)], "install", _INSTALL_S)
        pip = [str(self.python), "-m", "pip"]
        install = [*pip, "install", "--disable-pip-version-check", "-q", *self._pip_flags, *self._packages]
        self.run(install, "install", _INSTALL_S)
        if self._without:
            self.run([*pip, "uninstall", "-y", "-q", *self._without], "install", _INSTALL_S)
        self._record.write_text(wanted, encoding="utf-8")

    def run(self, command: Sequence[str], what: str, timeout_s: float) -> None:
        """A command to its end, its output in a log. Raises PeerUnavailable if it fails, with the last lines of it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / f"{what}.log"
        with log.open("ab") as file:
            try:
                done = subprocess.run(  # noqa: S603 - our own commands and the user's own flags
                    list(command), stdin=subprocess.DEVNULL, stdout=file, stderr=file, timeout=timeout_s, check=False
                )
            except subprocess.TimeoutExpired as error:
                raise PeerUnavailable(f"{what} took longer than {timeout_s:.0f} s; see {log}") from error
            except OSError as error:
                raise PeerUnavailable(f"{what} cannot be started: {error}") from error
        if done.returncode:
            raise PeerUnavailable(f"{what} failed: {last_words(log)}; see {log}")


def last_words(log: Path) -> str:
    """The last lines of a log that say something."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "without a word"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(line[:300] for line in lines[-_SHOWN_LINES:]) or "without a word"


@asynccontextmanager
async def process(
    command: Sequence[str], log: Path, more_environment: Mapping[str, str], *, is_heard: bool = True
) -> AsyncIterator[Process]:
    """A process that is gone at the end of the block, whatever happens in it.

    Args:
        is_heard: its output is read in the block; else it goes to the log with its errors. A pipe that nobody reads
            fills up, and whoever writes to it stands still.
    """
    environment = {**_environment(), **more_environment}
    with log.open("ab") as file:
        started = await anyio.open_process(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if is_heard else file,
            stderr=file,
            env=environment,
        )
        wait_s = 0.0  # what was cancelled or failed is not waited for
        try:
            yield started
            wait_s = _STOP_S
        finally:
            with anyio.CancelScope(shield=True):
                await _end(started, wait_s)


@asynccontextmanager
async def server_blamed(server: Process, log: Path) -> AsyncIterator[None]:
    """What fails because the server has ended fails with its status and last words, as PeerUnavailable."""
    try:
        yield
    except TenutoError as error:
        with anyio.move_on_after(_LAST_BREATH_S):
            await server.wait()
        if server.returncode is None:
            raise
        raise ended(server, log) from error


def ended(server: Process, log: Path) -> PeerUnavailable:
    """For a process that is gone before its time."""
    return PeerUnavailable(f"its process ended with status {server.returncode}: {last_words(log)}; see {log}")


def _environment() -> dict[str, str]:
    """Ours, without what is meant for our own interpreter and threads."""
    ours = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "OMP_NUM_THREADS", "OMP_WAIT_POLICY")
    return {name: value for name, value in os.environ.items() if name not in ours and not name.startswith("TENUTO_")}


async def _end(started: Process, wait_s: float) -> None:
    """Its input ends; if that is not enough it is terminated, and at last killed."""
    if started.stdin is not None:
        await started.stdin.aclose()
    for stop, patience_s in ((started.terminate, wait_s), (started.kill, _STOP_S)):
        with anyio.move_on_after(patience_s):
            await started.wait()
        if started.returncode is not None:
            break
        stop()
    await started.aclose()
