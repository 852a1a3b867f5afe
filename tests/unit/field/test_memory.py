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


STAT = "anon 100\nactive_file 300\ninactive_file 200\n"
OLD_STAT = "cache 9\ntotal_active_file 30\ntotal_inactive_file 20\n"


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ({"memory.max": "3000\n", "memory.current": "1000\n", "memory.stat": STAT}, 2500),
        ({"memory.max": "3000\n", "memory.current": "3000\n", "memory.stat": STAT}, 500),
        ({"memory.max": "3000\n", "memory.current": "1000\n", "memory.stat": "nonsense"}, 2000),
        (
            {
                "memory/memory.limit_in_bytes": "700\n",
                "memory/memory.usage_in_bytes": "200\n",
                "memory/memory.stat": OLD_STAT,
            },
            550,
        ),
    ],
)
def test_files_kept_in_memory_are_free(tmp_path: Path, group: dict[str, str], expected: int) -> None:
    """A container that has just fetched or read a large model is not full of it."""
    assert available_bytes(a_system(tmp_path, MEMINFO, group)) == expected


@pytest.mark.parametrize(
    ("lines", "group", "expected"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "900", "a/b/memory.current": "100"}, 800),
        ("0::/a/b\n", {"a/memory.max": "900", "a/memory.current": "200", "a/b/memory.max": "max"}, 700),
        ("0::/a\n", {"other/memory.max": "9", "other/memory.current": "0"}, 8000 * 1024),
        ("0::/\n", {}, 8000 * 1024),
        (
            "4:memory:/a/b\n3:cpuset:/\n0::/\n",
            {"memory/a/memory.limit_in_bytes": "900", "memory/a/memory.usage_in_bytes": "1"},
            899,
        ),
        ("4:cpu:/a\n", {"memory/a/memory.limit_in_bytes": "9", "memory/a/memory.usage_in_bytes": "1"}, 8000 * 1024),
        ("0::/../../a\n", {"memory.max": "900", "memory.current": "100"}, 800),
        ("nonsense\n::\n\n", {}, 8000 * 1024),
    ],
)
def test_the_process_s_own_group_and_those_above_it_count(
    tmp_path: Path, lines: str, group: dict[str, str], expected: int
) -> None:
    root = a_system(tmp_path, MEMINFO, group)
    (root / "proc" / "self").mkdir()
    (root / "proc" / "self" / "cgroup").write_text(lines)
    assert available_bytes(root) == expected


def test_elsewhere_it_is_the_whole_machine_or_unknown(tmp_path: Path) -> None:
    found = available_bytes(a_system(tmp_path, "nothing of the kind", {}))
    assert found is None or found > 1 << 20
