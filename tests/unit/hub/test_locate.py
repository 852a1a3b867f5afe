"""Where a model lies, however it is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from hub_harness import a_store

from fake_hub import FakeHub, FakeRepo
from tenuto.errors import ModelFileError
from tenuto.hub import default_cache_folder, locate


def test_a_path_that_exists_wins_over_an_id(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hub.repos["org/name"] = FakeRepo({"m.gguf": b"remote"})
    with a_store(tmp_path / "cache", hub) as store:
        assert locate("org/name", store).read_bytes() == b"remote"
        folder = tmp_path / "org" / "name"
        folder.mkdir(parents=True)
        (folder / "本地.gguf").write_bytes(b"local")
        assert locate("org/name", store).read_bytes() == b"local"
        assert locate("hf:org/name", store).read_bytes() == b"remote"


def test_a_folder_with_one_model_is_that_model(hub: FakeHub, tmp_path: Path) -> None:
    with a_store(tmp_path / "cache", hub) as store:
        (tmp_path / "mmproj-x.gguf").touch()
        (tmp_path / "a-00001-of-00002.gguf").touch()
        (tmp_path / "a-00002-of-00002.gguf").touch()
        assert locate(str(tmp_path), store).name == "a-00001-of-00002.gguf"
        (tmp_path / "b.gguf").touch()
        with pytest.raises(ModelFileError, match=r"holds 2 models.*a-00001.*b\.gguf"):
            locate(str(tmp_path), store)
        (tmp_path / "config.json").touch()
        assert locate(str(tmp_path), store) == tmp_path


@pytest.mark.parametrize("name", ["nothing", "a/b/c", "./x.gguf", "folder/x.gguf", "x" * 5000, "a\0b", "组织/模型"])
def test_what_is_neither_is_told(hub: FakeHub, tmp_path: Path, name: str) -> None:
    with a_store(tmp_path, hub) as store, pytest.raises(ModelFileError):
        locate(name, store)
    assert hub.requests == []


@pytest.mark.parametrize(
    ("environment", "platform", "expected"),
    [
        ({}, "linux", "/home/人/.cache/tenuto/models"),
        ({"XDG_CACHE_HOME": "/x"}, "linux", "/x/tenuto/models"),
        ({"XDG_CACHE_HOME": "relative"}, "linux", "/home/人/.cache/tenuto/models"),
        ({"XDG_CACHE_HOME": "/x"}, "darwin", "/home/人/Library/Caches/tenuto/models"),
        ({"LOCALAPPDATA": "/local"}, "win32", "/local/tenuto/models"),
        ({}, "win32", "/home/人/AppData/Local/tenuto/models"),
    ],
)
def test_the_cache_lies_where_the_platform_wants_it(environment: dict[str, str], platform: str, expected: str) -> None:
    assert default_cache_folder(environment, platform, Path("/home/人")) == Path(expected)
