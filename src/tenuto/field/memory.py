"""How much memory a process may still take."""

from __future__ import annotations

import os
from pathlib import Path


def available_bytes(root: Path = Path("/")) -> int | None:
    """The less of what the machine has free and what the control group (a container, a service) still allows.

    None where the system does not say. Free memory as Linux estimates it (`MemAvailable`), the group's limit of version
    2 or 1; elsewhere the machine's whole memory.

    Args:
        root: where `proc` and `sys` lie.
    """
    free = _machine(root / "proc" / "meminfo")
    group = _group(root / "sys" / "fs" / "cgroup")
    known = [n for n in (free, group) if n is not None]
    return min(known) if known else None


def _machine(meminfo: Path) -> int | None:
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _group(folder: Path) -> int | None:
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            return max(0, int((folder / limit).read_text()) - int((folder / used).read_text()))
        except (OSError, ValueError):
            continue  # no such group, or "max": no limit
    return None
