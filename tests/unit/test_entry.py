"""How the process ends, whatever its threads are doing."""

from __future__ import annotations

import subprocess
import sys

import pytest

BUSY = """
import threading, time
from tenuto.entry import leave
threading.Thread(target=time.sleep, args=(60,), daemon={daemon}).start()
print("说完了")
leave({code!r})
"""


@pytest.mark.parametrize(("code", "status"), [(130, 130), (None, 0), (0, 0), (2, 2)])
@pytest.mark.parametrize("daemon", [True, False])
def test_it_ends_at_once_with_its_output_written(code: int | None, status: int, daemon: bool) -> None:
    command = [sys.executable, "-X", "utf8", "-c", BUSY.format(daemon=daemon, code=code)]
    ended = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=30, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, "说完了\n", "")


def test_a_message_is_shown_as_python_shows_it() -> None:
    command = [sys.executable, "-c", "from tenuto.entry import leave; leave('no such file')"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (1, "no such file\n")
