"""Hints on a real server: blocks of KV are free by them, in the engine's own counts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from serving_process import CHAT, Served, served

pytestmark = pytest.mark.model

LONG = "你是助手。You help with errands and answer briefly. " * 6


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(["-m", "tenuto", "serve", "--port", "0", "--kv-tokens", "4096", "--precision", "int8"]) as started:
        yield started


@pytest.fixture
def client(server: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url.removesuffix("/v1"), timeout=120) as made:
        yield made


def blocks(client: httpx.Client, state: str) -> int:
    found = re.search(rf'^tenuto_engine_kv_blocks{{state="{state}"}} (\S+)', client.get("/metrics").text, re.M)
    assert found, state
    return int(float(found[1]))


def ask(client: httpx.Client, *messages: dict[str, str], **fields: Any) -> dict[str, Any]:
    body = {"model": "default", "messages": messages, "temperature": 0, "max_tokens": 24, **fields}
    response = client.post(CHAT, json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def conversation(client: httpx.Client, who: str, **fields: Any) -> list[dict[str, str]]:
    """Two turns, as they were last asked for, with the reply."""
    messages = [{"role": "system", "content": f"({who}) {LONG}"}, {"role": "user", "content": "北京在哪里？"}]
    for question in ("Where is Oslo?", None):
        reply = ask(client, *messages, ignore_eos=True, **fields)["choices"][0]["message"]["content"]
        messages.append({"role": "assistant", "content": reply})
        if question:
            messages.append({"role": "user", "content": question})
    return messages


def hint(session: str, *edits: dict[str, Any]) -> dict[str, Any]:
    management = {"manage_request": True, "edits": list(edits)}
    return {"session_id": session, "parent_session_id": session, "context_management": management}


def test_a_session_is_evicted_and_only_it(client: httpx.Client):
    before = blocks(client, "free")
    for session in ("会话-甲", "会话-乙"):
        conversation(client, session, agent_hint={"session_id": session, "parent_session_id": session})
    free, cached = blocks(client, "free"), blocks(client, "cached")
    assert free < before and cached > 16
    told = ask(client, agent_hint=hint("会话-甲", {"type": "evict", "target": "session"}))["context_management"]
    num_blocks = told["applied_edits"][0]["blocks_released"]
    assert num_blocks >= 8
    assert (blocks(client, "free"), blocks(client, "cached")) == (free + num_blocks, cached - num_blocks)
    told = ask(client, agent_hint=hint("会话-乙", {"type": "evict", "target": "session"}))["context_management"]
    assert told["applied_edits"][0]["blocks_released"] >= 8
    assert blocks(client, "free") == before
    again = ask(client, agent_hint=hint("会话-乙", {"type": "evict", "target": "session"}))["context_management"]
    assert again["applied_edits"][0]["blocks_released"] == 0


def test_the_end_of_a_conversation_is_released_and_its_beginning_found_again(client: httpx.Client):
    names = {"cache_salt": "盐", "cache_sharing": True}
    messages = conversation(client, "release", **names)
    free = blocks(client, "free")
    body = {"model": "default", "messages": messages[:-1], "messages_released_index": 2, **names}
    told = client.post("/release_kv_cache", json=body).json()
    assert told["cache_salt"] == "盐" and told["block_released"] > 0
    assert blocks(client, "free") == free + told["block_released"]
    usage = ask(client, *messages[:-1], max_tokens=1, **names)["usage"]
    assert 0 < usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"] - 24


def test_salts_keep_prefixes_apart(client: httpx.Client):
    messages = [{"role": "user", "content": f"{LONG}你好"}]
    cached = [
        ask(client, *messages, max_tokens=1, **fields)["usage"]["prompt_tokens_details"]["cached_tokens"]
        for fields in ({"cache_salt": "a"}, {"cache_salt": "b"}, {}, {"cache_salt": "a"})
    ]
    assert cached[:3] == [0, 0, 0] and cached[3] > 0


def test_a_held_session_is_closed_with_its_run(client: httpx.Client):
    before = blocks(client, "free")
    fields = {"session_id": "held-1", "agent_hint": {"session_id": "held-1"}}
    conversation(client, "held", **fields)
    assert blocks(client, "owned") > 0
    ask(client, agent_hint=hint("held-1", {"type": "evict", "target": "session"}))
    assert blocks(client, "owned") == 0 and blocks(client, "free") == before
