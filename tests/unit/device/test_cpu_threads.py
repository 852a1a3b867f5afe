"""The kernels' threads: copies of the process, more threads than there are, engines side by side, and the end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from tenuto.config import Config
from tenuto.device.cpu import CpuDevice, native_library
from tenuto.errors import ConfigError

LIBRARY = native_library()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="installed without a C++ compiler")

SETUP = """
import os, signal, sys, threading
import numpy as np, torch
from tenuto.device.cpu import CpuDevice, native_library
device = CpuDevice(native_library(), 4)
weight = device.prepare_linear([np.random.default_rng(0).standard_normal((512, 256), np.float32)])
x = torch.randn(40, 256)
first = device.linear(x, weight)
"""
# What a copy of the process does before it ends, each in a copy of its own.
CHILDREN = """
def leave():
    os._exit(0)
def end_as_programs_do():
    pass
def forget():
    global device
    del device
def make_its_own():
    assert torch.equal(CpuDevice(native_library(), 3).linear(x, weight), first)
def have_a_child():
    in_a_copy(leave)
def in_a_copy(act):
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # waiting for threads that were not copied would be for ever
        assert torch.equal(device.linear(x, weight), first)
        act()
        sys.exit(0)
    status = os.waitpid(child, 0)[1]
    assert status == 0, (act, status)
for act in (leave, end_as_programs_do, forget, make_its_own, have_a_child):
    in_a_copy(act)
assert torch.equal(device.linear(x, weight), first)
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_copy_of_the_process_computes_and_ends() -> None:
    done = run(SETUP + CHILDREN)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("end", "code"), [("leave(3)", 3), ("os.kill(os.getpid(), signal.SIGINT)", 130)])
def test_the_process_ends_while_others_still_compute(end: str, code: int) -> None:
    """As our programs end, by `leave`: torch itself may abort when Python takes itself apart around such threads."""
    done = run(
        SETUP
        + f"""
from tenuto.entry import leave
def compute():
    for _ in range(300):
        assert torch.equal(device.linear(x, weight), first)
for daemon in (True, False):
    threading.Thread(target=compute, daemon=daemon).start()
try:
    {end}
    threading.Event().wait(60)
except KeyboardInterrupt:
    leave(130)
"""
    )
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another kind")
def test_as_many_threads_as_there_are_is_enough() -> None:
    """Some systems give a process only so many threads: fewer than asked for compute the same."""
    limited = """
import resource
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (300 << 20),) * 2)
few = CpuDevice(native_library(), 1000)
assert threading.active_count() == 1 and len(os.listdir("/proc/self/task")) < 300
assert torch.equal(few.linear(x, weight), first)
"""
    done = run(SETUP + limited)
    assert done.returncode == 0, done.stderr[-500:]


@pytest.mark.parametrize("num_threads", [0, -1, 1025, 3_000_000_000])
def test_absurd_numbers_of_threads_are_refused(num_threads: int) -> None:
    with pytest.raises(ConfigError, match="setting num_threads"):
        Config.load(num_threads=num_threads)


def test_two_at_once_on_one_device_get_their_own_results() -> None:
    assert LIBRARY is not None
    device = CpuDevice(LIBRARY, 3)
    draw = np.random.default_rng(1)
    weights = [device.prepare_linear([draw.standard_normal((48, size), np.float32)]) for size in (70, 300)]
    inputs = [torch.from_numpy(draw.standard_normal((rows, size), np.float32)) for rows, size in ((33, 70), (9, 300))]
    expected = [device.linear(x, weight) for x, weight in zip(inputs, weights, strict=True)]
    wrong: list[int] = []

    def compute(which: int) -> None:
        for _ in range(200):
            if not torch.equal(device.linear(inputs[which], weights[which]), expected[which]):
                wrong.append(which)

    threads = [threading.Thread(target=compute, args=(which,)) for which in (0, 1, 0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong and not any(thread.is_alive() for thread in threads)
