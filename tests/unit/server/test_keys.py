"""API keys: how they are made, kept, found and revoked; what a key file may be."""

from __future__ import annotations

import hashlib
import json
import os
import random
import stat
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tenuto.errors import ConfigError
from tenuto.server.keys import MAX_KEYS, ApiKeys, KeyFile, KeyRecord, make_key


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.time_s = 100.0

    def now(self) -> float:
        return self.time_s


def entropy(seed: int):
    return random.Random(seed).randbytes


def filled(path: Path, *tenants: str) -> tuple[KeyFile, list[str]]:
    file, made = KeyFile(path), []
    for seed, tenant in enumerate(tenants):
        key, record = make_key(tenant, "2026-11-30", entropy(seed))
        file.add(record)
        made.append(key)
    return file, made


def test_a_key_has_enough_chance_and_is_kept_as_a_hash(tmp_path: Path):
    file, (key, other) = filled(tmp_path / "keys.json", "alice", "bob")
    prefix, name, secret = key.split("-")
    assert (prefix, len(name), len(secret)) == ("tenuto", 8, 32)  # 32 characters of base 32: 160 bits
    assert key != other
    text = file.path.read_text()
    assert secret not in text and key not in text
    assert hashlib.sha256(key.encode()).hexdigest() in text
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert [record.tenant for record in file.read()] == ["alice", "bob"]
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == ["keys.json"]


def test_a_key_is_its_tenants_and_anything_else_is_nobodys(tmp_path: Path):
    file, (alice, bob) = filled(tmp_path / "keys.json", "alice", "bob")
    keys = ApiKeys(file=file, clock=Clock())
    assert (keys.tenant_of(alice), keys.tenant_of(bob)) == ("alice", "bob")
    name, secret = alice.split("-")[1:]
    wrong = [
        "",
        "tenuto",
        "tenuto--",
        alice[:-1],
        alice + "a",
        alice.upper(),
        f"tenuto-{name}-{'a' * 32}",
        f"tenuto-{bob.split('-')[1]}-{secret}",
        f"x-{name}-{secret}",
        secret,
        file.read()[0].sha256,
        "钥匙",
        "a" * 100_000,
    ]
    assert [keys.tenant_of(key) for key in wrong] == [None] * len(wrong)


def test_the_one_of_the_environment_stands_beside_them(tmp_path: Path):
    file, (alice,) = filled(tmp_path / "keys.json", "alice")
    keys = ApiKeys(file=file, single="一个足够长的密钥 for everybody", clock=Clock())
    assert keys.tenant_of("一个足够长的密钥 for everybody") == "default"
    assert keys.tenant_of(alice) == "alice"
    assert keys.tenant_of("no key at all") is None  # what unknown keys are compared with
    assert ApiKeys(single="s" * 16, clock=Clock()).tenant_of(alice) is None
    with pytest.raises(ConfigError, match="16"):
        ApiKeys(single="short", clock=Clock())


def test_nothing_about_keys_shows_a_key(tmp_path: Path):
    file, (alice,) = filled(tmp_path / "keys.json", "alice")
    keys = ApiKeys(file=file, single="canary-canary-canary", clock=Clock())
    shown = repr(keys) + str(keys) + repr(file)
    assert "canary" not in shown and alice not in shown
    assert file.read()[0].sha256 not in shown


def test_a_running_server_learns_of_new_and_revoked_keys(tmp_path: Path):
    file, (alice,) = filled(tmp_path / "keys.json", "alice")
    clock = Clock()
    keys = ApiKeys(file=file, clock=clock)
    bob, record = make_key("bob", "2026-11-30", entropy(7))
    file.add(record)
    clock.time_s += 1.1
    assert (keys.tenant_of(alice), keys.tenant_of(bob)) == ("alice", "bob")
    assert file.revoke(alice.split("-")[1]).tenant == "alice"
    clock.time_s += 1.1
    assert (keys.tenant_of(alice), keys.tenant_of(bob)) == (None, "bob")
    with pytest.raises(ConfigError, match="no key of the id"):
        file.revoke(alice.split("-")[1])


@pytest.mark.parametrize("broken", [b"", b"{", b"[1]", None], ids=["empty", "cut", "list", "gone"])
def test_a_file_that_becomes_unusable_changes_nothing_and_is_told_once(tmp_path: Path, broken: bytes | None):
    file, (alice,) = filled(tmp_path / "keys.json", "alice")
    clock = Clock()
    keys = ApiKeys(file=file, clock=clock)
    if broken is None:
        file.path.unlink()
    else:
        file.path.write_bytes(broken)
    with capture_logs() as logs:
        for _ in range(3):
            clock.time_s += 2
            assert keys.tenant_of(alice) == "alice"
    assert [entry["event"] for entry in logs] == ["key_file_unusable"]


RECORD = {"id": "a", "tenant": "t", "sha256": "0" * 64, "created": "2026-11-30"}
REFUSED = {
    "no json": b"tenuto-aaaaaaaa-bbbb",
    "not utf-8": b"\xff\xfe",
    "another shape": b'{"keys": [{"key": "secret"}]}',
    "unknown field": json.dumps({"keys": [{**RECORD, "key": "secret"}]}).encode(),
    "no hash": json.dumps({"keys": [{**RECORD, "sha256": "plain text"}]}).encode(),
    "no tenant": json.dumps({"keys": [{**RECORD, "tenant": ""}]}).encode(),
    "tenant with a line break": json.dumps({"keys": [{**RECORD, "tenant": "a\nb"}]}).encode(),
    "an id twice": json.dumps({"keys": [RECORD, RECORD]}).encode(),
    "too many": json.dumps({"keys": [{**RECORD, "id": str(n)} for n in range(MAX_KEYS + 1)]}).encode(),
    "too large": b" " * 5_000_000,
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("content", REFUSED.values(), ids=REFUSED.keys())
def test_other_files_are_refused_by_name(tmp_path: Path, content: bytes):
    path = tmp_path / "钥匙.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"钥匙\.json") as caught:
        KeyFile(path).read()
    assert "secret" not in str(caught.value)


def test_a_file_that_anybody_may_write_is_refused(tmp_path: Path):
    file, _ = filled(tmp_path / "keys.json", "alice")
    file.path.chmod(0o666)
    with pytest.raises(ConfigError, match="chmod 600"):
        file.read()
    file.path.chmod(0o640)
    assert len(file.read()) == 1


def test_a_missing_file_says_how_to_make_one(tmp_path: Path):
    with pytest.raises(ConfigError, match="tenuto keys new"):
        KeyFile(tmp_path / "none.json").read()


@pytest.mark.parametrize("tenant", ["", "a b", "名字", "-a", "a" * 65, "a\n", "../x"])
def test_tenants_have_plain_names(tenant: str):
    with pytest.raises(ConfigError, match="tenant"):
        make_key(tenant, "2026-11-30", os.urandom)


def test_writers_at_once_lose_nothing(tmp_path: Path):
    file = KeyFile(tmp_path / "deep" / "keys.json")
    records = [
        KeyRecord(id=f"k{n}", tenant="t", sha256=hashlib.sha256(bytes([n])).hexdigest(), created="2026-11-30")
        for n in range(12)
    ]
    threads = [threading.Thread(target=KeyFile(file.path).add, args=(record,)) for record in records]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(record.id for record in file.read()) == sorted(record.id for record in records)
