"""A tool loop over `/v1/sessions` on the real model; the server is killed, and another one goes on where it stopped."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.model

START_DEADLINE_S = 120.0
STOP_DEADLINE_S = 60.0
SYSTEM = (
    "<|im_start|>system\nYou are a helpful assistant with tools. " + "工具的结果以“工具：”开头。 " * 8 + "<|im_end|>\n"
)
QUESTIONS = ("北京明天天气怎么样？", "And in Paris?", "Which of the two is warmer?")
RESULTS = ("晴，最高 21 度", "rain, 12 degrees", "21 > 12")


@contextmanager
def serving() -> Iterator[httpx.Client]:
    command = [sys.executable, "-m", "tenuto", "serve", "--port", "0", "--kv-tokens", "2048"]
    command += ["--precision", "int8", "--kv-type", "int8"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8")
    watchdog = threading.Timer(START_DEADLINE_S, process.kill)
    watchdog.start()
    try:
        assert process.stderr is not None
        url = next((m.group(0) for m in (re.search(r"http://\S+", line) for line in process.stderr) if m), None)
        watchdog.cancel()
        assert url, "the server ended before it listened"
        threading.Thread(target=process.stderr.read, daemon=True).start()
        with httpx.Client(base_url=url, timeout=120) as client:
            yield client
    finally:
        watchdog.cancel()
        process.kill()
        process.wait(STOP_DEADLINE_S)


def post(client: httpx.Client, path: str, **body: Any) -> Any:
    answer = client.post(f"/sessions{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def turn(client: httpx.Client, session: str, text: str, **fields: Any) -> Any:
    return post(client, f"/{session}/generate", text=text, control=True, temperature=0, max_tokens=12, **fields)


def streamed(client: httpx.Client, session: str, text: str) -> tuple[list[int], str, Any]:
    """The same as `turn`, in pieces: ids, text and usage."""
    body = {"text": text, "control": True, "temperature": 0, "max_tokens": 12, "stream": True}
    ids, texts, usage = [], [], None
    with client.stream("POST", f"/sessions/{session}/generate", json=body) as answer:
        assert answer.status_code == 200
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    for line in lines:
        event = json.loads(line)
        ids += event["token_ids"]
        texts.append(event["text"])
        usage = event.get("usage")
    return ids, "".join(texts), usage


def ask(question: str) -> str:
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def chat_in_sessions(client: httpx.Client) -> None:
    """Chat goes on in its own session, in a fork that was changed, and in none, and says the same."""
    body: dict[str, Any] = {"model": "default", "temperature": 0, "max_tokens": 8, "session_id": "c"}
    messages = [{"role": "user", "content": "What is the capital of France? 用一句话回答。"}]
    first = client.post("/chat/completions", json={**body, "messages": messages}).json()
    messages += [first["choices"][0]["message"], {"role": "user", "content": "And of Italy?"}]
    fork = post(client, "/c/fork", id="other")
    assert fork["num_tokens"] == first["usage"]["total_tokens"]
    replies = []
    for session, change in (("c", None), ("other", 20), (None, None)):
        if change is not None:
            post(client, f"/{session}/truncate", num_tokens=change)
        asked = {**body, "messages": messages, "session_id": session}
        replies.append(client.post("/chat/completions", json=asked).json())
    texts = [reply["choices"][0]["message"]["content"] for reply in replies]
    assert texts[0] == texts[1] == texts[2] and texts[0]
    assert replies[0]["usage"]["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["total_tokens"] - 1
    tokens = [client.get(f"/sessions/{name}/tokens").json()["token_ids"] for name in ("c", "other")]
    assert tokens[0] == tokens[1]
    assert [one["id"] for one in client.get("/sessions").json()["data"]] == ["other", "c", "again"]


def test_a_tool_loop_goes_on_after_the_server_was_killed() -> None:
    with serving() as client:
        post(client, "", id="trip", run="trip")
        num_held = 0
        for place, (question, found) in enumerate(zip(QUESTIONS, RESULTS, strict=True)):
            answer = turn(client, "trip", (SYSTEM if place == 0 else "<|im_end|>\n") + ask(question))
            details = answer["usage"]["prompt_tokens_details"]
            if place:  # what was appended since is there already; of the rest, the ids of this call and nothing else
                assert details["computed_tokens"] == len(answer["input_ids"])
                assert details["held_tokens"] == num_held
            assert answer["text"] and "\ufffd" not in answer["text"]
            before = answer["usage"]["total_tokens"]
            post(client, "/trip/suspend", seconds=1.5, reason="get_weather")
            added = post(client, "/trip/append", text=f"\n工具：{found}")
            told = client.get("/sessions/trip").json()
            assert told["num_tokens"] == told["num_computed_tokens"] == before + len(added["input_ids"])
            assert told["seconds"]["suspended"] > 0 and told["blocks"]["owned"] > 0
            num_held = told["num_tokens"]
        told = client.get("/sessions/trip").json()
        assert told["cost"]["computed_tokens"] == told["num_tokens"], "every token was computed once"
        data = client.get("/sessions/trip/export").content
        assert len(data) > told["num_tokens"] * 10_000
        goes_on = streamed(client, "trip", "<|im_end|>\n" + ask("总结一下。"))
        everything = client.get("/sessions/trip/tokens").json()["token_ids"]
    with serving() as client:
        assert client.get("/sessions/trip").status_code == 404
        broken = data[: len(data) // 2] + b"?" + data[len(data) // 2 + 1 :]
        headers = {"Content-Type": "application/octet-stream"}
        refused = client.put("/sessions/again/import", content=broken, headers=headers)
        assert refused.status_code == 400 and "damaged" in refused.json()["error"]["message"]
        taken = client.put("/sessions/again/import", content=data, headers=headers)
        assert taken.status_code == 200, taken.text
        assert taken.json()["num_computed_tokens"] == told["num_tokens"]
        assert streamed(client, "again", "<|im_end|>\n" + ask("总结一下。"))[:2] == goes_on[:2]
        assert client.get("/sessions/again/tokens").json()["token_ids"] == everything
        cost = client.get("/sessions/again").json()["cost"]["computed_tokens"]
        assert cost <= goes_on[2]["prompt_tokens_details"]["computed_tokens"] + 12
        chat_in_sessions(client)
