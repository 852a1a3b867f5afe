"""What a number was measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import tenuto

_CPUINFO = Path("/proc/cpuinfo")
_TOLD = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "asimddp", "i8mm")


def describe_machine(cpuinfo: Path = _CPUINFO) -> dict[str, str]:
    """Processor, its instructions that matter here, cores and versions."""
    told = _read(cpuinfo)
    flags = (told.get("flags") or told.get("Features") or "").split()
    return {
        "processor": told.get("model name") or platform.processor() or platform.machine(),
        "instructions": " ".join(name for name in _TOLD if name in flags),
        "cores": str(os.cpu_count()),
        "load": _load(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "tenuto": tenuto.__version__,
    }


def _load() -> str:
    """Processes that ran in the last minute, on average: a busy machine measures itself too."""
    try:
        return f"{os.getloadavg()[0]:.1f}"
    except (AttributeError, OSError):
        return ""


def _read(cpuinfo: Path) -> dict[str, str]:
    """The first processor's lines; nothing where there is no such file."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}
