"""Free memory, of the machine and of the control group."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenuto.field import available_bytes


def a_system(root: Path, meminfo: str, group: dict[str, str]) -> Path:
    (root / "proc").mkdir(parents=True)
    (root / "proc" / "meminfo").write_text(meminfo)
    for name, content in group.items():
        file = root / "sys" / "fs" / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return root


MEMINFO = "MemTotal:       16000 kB\nMemFree:    1 kB\nMemAvailable:    8000 kB\n"


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ({}, 8000 * 1024),
        ({"memory.max": "max\n", "memory.current": "5\n"}, 8000 * 1024),
        ({"memory.max": "3000\n", "memory.current": "1000\n"}, 2000),
        ({"memory.max": "3000\n", "memory.current": "4000\n"}, 0),
        ({"memory/memory.limit_in_bytes": "700\n", "memory/memory.usage_in_bytes": "200\n"}, 500),
        ({"memory/memory.limit_in_bytes": f"{2**63}\n", "memory/memory.usage_in_bytes": "200\n"}, 8000 * 1024),
    ],
)
def test_the_less_of_both_counts(tmp_path: Path, group: dict[str, str], expected: int) -> None:
    assert available_bytes(a_system(tmp_path, MEMINFO, group)) == expected


def test_elsewhere_it_is_the_whole_machine_or_unknown(tmp_path: Path) -> None:
    found = available_bytes(a_system(tmp_path, "nothing of the kind", {}))
    assert found is None or found > 1 << 20
