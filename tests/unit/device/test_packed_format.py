"""The packed form on disk and its version go together: files of another form must not be found under this one's key."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from tenuto.device.cpu import CpuDevice, native_library
from tenuto.device.packing import PackingDevice

LIBRARY = native_library()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="installed without a C++ compiler")

# What the kernels make of the matrix below. If this test fails because the packed form was changed on purpose, change
# the version in `CpuDevice.packed_format` too, and put both here.
KNOWN = {
    "int8 2": "9d47633be56b995b24199aface152eea60f26ce0448e80e5dfce569d93d6f289",
}


def test_the_packed_form_is_the_one_its_version_says() -> None:
    assert LIBRARY is not None
    device = CpuDevice(LIBRARY, 1)
    assert isinstance(device, PackingDevice)
    matrix = (np.arange(50 * 150, dtype=np.float32).reshape(50, 150) * 37 % 1001 - 500) / 64
    packed = device.export_linear(device.prepare_linear([matrix], [np.arange(50, dtype=np.float32)]))
    digest = hashlib.sha256(f"{packed.form} {packed.packed.shape[0]} ".encode() + packed.packed.numpy().tobytes())
    assert KNOWN.get(device.packed_format.partition(";")[0]) == digest.hexdigest()


def test_kernels_built_anew_find_nothing_of_the_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that was forgotten must not cost wrong weights."""
    assert LIBRARY is not None
    device = CpuDevice(LIBRARY, 1)
    before = device.packed_format
    monkeypatch.setattr(LIBRARY, "build", "another")
    assert device.packed_format != before
