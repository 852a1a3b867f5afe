"""Getting models: real HTTP against a hub on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hub_harness import Recorder, a_store, ref

from fake_hub import COMMIT, FakeHub, FakeRepo
from tenuto.errors import CapacityError, HubError, UnsupportedModel

WEIGHTS = bytes(range(256)) * 2000  # 512 kB


def sharded() -> dict[str, bytes]:
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = {"weight_map": {"a": names[0], "b": names[1], "c": names[0]}}
    return {
        "config.json": b"{}",
        "tokenizer.json": '{"词": 1}'.encode(),
        "model.safetensors.index.json": json.dumps(index).encode(),
        names[0]: WEIGHTS,
        names[1]: WEIGHTS[::-1],
        "consolidated.safetensors": b"the same again" * 1000,
        "pytorch_model.bin": b"never",
        "modeling_custom.py": b"import os",
        "README.md": b"# x",
    }


@pytest.mark.parametrize("prefix", ["hf", "ms"])
def test_only_what_is_needed_is_fetched_once_and_used_without_the_hub_afterwards(
    hub: FakeHub, tmp_path: Path, prefix: str
) -> None:
    hub.repos["org/name"] = FakeRepo(sharded())
    progress = Recorder()
    with a_store(tmp_path, hub) as store:
        path = store.fetch(ref(f"{prefix}:org/name"), progress)
    fetched = {p.name: p.read_bytes() for p in path.iterdir()}
    unwanted = ("consolidated.safetensors", "pytorch_model.bin", "modeling_custom.py", "README.md")
    assert fetched == {name: content for name, content in sharded().items() if name not in unwanted}
    assert path.name == "name"
    assert progress.done == progress.total > len(WEIGHTS)
    num_requests = len(hub.requests)
    with a_store(tmp_path, hub) as store, a_store(tmp_path, hub, offline=True) as offline:
        assert store.fetch(ref(f"{prefix}:org/name")) == path == offline.fetch(ref(f"{prefix}:org/name"))
    assert len(hub.requests) == num_requests


def test_each_revision_can_be_removed(hub: FakeHub, tmp_path: Path) -> None:
    with a_store(tmp_path, hub) as store:
        for commit, content in (("a" * 40, b"old"), ("b" * 40, b"newer")):
            hub.repos["org/name"] = FakeRepo({"m.gguf": content}, commit=commit)
            store.fetch(ref("org/name"), refresh=True)
        listed = {m.id: (m.num_bytes > 2, m.whole) for m in store.cache.models()}
        assert listed == {"hf:org/name": (True, True), f"hf:org/name@{'a' * 40}": (True, True)}
        num_requests = len(hub.requests)
        assert store.fetch(ref(f"org/name@{'a' * 40}")).read_bytes() == b"old"  # a commit never changes
        assert len(hub.requests) == num_requests
        store.cache.remove(ref(f"org/name@{'a' * 40}"))
        assert [m.id for m in store.cache.models()] == ["hf:org/name"]
        assert store.fetch(ref("org/name")).read_bytes() == b"newer"
        with pytest.raises(HubError, match="not in the cache"):
            store.cache.remove(ref("org/name@main"))


@pytest.mark.parametrize("wrong", [{"m.gguf": -1}, {"m.gguf": None}, {"m.gguf": "12"}])
def test_a_list_without_sizes_is_refused(hub: FakeHub, tmp_path: Path, wrong: dict[str, int]) -> None:
    hub.repos["org/name"] = FakeRepo({"m.gguf": b"x"}, listed_sizes=wrong)
    with a_store(tmp_path, hub) as store:
        for name in ("org/name", "ms:org/name"):
            with pytest.raises(HubError):
                store.fetch(ref(name))


def test_a_refresh_fetches_what_the_hub_has_moved_on_to(hub: FakeHub, tmp_path: Path) -> None:
    hub.repos["org/name"] = FakeRepo({"config.json": b"{}", "model.safetensors": WEIGHTS})
    with a_store(tmp_path, hub) as store:
        old = store.fetch(ref("org/name"))
        hub.repos["org/name"] = FakeRepo({"config.json": b"{}", "model.safetensors": WEIGHTS[1:]}, commit="f" * 40)
        assert store.fetch(ref("org/name")) == old
        new = store.fetch(ref("org/name"), refresh=True)
        assert (new / "model.safetensors").read_bytes() == WEIGHTS[1:]
        assert store.fetch(ref("org/name")) == new
        assert store.fetch(ref(f"org/name@{COMMIT}".replace(COMMIT, "f" * 40))) == new


def test_one_gguf_of_several_is_chosen_by_file_or_tag(hub: FakeHub, tmp_path: Path) -> None:
    files = {
        "m-Q4_K_M.gguf": b"a",
        "m-Q4_K_S.gguf": b"b",
        "q8/m-Q8_0.gguf": b"c",
        "mmproj-m.gguf": b"d",
        "config.json": b"{}",
    }
    hub.repos["org/name"] = FakeRepo(files)
    with a_store(tmp_path, hub) as store:
        assert store.fetch(ref("org/name:q4_k_m")).read_bytes() == b"a"
        path = store.fetch(ref("hf:org/name/q8/m-Q8_0.gguf"))
        assert path.read_bytes() == b"c" and path.parts[-2:] == ("q8", "m-Q8_0.gguf")
        for wrong, said in (
            ("org/name", "choose one"),
            ("org/name:Q4", "no such file"),
            ("org/name/x.gguf", "no such"),
        ):
            with pytest.raises(HubError, match=said) as caught:
                store.fetch(ref(wrong))
            assert "m-Q4_K_S.gguf" in str(caught.value) and "mmproj" not in str(caught.value)
        assert {m.id for m in store.cache.models()} == {"hf:org/name:q4_k_m", "hf:org/name/q8/m-Q8_0.gguf"}


def test_a_gguf_model_in_parts_is_fetched_whole(hub: FakeHub, tmp_path: Path) -> None:
    files = {f"q8/m-q8-0000{i}-of-00002.gguf": bytes([i]) for i in (2, 1)}
    hub.repos["org/name"] = FakeRepo({**files, "m-q4.gguf": b"4"})
    with a_store(tmp_path, hub) as store:
        for name in ("org/name:q8", "org/name/q8/m-q8-00002-of-00002.gguf"):
            path = store.fetch(ref(name))
            assert path.name == "m-q8-00001-of-00002.gguf"
            assert {p.name for p in path.parent.iterdir()} == {n.split("/")[1] for n in files}
        assert store.cache.remove(ref("org/name:q8")) == 2
        assert store.cache.find(ref("org/name/q8/m-q8-00001-of-00002.gguf")) is None


@pytest.mark.parametrize(
    ("files", "error", "said"),
    [
        ({"config.json": b"{}", "pytorch_model.bin": b"x"}, UnsupportedModel, "pickled"),
        ({"README.md": b"x"}, HubError, "holds no model"),
        ({"config.json": b"{}", "model.safetensors.index.json": b"[]"}, HubError, "not an index"),
        ({"config.json": b"{}", "model.safetensors.index.json": b'{"weight_map": {}}'}, HubError, "0 shards"),
        ({"config.json": b"{}", "model.safetensors.index.json": b'{"weight_map": {"a": "x.bin"}}'}, HubError, "x.bin"),
        (
            {"config.json": b"{}", "model.safetensors.index.json": b'{"weight_map": {"a": "s.safetensors"}}'},
            HubError,
            "s.safetensors.*is not in the repository",
        ),
    ],
)
def test_a_repository_without_a_usable_model_is_told(
    hub: FakeHub, tmp_path: Path, files: dict[str, bytes], error: type[Exception], said: str
) -> None:
    hub.repos["org/name"] = FakeRepo(files)
    with a_store(tmp_path, hub) as store, pytest.raises(error, match=said):
        store.fetch(ref("org/name"))


@pytest.mark.parametrize("name", ["../../x.gguf", "/etc/x.gguf", "a/../../x.gguf", "C:x.gguf", "a\\x.gguf", "a\0.gguf"])
@pytest.mark.parametrize("prefix", ["hf", "ms"])
def test_names_that_lead_outside_the_cache_are_refused(hub: FakeHub, tmp_path: Path, prefix: str, name: str) -> None:
    hub.repos["org/name"] = FakeRepo({name: b"evil"})
    with a_store(tmp_path / "in" / "cache", hub) as store, pytest.raises(HubError, match="outside the model's folder"):
        store.fetch(ref(f"{prefix}:org/name"))
    assert not list(tmp_path.rglob("*.gguf"))
    assert not hub.file_requests()


def test_shards_that_lead_outside_are_refused(hub: FakeHub, tmp_path: Path) -> None:
    index = {"weight_map": {"a": "../../other/m.safetensors"}}
    files = {"config.json": b"{}", "model.safetensors.index.json": json.dumps(index).encode()}
    hub.repos["org/name"] = FakeRepo({**files, "../../other/m.safetensors": b"x"})
    with a_store(tmp_path, hub) as store, pytest.raises(HubError, match="outside the model's folder"):
        store.fetch(ref("org/name"))


def test_unknown_repositories_and_revisions_are_told_with_the_fix(hub: FakeHub, tmp_path: Path) -> None:
    hub.repos["org/name"] = FakeRepo({"m.gguf": b"x"})
    with a_store(tmp_path, hub) as store:
        for wrong, said in (
            ("org/nome", "hf:org/nome: no such repository.*HF_TOKEN"),
            ("ms:org/nome", "ms:org/nome: no such repository"),
            ("org/name@v9", "no revision 'v9'"),
            ("ms:org/name@v9", "no revision 'v9'"),
        ):
            with pytest.raises(HubError, match=said):
                store.fetch(ref(wrong))
        assert store.cache.models() == []


def test_a_restricted_model_needs_the_token_which_is_never_told(hub: FakeHub, tmp_path: Path) -> None:
    hub.repos["org/gated"] = FakeRepo({"m.gguf": WEIGHTS}, gated=True)
    hub.repos["org/private"] = FakeRepo({"m.gguf": WEIGHTS}, private=True)
    with a_store(tmp_path, hub) as store:
        with pytest.raises(HubError, match=r"access is restricted.*HF_TOKEN"):
            store.fetch(ref("org/gated"))
        with pytest.raises(HubError, match="if it is private, set HF_TOKEN"):
            store.fetch(ref("org/private"))
    with a_store(tmp_path, hub, token="hf_canary") as store:
        for name in ("org/gated", "org/private"):
            with pytest.raises(HubError) as caught:
                store.fetch(ref(name))
            assert "canary" not in str(caught.value) + repr(caught.value.__cause__)
    with a_store(tmp_path, hub, token="hf_secret") as store:
        assert store.fetch(ref("org/gated")).read_bytes() == store.fetch(ref("org/private")).read_bytes() == WEIGHTS
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and b"hf_secret" in p.read_bytes()]


def test_another_host_gets_the_redirected_request_without_the_token(hub: FakeHub, tmp_path: Path) -> None:
    with FakeHub().running() as cdn:
        repo = FakeRepo({"m.gguf": WEIGHTS}, gated=True)
        hub.repos["org/name"] = cdn.repos["org/name"] = repo
        hub.redirect_to, hub.moved = cdn.url.replace("127.0.0.1", "localhost"), {"org/old": "org/name"}
        with a_store(tmp_path, hub, token="hf_secret") as store:
            assert store.fetch(ref("org/old")).read_bytes() == WEIGHTS
            assert "Authorization" in hub.file_requests()[0].headers
            assert all("Authorization" not in r.headers for r in cdn.requests) and cdn.requests
            cdn.fail_with = [404]
            with pytest.raises(HubError) as caught:
                store.fetch(ref("org/name"), refresh=True)
            assert "canary-signature" not in str(caught.value)


def test_no_network_is_told_at_once(tmp_path: Path) -> None:
    gone = FakeHub()
    with gone.running():
        pass
    with a_store(tmp_path, gone) as store:
        for name in ("org/name", "ms:org/name"):
            with pytest.raises(HubError, match=r"cannot be reached.*check the network"):
                store.fetch(ref(name))


def test_offline_names_what_is_missing_and_the_fix(hub: FakeHub, tmp_path: Path) -> None:
    hub.repos["org/name"] = FakeRepo(sharded())
    with a_store(tmp_path, hub, offline=True) as store:
        with pytest.raises(HubError, match=r"hf:org/name is not in the cache.*tenuto models download hf:org/name"):
            store.fetch(ref("org/name"))
        assert hub.requests == []
    with a_store(tmp_path, hub) as store:
        path = store.fetch(ref("org/name"))
    shard = path / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    with a_store(tmp_path, hub, offline=True) as store, pytest.raises(HubError, match="model-00002-of-00002"):
        store.fetch(ref("org/name"))
    (path / "model.safetensors.index.json").unlink()
    with a_store(tmp_path, hub, offline=True) as store, pytest.raises(HubError, match=r"index.json is missing"):
        store.fetch(ref("org/name"))
    with a_store(tmp_path, hub) as store:  # online, what is missing is fetched again, and only that
        before = len(hub.file_requests())
        assert store.fetch(ref("org/name")) == path
        assert len(hub.file_requests()) - before == 2
        assert shard.read_bytes() == WEIGHTS[::-1]


def test_a_full_disk_is_seen_before_anything_is_fetched(hub: FakeHub, tmp_path: Path) -> None:
    hub.repos["org/name"] = FakeRepo({"m.gguf": WEIGHTS})
    with a_store(tmp_path, hub, free_bytes=lambda _: 100_100_000) as store:
        with pytest.raises(CapacityError, match="TENUTO_CACHE"):
            store.fetch(ref("org/name"))
        assert hub.file_requests() == []


def test_what_is_no_hub_is_told(hub: FakeHub, tmp_path: Path) -> None:
    hub.repos["org/name"] = FakeRepo({"m.gguf": b"x"}, commit="../../x")
    with a_store(tmp_path, hub) as store, pytest.raises(HubError, match="does not name the commit"):
        store.fetch(ref("org/name"))


def test_models_are_listed_and_removed(hub: FakeHub, tmp_path: Path) -> None:
    hub.repos["org/a"] = FakeRepo({"m-Q4_0.gguf": WEIGHTS, "m-Q8_0.gguf": WEIGHTS[:99]})
    hub.repos["组/名"] = hub.repos["org/b"] = FakeRepo({"config.json": b"{}", "model.safetensors": WEIGHTS})
    with a_store(tmp_path, hub) as store:
        for name in ("org/a:Q4_0", "org/a:Q8_0", "ms:org/b"):
            store.fetch(ref(name))
        listed = {m.id: m.num_bytes for m in store.cache.models()}
        assert listed == {"hf:org/a:Q4_0": len(WEIGHTS), "hf:org/a:Q8_0": 99, "ms:org/b": len(WEIGHTS) + 2}
        assert store.cache.remove(ref("org/a:Q8_0")) == 99
        assert store.cache.find(ref("org/a:Q4_0")) is not None
        with pytest.raises(HubError, match="not in the cache"):
            store.cache.remove(ref("org/a:Q8_0"))
        assert store.cache.remove(ref("ms:org/b")) > len(WEIGHTS)
        assert [m.id for m in store.cache.models()] == ["hf:org/a:Q4_0"]
        with pytest.raises(HubError, match="not in the cache"):
            store.cache.remove(ref("ms:org/b"))


def test_the_fake_hub_speaks_as_the_real_client_expects(hub: FakeHub, tmp_path: Path) -> None:
    """huggingface_hub's own client understands it, so ours is tested against the true form of the answers."""
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    hub.repos["org/name"] = FakeRepo({"m.gguf": WEIGHTS, "config.json": b"{}"})
    api = HfApi(endpoint=hub.url, token=False)
    info = api.model_info("org/name", files_metadata=True, revision="main")
    assert info.sha == COMMIT and info.siblings is not None
    assert {(s.rfilename, s.size, s.lfs is not None) for s in info.siblings} == {
        ("m.gguf", len(WEIGHTS), True),
        ("config.json", 2, False),
    }
    with pytest.raises(RepositoryNotFoundError):
        api.model_info("org/none")
    with pytest.raises(RevisionNotFoundError):
        api.model_info("org/name", revision="v9")
    assert callable(hf_hub_download)
