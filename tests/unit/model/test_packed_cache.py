"""Prepared weights on disk: found again as they were, and never believed when something is wrong with them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import filelock
import pytest
import torch
from structlog.testing import capture_logs

from tenuto.device.packing import PackedLinear
from tenuto.model import PackedCache, PackedCacheLimits, packed_cache
from tenuto.model.packed_file import PackedFile, PackedFileError, Prepared, write_packed

KEY, OTHER, THIRD = "a" * 64, "b" * 64, "c" * 64


def parts(seed: int = 0, num_bytes: int = 1000) -> dict[str, Prepared]:
    draw = torch.Generator().manual_seed(seed)
    packed = torch.randint(0, 256, (num_bytes,), dtype=torch.uint8, generator=draw)
    return {
        "embed.weight": torch.randn(7, 5, generator=draw),
        "norm.weight": torch.randn(5, generator=draw).bfloat16(),
        "linear:q+k": PackedLinear("int8", 5, 9, packed, torch.randn(9, generator=draw)),
        "linear:o": PackedLinear("int8", 9, 5, packed[:64].clone(), None),
    }


def same(file: PackedFile, wanted: Mapping[str, Prepared]) -> bool:
    equal = file.names == set(wanted)
    for name, part in wanted.items():
        if isinstance(part, torch.Tensor):
            equal &= torch.equal(file.table(name), part)
            continue
        found = file.linear(name)
        equal &= (found.form, found.in_features, found.out_features) == (part.form, part.in_features, part.out_features)
        equal &= torch.equal(found.packed, part.packed) and found.packed.data_ptr() % 64 == 0
        equal &= found.bias is part.bias is None or torch.equal(found.bias, part.bias)  # type: ignore[arg-type]
    return equal


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        self.now += 10
        return self.now


def cache_in(folder: Path, max_bytes: int = 10**9, free_bytes: int = 10**15) -> PackedCache:
    limits = PackedCacheLimits(max_bytes, spare_bytes=1000)
    return PackedCache(folder, limits, Clock(), free_bytes=lambda _: free_bytes)


def test_what_was_kept_is_found_as_it_was(tmp_path: Path) -> None:
    cache = cache_in(tmp_path / "new" / "packed")
    assert cache.find(KEY) is None
    cache.keep(KEY, "模型 (int8)", parts())
    for again in (cache, cache_in(cache.root)):
        found = again.find(KEY)
        assert found is not None and same(found, parts())
    assert cache.find(OTHER) is None
    assert [(kept.model, kept.num_bytes) for kept in cache.list()] == [("模型 (int8)", found.num_bytes)]
    assert (cache.root.stat().st_mode & 0o777, (cache.root / f"{KEY}.packed").stat().st_mode & 0o777) == (0o700, 0o600)


def test_an_open_file_outlives_its_replacement_and_removal(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    cache.keep(KEY, "m", parts(1))
    first = cache.find(KEY)
    cache.keep(KEY, "m", parts(2))
    second = cache.find(KEY)
    assert cache.clear() > 0
    assert first is not None and same(first, parts(1))
    assert second is not None and same(second, parts(2))
    assert cache.find(KEY) is None and cache.list() == []


def test_tensors_outlive_the_file_object(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    cache.keep(KEY, "m", parts())
    found = cache.find(KEY)
    assert found is not None
    table = found.table("embed.weight")
    del found
    assert torch.equal(table, parts()["embed.weight"])  # type: ignore[arg-type]


def test_weights_are_mapped_not_copied_and_cannot_be_written(tmp_path: Path) -> None:
    cache_in(tmp_path).keep(KEY, "m", parts())
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom tenuto.model import PackedCache, PackedCacheLimits\n"
        f"found = PackedCache(Path(sys.argv[1]), PackedCacheLimits(10**9), time.time).find('{KEY}')\n"
        "table = found.table('embed.weight')\n"
        "maps = [l.split() for l in open('/proc/self/maps') if l.rstrip().endswith('.packed')]\n"
        "address = table.data_ptr()\n"
        "inside = [m for m in maps if int(m[0].split('-')[0], 16) <= address < int(m[0].split('-')[1], 16)]\n"
        "print(inside[0][1], flush=True)\ntable[0, 0] = 1\nprint('written')\n"
    )
    if not Path("/proc/self/maps").exists():
        pytest.skip("the system does not tell what is mapped")
    ran = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, timeout=120)
    assert ran.stdout == "r--s\n" and ran.returncode < 0


@pytest.mark.parametrize("at", [0, 8, 12, 20, 60, 300, 4096, 4150, -1])
def test_a_changed_byte_is_noticed(tmp_path: Path, at: int) -> None:
    cache = cache_in(tmp_path)
    cache.keep(KEY, "m", parts())
    path = cache.root / f"{KEY}.packed"
    content = bytearray(path.read_bytes())
    content[at] ^= 0x40
    path.write_bytes(content)
    with capture_logs() as logs:
        assert cache.find(KEY) is None
    assert len(logs) == 1 and not path.exists()
    cache.keep(KEY, "m", parts())
    found = cache.find(KEY)
    assert found is not None and same(found, parts())


@pytest.mark.parametrize("size", [0, 1, 47, 48, 100, 4095, 4096, 5000, -1])
def test_a_file_that_is_cut_short_is_noticed(tmp_path: Path, size: int) -> None:
    cache = cache_in(tmp_path)
    cache.keep(KEY, "m", parts())
    path = cache.root / f"{KEY}.packed"
    os.truncate(path, size if size >= 0 else path.stat().st_size - 1)
    with capture_logs() as logs:
        assert cache.find(KEY) is None
    assert [log["reason"] for log in logs] and not path.exists()


def test_a_copied_file_is_read_through_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, checks = cache_in(tmp_path), []
    sound = PackedFile.payload_is_sound
    monkeypatch.setattr(PackedFile, "payload_is_sound", lambda file: checks.append(file.key) or sound(file))
    cache.keep(KEY, "m", parts())
    assert cache.find(KEY) is not None and checks == []
    path = cache.root / f"{KEY}.packed"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    path.chmod(0o600)
    assert cache.find(KEY) is not None and checks == [KEY]
    assert cache.find(KEY) is not None and checks == [KEY]
    (cache.root / f"{KEY}.used").write_bytes(b'{"identity": 5')
    assert cache.find(KEY) is not None and checks == [KEY, KEY]


def test_a_file_under_another_name_is_not_taken(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    cache.keep(KEY, "m", parts())
    (tmp_path / f"{KEY}.packed").rename(tmp_path / f"{OTHER}.packed")
    with capture_logs() as logs:
        assert cache.find(OTHER) is None
    assert "another name" in logs[0]["reason"]


@pytest.mark.parametrize("mode", [0o620, 0o606, 0o666])
def test_a_file_that_others_may_write_to_is_not_taken(tmp_path: Path, mode: int) -> None:
    cache = cache_in(tmp_path)
    cache.keep(KEY, "m", parts())
    (tmp_path / f"{KEY}.packed").chmod(mode)
    with capture_logs() as logs:
        assert cache.find(KEY) is None
    assert "others may write" in logs[0]["reason"]


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    cache.keep(KEY, "m", parts())
    tmp_path.chmod(0o777)
    with capture_logs() as logs:
        assert cache.find(KEY) is None
        cache.keep(OTHER, "m", parts())
    assert len(logs) == 1 and "off" in logs[0]["fix"]  # one warning, with the way out
    assert (tmp_path / f"{KEY}.packed").exists() and not (tmp_path / f"{OTHER}.packed").exists()


def test_files_of_another_user_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = cache_in(tmp_path)
    cache.keep(KEY, "m", parts())
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with capture_logs() as logs:
        assert cache.find(KEY) is None
    assert "another user" in logs[0]["reason"] and (tmp_path / f"{KEY}.packed").exists()


def test_links_pipes_and_folders_in_place_of_a_file(tmp_path: Path) -> None:
    cache = cache_in(tmp_path / "packed")
    cache.keep(KEY, "m", parts())
    path, aside = cache.root / f"{KEY}.packed", tmp_path / "aside"
    path.rename(aside)
    for place in (lambda: path.symlink_to(aside), lambda: os.mkfifo(path, 0o600)):
        place()
        with capture_logs():
            assert cache_in(cache.root).find(KEY) is None
        cache.keep(KEY, "m", parts())
        found = cache.find(KEY)
        assert found is not None and same(found, parts()) and not path.is_symlink()
        path.unlink()
    path.mkdir()
    with capture_logs() as logs:
        again = cache_in(cache.root)
        assert again.find(KEY) is None
        again.keep(KEY, "m", parts())
    assert len(logs) == 1 and not list(cache.root.glob("*.new"))
    assert aside.exists()


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *_: object) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(packed_cache, "write_packed", full)
    cache = cache_in(tmp_path)
    with capture_logs() as logs:
        cache.keep(KEY, "m", parts())
        cache.keep(KEY, "m", parts())
    assert [log["reason"] for log in logs] == ["No space left on device"]
    assert not list(tmp_path.glob("*.new")) and cache.find(KEY) is None


def test_too_little_free_space_is_not_used_up(tmp_path: Path) -> None:
    cache_in(tmp_path, free_bytes=1500).keep(KEY, "m", parts())
    assert cache_in(tmp_path).find(KEY) is None


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_or_read(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with capture_logs() as logs:
        cache_in(tmp_path).keep(KEY, "m", parts())
        cache_in(tmp_path / "below").keep(KEY, "m", parts())
    tmp_path.chmod(0o700)
    assert len(logs) == 2


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "packed").write_text("a file")
    cache = cache_in(tmp_path / "packed")
    with capture_logs() as logs:
        assert cache.find(KEY) is None
        cache.keep(KEY, "m", parts())
    assert len(logs) == 1 and (tmp_path / "packed").read_text() == "a file"


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    size = 6200  # of a file's 1,000 bytes, its header and what fills up the page
    cache = cache_in(tmp_path, max_bytes=2 * size)
    cache.keep(KEY, "first", parts())
    cache.keep(OTHER, "second", parts())
    assert 2 * cache.list()[0].num_bytes <= 2 * size < 3 * cache.list()[0].num_bytes
    assert cache.find(KEY) is not None
    cache.keep(THIRD, "third", parts())
    assert [kept.model for kept in cache.list()] == ["third", "first"]
    cache.keep("d" * 64, "large", parts(num_bytes=20_000))
    assert [kept.model for kept in cache.list()] == ["third", "first"]  # it would never fit


def test_leftovers_of_a_killed_writer_go(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    cache.keep(KEY, "m", parts())
    (tmp_path / f"{OTHER}.new").write_bytes(b"half")
    (tmp_path / f"{KEY}.new").write_bytes(b"half")
    cache.keep(KEY, "m", parts(1))
    found = cache.find(KEY)
    assert not list(tmp_path.glob("*.new")) and found is not None and same(found, parts(1))


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "notes.packed").write_text("mine")
    cache = cache_in(tmp_path, max_bytes=7000)
    for key in (KEY, OTHER):
        cache.keep(key, "m", parts())
    cache.clear()
    assert (tmp_path / "notes.packed").read_text() == "mine"


def test_while_another_process_writes_nobody_waits(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    with filelock.FileLock(tmp_path / "lock"), capture_logs() as logs:
        cache.keep(KEY, "m", parts())
    assert cache.find(KEY) is None and logs == []


def test_many_writers_and_readers_at_once(tmp_path: Path) -> None:
    faults: list[str] = []

    def work(seed: int) -> None:
        cache = cache_in(tmp_path, max_bytes=13_000)
        for turn in range(20):
            key = (KEY, OTHER, THIRD)[(seed + turn) % 3]
            wanted = parts(ord(key[0]))
            if (found := cache.find(key)) is None:
                cache.keep(key, "m", wanted)
            elif not same(found, wanted):
                faults.append(key)

    with capture_logs() as logs:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert faults == [] and logs == []


def test_tensors_that_a_file_cannot_hold_are_not_kept(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    cache.keep(KEY, "m", parts() | {"wide": torch.zeros(3, dtype=torch.float64)})
    cache.keep(KEY, "m", parts() | {"elsewhere": torch.zeros(3, device="meta")})
    assert cache.find(KEY) is None and list(tmp_path.iterdir()) == []


def test_empty_and_strided_tensors(tmp_path: Path) -> None:
    odd: dict[str, Prepared] = {"none": torch.zeros(0, 3), "turned": torch.arange(12.0).view(3, 4).t()}
    cache = cache_in(tmp_path)
    cache.keep(KEY, "m", odd)
    found = cache.find(KEY)
    assert found is not None and same(found, odd)


def test_asking_for_what_is_not_in_a_file(tmp_path: Path) -> None:
    write_packed(tmp_path / "file", KEY, "m", parts())
    (tmp_path / "file").chmod(0o600)
    file = PackedFile(tmp_path / "file")
    for ask in (lambda: file.table("linear:o"), lambda: file.linear("embed.weight"), lambda: file.table("absent")):
        with pytest.raises(PackedFileError, match="is not in it"):
            ask()
