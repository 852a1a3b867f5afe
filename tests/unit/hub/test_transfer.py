"""What a network does to a download, and what a download does about it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hub_harness import Recorder, a_store, ref

from fake_hub import FakeHub, FakeRepo
from tenuto.errors import HubError

WEIGHTS = bytes(range(256)) * 4000  # 1 MB


@pytest.fixture
def repo(hub: FakeHub) -> FakeRepo:
    hub.repos["org/name"] = FakeRepo({"m.gguf": WEIGHTS})
    return hub.repos["org/name"]


@pytest.mark.parametrize("prefix", ["hf", "ms"])
def test_a_cut_connection_goes_on_where_it_broke(hub: FakeHub, repo: FakeRepo, tmp_path: Path, prefix: str) -> None:
    hub.cut_after = [300_000, 100, 5]
    progress = Recorder()
    with a_store(tmp_path, hub) as store:
        assert store.fetch(ref(f"{prefix}:org/name"), progress).read_bytes() == WEIGHTS
    ranges = [r.headers.get("Range") for r in hub.file_requests()]
    assert ranges == [None, "bytes=300000-", "bytes=300100-", "bytes=300105-"]
    assert progress.done == progress.total == len(WEIGHTS)


def test_a_server_without_ranges_is_read_from_the_start(hub: FakeHub, repo: FakeRepo, tmp_path: Path) -> None:
    hub.cut_after, hub.ignore_ranges = [300_000], True
    progress = Recorder()
    with a_store(tmp_path, hub) as store:
        assert store.fetch(ref("org/name"), progress).read_bytes() == WEIGHTS
    assert progress.done == progress.total == len(WEIGHTS)


def test_a_busy_hub_is_asked_again_and_a_dead_one_is_not_asked_for_ever(
    hub: FakeHub, repo: FakeRepo, tmp_path: Path
) -> None:
    hub.fail_with = [503, 429, 500]
    with a_store(tmp_path, hub) as store:
        assert store.fetch(ref("org/name")).read_bytes() == WEIGHTS
    hub.repos["org/dead"] = FakeRepo({"m.gguf": WEIGHTS})
    hub.fail_with = [503] * 100
    with (
        a_store(tmp_path, hub) as store,
        pytest.raises(HubError, match=r"breaks off again and again \(HTTP 503"),
    ):
        store.fetch(ref("org/dead"))
    assert len(hub.fail_with) == 96


def test_what_arrived_before_giving_up_is_kept(hub: FakeHub, repo: FakeRepo, tmp_path: Path) -> None:
    hub.cut_after = [400_000] + [0] * 20
    with a_store(tmp_path, hub) as store:
        with pytest.raises(HubError, match="what arrived is kept"):
            store.fetch(ref("org/name"))
        assert store.cache.find(ref("org/name")) is None
        assert not list(tmp_path.rglob("*.gguf"))
        hub.cut_after, before = [], len(hub.file_requests())
        progress = Recorder()
        assert store.fetch(ref("org/name"), progress).read_bytes() == WEIGHTS
    assert [r.headers.get("Range") for r in hub.file_requests()[before:]] == ["bytes=400000-"]
    assert not list(tmp_path.rglob("*.part"))


def test_a_silent_hub_is_given_up(hub: FakeHub, repo: FakeRepo, tmp_path: Path) -> None:
    hub.delay_s = 1.0
    with a_store(tmp_path, hub, read_s=0.05) as store, pytest.raises(HubError, match="did not answer in time"):
        store.fetch(ref("org/name"))


def test_a_slow_hub_is_waited_for(hub: FakeHub, repo: FakeRepo, tmp_path: Path) -> None:
    hub.delay_s, hub.piece = 0.01, 1 << 15
    with a_store(tmp_path, hub, read_s=2.0) as store:
        assert store.fetch(ref("org/name")).read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    ("served", "said"),
    [
        (WEIGHTS + b"x", "has 1024001 bytes, but the hub lists 1024000"),
        (WEIGHTS[:-1], "has 1023999 bytes, but the hub lists 1024000"),
        (WEIGHTS[::-1], "other content than the hub lists"),
        (b"<html>login</html>", "has 18 bytes"),
    ],
)
def test_other_bytes_than_the_hub_lists_never_become_a_model(
    hub: FakeHub, repo: FakeRepo, tmp_path: Path, served: bytes, said: str
) -> None:
    repo.served["m.gguf"] = served
    with a_store(tmp_path, hub) as store:
        with pytest.raises(HubError, match=said):
            store.fetch(ref("org/name"))
        assert store.cache.find(ref("org/name")) is None
        assert not list(tmp_path.rglob("*.gguf"))


def test_damaged_leftovers_are_fetched_again(hub: FakeHub, repo: FakeRepo, tmp_path: Path) -> None:
    hub.cut_after = [400_000] + [0] * 20
    with a_store(tmp_path, hub) as store:
        with pytest.raises(HubError):
            store.fetch(ref("org/name"))
        (part,) = tmp_path.rglob("*.part")
        part.write_bytes(b"\0" * 400_000)
        hub.cut_after = []
        progress = Recorder()
        assert store.fetch(ref("org/name"), progress).read_bytes() == WEIGHTS
        assert progress.done == progress.total and any("damaged" in note for note in progress.notes)


_FETCH = """
import sys
from pathlib import Path
from tenuto.hub import HubSettings, open_store, parse_reference
settings = HubSettings(cache=Path(sys.argv[1]), hf_endpoint=sys.argv[2], ms_endpoint=sys.argv[2])
with open_store(settings) as store:
    print(store.fetch(parse_reference("org/name")))
"""


def _process(tmp_path: Path, hub: FakeHub) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _FETCH, str(tmp_path), hub.url]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_download_leaves_no_half_file_and_is_taken_up_again(
    hub: FakeHub, repo: FakeRepo, tmp_path: Path, how: signal.Signals
) -> None:
    hub.delay_s, hub.piece = 0.05, 1 << 15
    process = _process(tmp_path, hub)
    _wait_for(lambda: any(p.stat().st_size > 0 for p in tmp_path.rglob("*.part")))
    process.send_signal(how)
    process.communicate(timeout=20)
    assert process.returncode != 0
    assert not list(tmp_path.rglob("*.gguf"))
    hub.delay_s = 0.0
    with a_store(tmp_path, hub, lock_s=0.0) as store:  # the dead process holds no lock
        (left,) = store.cache.models()
        (part,) = tmp_path.rglob("*.part")
        num_left = part.stat().st_size
        assert not left.whole and left.num_bytes >= num_left > 0
        assert store.fetch(ref("org/name")).read_bytes() == WEIGHTS
    assert hub.file_requests()[-1].headers["Range"] == f"bytes={num_left}-"


def test_processes_that_want_the_same_model_fetch_it_once(hub: FakeHub, repo: FakeRepo, tmp_path: Path) -> None:
    hub.delay_s = 0.02
    processes = [_process(tmp_path, hub) for _ in range(3)]
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], outputs
    assert len({out for out, _ in outputs}) == 1
    assert Path(outputs[0][0].strip()).read_bytes() == WEIGHTS
    assert len(hub.file_requests()) == 1


def test_waiting_for_another_process_has_an_end(hub: FakeHub, repo: FakeRepo, tmp_path: Path) -> None:
    progress = Recorder()
    with a_store(tmp_path, hub) as holder, holder.cache.lock(ref("org/name"), Recorder()):
        holding = threading.Thread(target=_fails_to_fetch, args=(tmp_path, hub, progress))
        holding.start()
        holding.join(timeout=10)
    assert any("another process is fetching hf:org/name" in note for note in progress.notes)
    assert any("has been busy" in note for note in progress.notes)


def _fails_to_fetch(tmp_path: Path, hub: FakeHub, progress: Recorder) -> None:
    with a_store(tmp_path, hub, lock_s=0.2) as store:
        try:
            store.fetch(ref("org/name"), progress)
        except HubError as error:
            progress.note(str(error))


def _wait_for(condition) -> None:  # type: ignore[no-untyped-def]
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it never came true")


def test_a_cache_that_cannot_be_written_is_told(hub: FakeHub, repo: FakeRepo, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    with a_store(blocked / "cache", hub) as store, pytest.raises(HubError, match="TENUTO_CACHE"):
        store.fetch(ref("org/name"))
    assert os.listdir(tmp_path) == ["file"]
