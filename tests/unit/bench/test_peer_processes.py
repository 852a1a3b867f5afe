"""Processes of other interpreters: their words, their failures, and that none is left behind."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tenuto.bench.peers.environment import PeerEnvironment, PeerUnavailable, process, server_blamed
from tenuto.bench.peers.lines import json_objects
from tenuto.errors import TenutoError

TALK = 'import sys; print("loading"); print(\'{"turn": "一"}\'); print("[1]"); print(\'{"done": 1}\'); sys.exit(%d)'


def _objects(code: str, log: Path) -> list[dict[str, Any]]:
    async def main() -> list[dict[str, Any]]:
        async with process([sys.executable, "-c", code], log, {"PYTHONIOENCODING": "utf-8"}) as started:
            return [value async for value in json_objects(started, log)]

    return anyio.run(main)


def test_objects_come_and_other_words_are_skipped(tmp_path: Path) -> None:
    assert _objects(TALK % 0, tmp_path / "log") == [{"turn": "一"}, {"done": 1}]


def test_a_failure_carries_the_last_words(tmp_path: Path) -> None:
    code = "import sys; print('{}'); print('没有内存', file=sys.stderr); sys.exit(3)"
    with pytest.raises(PeerUnavailable, match=r"status 3.*没有内存"):
        _objects(code, tmp_path / "log")


def test_output_that_nobody_reads_goes_to_the_log_and_holds_nothing_up(tmp_path: Path) -> None:
    talk = "import sys; sys.stdout.write('x' * 1_000_000); print('说完了')"  # more than a pipe takes

    async def main() -> int | None:
        command = [sys.executable, "-c", talk]
        async with process(command, tmp_path / "log", {"PYTHONIOENCODING": "utf-8"}, is_heard=False) as started:
            with anyio.fail_after(60):
                await started.wait()
        return started.returncode

    assert anyio.run(main) == 0
    assert (tmp_path / "log").read_text(encoding="utf-8").strip() == "x" * 1_000_000 + "说完了"


@pytest.mark.parametrize(
    ("end", "error", "message"),
    [
        ("sys.exit(3)", PeerUnavailable, r"status 3: 没有内存; see"),
        ("sys.stdin.read()", TenutoError, "^connection lost$"),
    ],
)
def test_a_failure_is_blamed_on_a_server_that_has_ended_and_on_no_other(
    tmp_path: Path, end: str, error: type[TenutoError], message: str
) -> None:
    async def main() -> None:
        code = f"import sys; print('没有内存', file=sys.stderr); {end}"
        log = tmp_path / "log"
        command = [sys.executable, "-c", code]
        async with process(command, log, {"PYTHONIOENCODING": "utf-8"}) as server, server_blamed(server, log):
            raise TenutoError("connection lost")

    with pytest.raises(error, match=message):
        anyio.run(main)


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_no_process_is_left_behind(tmp_path: Path) -> None:
    async def main() -> int:
        code = "import sys; print('{}', flush=True); sys.stdin.read()"
        with pytest.raises(RuntimeError, match="stop"):
            async with process([sys.executable, "-c", code], tmp_path / "log", {}) as started:
                async for _ in json_objects(started, tmp_path / "log"):
                    raise RuntimeError("stop")
        assert started.returncode is not None
        return started.pid

    pid = anyio.run(main)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_our_interpreters_variables_do_not_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TENUTO_PRECISION", "int8")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    (environment,) = _objects(code, tmp_path / "log")
    assert not {"PYTHONPATH", "OMP_NUM_THREADS", "TENUTO_PRECISION"} & set(environment) and "PATH" in environment


@pytest.mark.skipif(os.name == "nt", reason="a shell script stands for pip")
def test_an_installation_that_fails_is_told_and_one_that_is_there_is_not_repeated(tmp_path: Path) -> None:
    folder = tmp_path / "环境"
    peer = PeerEnvironment(folder, ["some-engine>=2"], ["--index-url", "here"])
    _write_pip(peer, 'echo "no engine of that name" >&2; exit 1')
    with pytest.raises(PeerUnavailable, match=r"install failed: no engine of that name"):
        peer.install()
    _write_pip(peer, 'echo "$@" >> "$0.calls"')
    peer.install()
    peer.install()
    calls = peer.python.with_name("python.calls").read_text(encoding="utf-8").splitlines()
    assert calls == ["-m pip install --disable-pip-version-check -q --index-url here some-engine>=2"]
    PeerEnvironment(folder, ["some-engine>=3"], without=["broken"]).install()
    calls = peer.python.with_name("python.calls").read_text(encoding="utf-8").splitlines()
    assert calls[2:] == ["-m pip uninstall -y -q broken"]


def _write_pip(peer: PeerEnvironment, script: str) -> None:
    """In place of the environment's interpreter."""
    peer.python.parent.mkdir(parents=True, exist_ok=True)
    peer.python.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    peer.python.chmod(0o755)


def test_commands_that_fail_hang_or_do_not_exist(tmp_path: Path) -> None:
    environment = PeerEnvironment(tmp_path, [])
    with pytest.raises(PeerUnavailable, match="convert failed: 坏了"):
        environment.run([sys.executable, "-X", "utf8", "-c", "import sys; sys.exit('坏了')"], "convert", 60)
    with pytest.raises(PeerUnavailable, match="longer than"):
        environment.run([sys.executable, "-c", "import time; time.sleep(60)"], "convert", 0.5)
    with pytest.raises(PeerUnavailable, match="cannot be started"):
        environment.run(["/nowhere/python"], "convert", 1)
