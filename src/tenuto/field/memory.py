"""How much memory a process may still take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_V2 = ("memory.max", "memory.current", "")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")


def available_bytes(root: Path = Path("/")) -> int | None:
    """The less of what the machine has free and what the control groups (a container, a service) still allow.

    None where the system does not say. Free memory as Linux estimates it (`MemAvailable`), the limits of the groups of
    version 2 or 1 that the process is in; elsewhere the machine's whole memory.

    Args:
        root: where `proc` and `sys` lie.
    """
    known = [n for n in (_machine(root / "proc" / "meminfo"), *_groups(root)) if n is not None]
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


def _groups(root: Path) -> Iterator[int | None]:
    """What the process's own group allows, and each above it: the limit may be anyone's."""
    mounted = root / "sys" / "fs" / "cgroup"
    for folder, names in ((mounted, _V2), (mounted / "memory", _V1)):
        yield _allowed(folder, *names)
    try:
        lines = (root / "proc" / "self" / "cgroup").read_text().splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "" or "memory" in controllers.split(","):
            folder, names = (mounted, _V2) if controllers == "" else (mounted / "memory", _V1)
            for part in path.strip("/").split("/"):  # inside a container the path may be the host's, and not be there
                folder = folder / part
                yield _allowed(folder, *names)


def _allowed(folder: Path, limit: str, used: str, prefix: str) -> int | None:
    try:
        free = int((folder / limit).read_text()) - int((folder / used).read_text())
    except (OSError, ValueError):
        return None  # no such group, or "max": no limit
    return max(0, free + _cached(folder / "memory.stat", prefix))


def _cached(stat: Path, prefix: str) -> int:
    """Bytes of files that count as used but are given up when memory is wanted: models just read, most of all."""
    names = (f"{prefix}active_file", f"{prefix}inactive_file")
    try:
        values = dict(line.split(" ", 1) for line in stat.read_text().splitlines() if " " in line)
        return sum(int(values.get(name, 0)) for name in names)
    except (OSError, ValueError):
        return 0
