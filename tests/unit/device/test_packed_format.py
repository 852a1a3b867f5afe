"""The packed form on disk and its version go together: files of another form must not be found under this one's key."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from tenuto.device.cpu import CpuDevice, native_library
from tenuto.device.packing import PackingDevice
from tenuto.device.protocol import Precision

LIBRARY = native_library()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="installed without a C++ compiler")

# What the kernels make of the matrix below. If this test fails because the packed form was changed on purpose, change
# the version in `CpuDevice.packed_format` too, and put both here.
KNOWN = {
    "int8 3": "2af7b291eec106b52f8d12cedbe00c4cacfa76b6d4ec9c6052821363e50c4274",
    "int4 3": "6ca7c0e06446cb4eef02ea199d67a741a6c231cc5f818b7e70fc800aaace368d",
}


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_the_packed_form_is_the_one_its_version_says(precision: Precision) -> None:
    assert LIBRARY is not None
    device = CpuDevice(LIBRARY, 1, precision=precision)
    assert isinstance(device, PackingDevice)
    matrix = (np.arange(50 * 750, dtype=np.float32).reshape(50, 750) * 37 % 1001 - 500) / 64  # twelve chunks
    packed = device.export_linear(device.prepare_linear([matrix], [np.arange(50, dtype=np.float32)]))
    digest = hashlib.sha256(f"{packed.form} {packed.packed.shape[0]} ".encode() + packed.packed.numpy().tobytes())
    assert KNOWN.get(device.packed_format.partition(";")[0]) == digest.hexdigest()


def test_a_matrix_is_taken_back_by_a_device_that_makes_such() -> None:
    """INT4 devices have both forms, INT8 ones the one."""
    assert LIBRARY is not None
    wide, narrow = CpuDevice(LIBRARY, 1), CpuDevice(LIBRARY, 1, precision="int4")
    matrix = np.ones((20, 70), np.float32)
    of_four, of_eight = narrow.prepare_linear([matrix]), narrow.prepare_linear([matrix], exact=True)
    assert (of_four.bits, of_eight.bits) == (4, 8)
    for weight in (of_four, of_eight):
        assert narrow.import_linear(narrow.export_linear(weight)) == weight
    assert wide.import_linear(narrow.export_linear(of_eight)) == of_eight
    with pytest.raises(ValueError, match="'int4', which precision int8 has not"):
        wide.import_linear(narrow.export_linear(of_four))
    with pytest.raises(ValueError, match="no INT4 matrix"):
        narrow.import_linear(replace(narrow.export_linear(of_eight), form="int4"))


def test_kernels_built_anew_find_nothing_of_the_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that was forgotten must not cost wrong weights."""
    assert LIBRARY is not None
    device = CpuDevice(LIBRARY, 1)
    before = device.packed_format
    monkeypatch.setattr(LIBRARY, "build", "another")
    assert device.packed_format != before
