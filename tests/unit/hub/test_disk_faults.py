"""Disks that fill up, fail or hold something else: an error that names the place, and nothing fetched is lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hub_harness import a_store, ref

from fake_hub import COMMIT, FakeHub, FakeRepo
from tenuto.errors import CapacityError, HubError, TenutoError
from tenuto.hub import transfer

WEIGHTS = bytes(range(256)) * 2000


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (errno.ENOSPC, CapacityError, "no space is left in .*try again"),
        (errno.EDQUOT, CapacityError, "no space is left in .*try again"),
        (errno.EIO, HubError, "cannot be written .*TENUTO_CACHE"),
        (errno.EROFS, HubError, "cannot be written .*TENUTO_CACHE"),
    ],
)
def test_a_disk_that_fails_on_the_way(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[TenutoError], said: str
) -> None:
    hub.repos["org/name"] = FakeRepo({"config.json": b"{}", "model.safetensors": WEIGHTS})

    class Failing:
        """`os`, on a disk that takes no more."""

        def __getattr__(self, name: str) -> object:
            return getattr(os, name)

        def fsync(self, _: int) -> None:
            raise OSError(code, os.strerror(code))

    with a_store(tmp_path, hub) as store:
        with monkeypatch.context() as patch:
            patch.setattr(transfer, "os", Failing())
            with pytest.raises(kind, match=said):
                store.fetch(ref("org/name"))
        path = store.fetch(ref("org/name"))
    assert (path / "model.safetensors").read_bytes() == WEIGHTS


@pytest.mark.parametrize("place", [f"{COMMIT}/listing.json", COMMIT, f"{COMMIT}/name", f"{COMMIT}/parts", "refs", ""])
def test_something_else_lies_where_a_part_of_the_cache_belongs(hub: FakeHub, tmp_path: Path, place: str) -> None:
    hub.repos["org/name"] = FakeRepo({"config.json": b"{}", "model.safetensors": WEIGHTS})
    inside = tmp_path / "hf" / "org" / "name" / place
    if place.endswith(".json"):
        (inside / "full").mkdir(parents=True)
    else:
        inside.parent.mkdir(parents=True)
        inside.write_text("not a folder")
    with a_store(tmp_path, hub) as store, pytest.raises(HubError, match=r"cannot be written .*TENUTO_CACHE"):
        store.fetch(ref("org/name"))


def test_one_file_of_a_commit_is_removed_by_whatever_id_it_was_not_fetched_by(hub: FakeHub, tmp_path: Path) -> None:
    hub.repos["org/name"] = FakeRepo({"m-Q4_0.gguf": WEIGHTS, "m-Q8_0.gguf": WEIGHTS[:99]})
    with a_store(tmp_path, hub) as store:
        path = store.fetch(ref("org/name:Q4_0"))
        assert store.cache.remove(ref(f"org/name:Q4_0@{COMMIT}")) == len(WEIGHTS)
        assert not path.exists() and store.cache.find(ref("org/name:Q4_0")) is None
