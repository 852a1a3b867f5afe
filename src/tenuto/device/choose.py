"""The device for a precision on this machine."""

from __future__ import annotations

import os

import structlog

from tenuto.config import check_kv_type
from tenuto.device.cpu import CpuDevice, native_library
from tenuto.device.protocol import INTEGERS, Device, KVType, Precision
from tenuto.device.reference import ReferenceDevice


def choose_device(precision: Precision, num_threads: int | None, kv_type: KVType = "float") -> Device:
    """INT8 and INT4 run on the native kernels; without these the reference device stands in and says so.

    Args:
        num_threads: None: one for each core that this process may use.

    Raises:
        ConfigError: INT8 KV is asked for beside fp32 or bf16.
    """
    check_kv_type(kv_type, precision)
    if precision not in INTEGERS:
        return ReferenceDevice(precision)
    library = native_library()
    if library is not None:
        return CpuDevice(library, num_threads or num_cores(), kv_type, precision)
    structlog.get_logger("tenuto.device").warning(
        f"there are no native kernels to use: {precision.upper()} is computed by the reference device, slowly",
        fix="install a C++ compiler and install Tenuto again",
    )
    return ReferenceDevice(precision, kv_type=kv_type)


def num_cores() -> int:
    """Cores that this process may use, where the system tells; all of them otherwise."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
