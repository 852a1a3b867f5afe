"""`tenuto serve` as two processes: what happens to one when the other is killed, busy or told to end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tenuto.checkpoint import find_model, open_checkpoint
from tenuto.errors import ModelFileError

pytestmark = pytest.mark.model

DEADLINE_S = 120.0
_QUICK = ("--precision", "int8", "--kv-type", "int8")
BODY = {
    "model": "default",
    "messages": [{"role": "user", "content": "请讲一个长故事。Tell me a long story."}],
    "stream": True,
    "ignore_eos": True,
    "temperature": 0,
}


class Service:
    """A server, and its engine's process."""

    def __init__(self, *options: str, wait: bool = True, **environment: str) -> None:
        command = [sys.executable, "-m", "tenuto", "serve", "--port", "0", "--threads", "1", *_QUICK, *options]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, encoding="utf-8", env={**os.environ, **environment}
        )
        self.lines: list[str] = []
        self.url = ""
        self._has_url = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if wait:
            assert self._has_url.wait(DEADLINE_S) and self.url, "".join(self.lines)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r"http://\S+", line)
            if found and not self.url:
                self.url = found.group(0)
                self._has_url.set()
        self._has_url.set()

    @property
    def engine_pid(self) -> int:
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        (engine,) = [int(c) for c in children if b"tenuto.engine_process" in Path(f"/proc/{c}/cmdline").read_bytes()]
        return engine

    def ends(self, pid: int | None = None) -> None:
        """Waits until a process is gone, and the last line it wrote was read."""
        if pid is None:
            self.process.wait(DEADLINE_S)
            self._reader.join(DEADLINE_S)
            return
        deadline = time.monotonic() + DEADLINE_S
        while is_alive(pid):
            assert time.monotonic() < deadline, "an orphan is left"
            time.sleep(0.05)

    @property
    def said(self) -> str:
        return "".join(self.lines)

    def stream(self, max_tokens: int, begun: threading.Semaphore) -> list[str]:
        """The data of all events of one reply."""
        events: list[str] = []
        body = {**BODY, "max_tokens": max_tokens}
        with httpx.stream("POST", f"{self.url}/chat/completions", json=body, timeout=DEADLINE_S) as response:
            assert response.status_code == 200, response.read()
            for line in response.iter_lines():
                if line.startswith("data: "):
                    events.append(line[6:])
                    if len(events) == 3:
                        begun.release()
        return events


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@contextmanager
def serving(*options: str, **given: Any) -> Iterator[Service]:
    service = Service(*options, **given)
    try:
        yield service
    finally:
        service.process.kill()
        service.ends()


@contextmanager
def under_load(service: Service, max_tokens: int, num_streams: int = 3) -> Iterator[list[list[str]]]:
    """Inside the block all streams have begun; after it, all have ended."""
    begun = threading.Semaphore(0)
    replies: list[list[str]] = []
    with ThreadPoolExecutor(num_streams) as pool:
        running = [pool.submit(service.stream, max_tokens, begun) for _ in range(num_streams)]
        for _ in running:
            assert begun.acquire(timeout=DEADLINE_S)
        yield replies
        replies += [one.result(DEADLINE_S) for one in running]


def test_a_killed_engine_ends_every_stream_with_an_error_and_the_server_with_a_message() -> None:
    with serving() as service:
        with under_load(service, 2000) as replies:
            os.kill(service.engine_pid, signal.SIGKILL)
        service.ends()
        for events in replies:
            assert "killed by signal 9" in events[-2] and '"error"' in events[-2] and events[-1] == "[DONE]"
        assert service.process.returncode == 1
        assert service.lines[-1].startswith("tenuto: the engine's process has ended: killed by signal 9")
        assert "Traceback" not in service.said


def test_a_killed_server_takes_its_engine_along() -> None:
    with serving() as service:
        engine = service.engine_pid
        begun = threading.Semaphore(0)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(service.stream, 2000, begun)
            assert begun.acquire(timeout=DEADLINE_S)
            service.process.kill()
            service.ends(engine)
            with pytest.raises(httpx.HTTPError):
                running.result(DEADLINE_S)


def test_a_signal_to_both_processes_lets_running_replies_finish() -> None:
    """As a service's supervisor sends it. Only the engine's process has torch and the weights."""
    with serving() as service:
        engine = service.engine_pid
        maps = {pid: Path(f"/proc/{pid}/maps").read_text() for pid in (engine, service.process.pid)}
        assert "libtorch" in maps[engine] and "libtorch" not in maps[service.process.pid]
        with under_load(service, 40) as replies:
            for pid in (engine, service.process.pid):
                os.kill(pid, signal.SIGTERM)
        service.ends()
        service.ends(engine)
        assert service.process.returncode == 0, service.said
        for events in replies:
            assert '"finish_reason":"length"' in events[-2].replace(" ", "") and events[-1] == "[DONE]"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_server_that_ends_while_it_loads_leaves_no_engine(number: int) -> None:
    with serving(wait=False) as service:
        deadline = time.monotonic() + DEADLINE_S
        engine = None
        while engine is None:
            assert time.monotonic() < deadline and service.process.poll() is None, service.said
            try:
                engine = service.engine_pid
            except (ValueError, OSError):
                time.sleep(0.02)
        service.process.send_signal(number)
        service.ends()
        service.ends(engine)
        assert service.process.returncode == (130 if number == signal.SIGINT else -number)
        assert "Traceback" not in service.said


def test_a_model_that_cannot_be_read_is_said_as_without_a_process(tmp_path: Path) -> None:
    broken = tmp_path / "坏.gguf"
    broken.write_bytes(find_model("embedded").read_bytes()[:50_000_000])
    with serving("--model", str(broken), wait=False) as service:
        service.ends()
        assert service.process.returncode == 1 and "Traceback" not in service.said
        with pytest.raises(ModelFileError) as caught:
            open_checkpoint(broken)
        assert service.lines[-1] == f"tenuto: {caught.value}\n"


def test_too_little_memory_is_said_by_the_process_that_would_need_it() -> None:
    with serving("--kv-tokens", "900000000", wait=False) as service:
        service.ends()
        assert service.process.returncode == 1 and "Traceback" not in service.said
        assert re.match(r"tenuto: .* GB .* GB", service.lines[-1]), service.lines[-1]
