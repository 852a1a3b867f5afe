"""POST /v1/completions over the real tokenizer and a scripted engine: plain and streamed say the same."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from server_harness import call, events

from chat_harness import TOKENIZER, said
from tenuto.chat import LocalCompletionClient
from tenuto.clock import RealClock
from tenuto.errors import EngineClosed
from tenuto.ids import IdSource
from tenuto.server import OtherClients, create_app
from tenuto.testing.scripted_engine import ScriptedEngine
from tenuto.testing.scripted_model import ScriptedModel

PATH = "/v1/completions"


def complete(
    script: Any, prompt: Any = "巴黎", *, engine: dict[str, Any] | None = None, **fields: Any
) -> httpx.Response:
    made = ScriptedEngine(script, **(engine or {}))
    client = LocalCompletionClient(made, TOKENIZER, ids=IdSource(3), clock=RealClock())
    app = create_app(
        ScriptedModel([]),
        served_names=("smol",),
        clock=RealClock(),
        ids=IdSource(1),
        others=OtherClients(completion=client),
    )
    response = call(app, "POST", PATH, json={"model": "default", "prompt": prompt, **fields})
    assert made.sessions == {}
    if response.status_code == 200:
        response.extensions["params"] = made.params
    return response


def joined(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The choices that a client puts together."""
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for piece in chunk["choices"]:
            choice = choices.setdefault(piece["index"], {"index": piece["index"], "text": "", "logprobs": None})
            assert "finish_reason" not in choice or choice["finish_reason"] is None
            choice["text"] += piece["text"]
            choice["finish_reason"] = piece["finish_reason"]
            if piece["logprobs"] is not None:
                so_far = choice["logprobs"] or {name: [] for name in piece["logprobs"]}
                choice["logprobs"] = {name: so_far[name] + piece["logprobs"][name] for name in so_far}
    return [choices[index] for index in sorted(choices)]


REPLY = said(" 是法国的首都。São 😀!")


@pytest.mark.parametrize(
    ("prompt", "fields"),
    [
        ("巴黎", {}),
        (["一", "二二", "三"], {"n": 2}),
        (TOKENIZER.encode("巴黎"), {"logprobs": 2}),
        ([TOKENIZER.encode("一"), TOKENIZER.encode("二")], {"logprobs": 0, "stop": "首都"}),
        ("巴黎", {"echo": True, "max_tokens": 3}),
        ("巴黎", {"stop": ["。S", "不会"], "logprobs": 1}),
        ("巴黎", {"max_tokens": 1}),
    ],
)
def test_streamed_equals_plain(prompt: Any, fields: dict[str, Any]):
    """B35"""
    asked = {"max_tokens": 50, **fields}
    plain = complete([REPLY] * 6, prompt, **asked).json()
    *chunks, done = events(complete([REPLY] * 6, prompt, **asked, stream=True, stream_options={"include_usage": True}))
    assert done == "[DONE]"
    assert joined(chunks) == plain["choices"]
    assert chunks[-1]["usage"] == plain["usage"] and chunks[-1]["choices"] == []
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert {(c["object"], c["model"]) for c in [plain, *chunks]} == {("text_completion", "smol")}
    assert len({c["id"] for c in chunks}) == 1


def test_a_plain_completion():
    body = complete([REPLY], "巴黎", max_tokens=50).json()
    (choice,) = body["choices"]
    assert choice == {"index": 0, "text": " 是法国的首都。São 😀!", "logprobs": None, "finish_reason": "stop"}
    usage = body["usage"]
    assert usage["prompt_tokens"] == len(TOKENIZER.encode("巴黎"))
    assert usage["completion_tokens"] == len(REPLY)


def test_sixteen_tokens_unless_told():
    response = complete([TOKENIZER.encode(" word" * 40)])
    assert response.json()["choices"][0]["finish_reason"] == "length"
    assert response.json()["usage"]["completion_tokens"] == 16


def test_scores_in_the_old_form():
    body = complete([REPLY], logprobs=2, max_tokens=50).json()
    (choice,) = body["choices"]
    logprobs, text = choice["logprobs"], choice["text"]
    assert len({len(values) for values in logprobs.values()}) == 1
    for token, offset, top in zip(logprobs["tokens"], logprobs["text_offset"], logprobs["top_logprobs"], strict=True):
        if not token.startswith("bytes:"):
            assert text[offset : offset + len(token)] == token
        assert token in top and 2 <= len(top) <= 3
    assert any(token.startswith("bytes:\\x") for token in logprobs["tokens"]), "the emoji has several tokens"
    assert all(value <= 0 for value in logprobs["token_logprobs"])


def test_the_fields_reach_the_engine():
    response = complete(
        [REPLY], seed=7, temperature=0.5, top_p=0.9, top_k=5, max_tokens=9, ignore_eos=True, logit_bias={"5": -100}
    )
    (params,) = response.extensions["params"]
    assert (params.sampling.seed, params.sampling.temperature, params.sampling.top_p) == (7, 0.5, 0.9)
    assert (params.sampling.top_k, params.sampling.logit_bias) == (5, ((5, -100.0),))
    assert (params.max_tokens, params.stop_ids) == (9, frozenset())


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": ["a", 1]}, "prompt[1]"),
        ({"prompt": [1, "a"]}, "prompt[1]"),
        ({"prompt": [1, True]}, "prompt[1]"),
        ({"prompt": [1, -1]}, "prompt[1]"),
        ({"prompt": [1, 2**40]}, "prompt[1]"),
        ({"prompt": [[1], [2.0]]}, "prompt[1][0]"),
        ({"prompt": [10**6]}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": {"text": "a"}}, "prompt"),
        ({"prompt": ["x"] * 129}, "prompt"),
        ({"prompt": ["x"] * 65, "n": 2}, "prompt"),
        ({"n": 17}, "n"),
        ({"n": 0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"best_of": 3}, "best_of"),
        ({"suffix": "end"}, "suffix"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"echo": True, "logprobs": 0}, "echo"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": ""}, "stop"),
        ({"temperature": 3}, "temperature"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "prompt": "字" * 100_000}, None),
    ],
)
def test_what_is_refused(fields: dict[str, Any], param: str | None):
    """B36: also before a stream begins."""
    response = complete([], **fields)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param
    assert param is None or json.dumps(param)[1:-1] in response.text


def test_what_asks_for_nothing_is_accepted():
    assert complete([REPLY] * 2, n=2, best_of=2, suffix="", echo=False).status_code == 200


def test_an_error_after_the_first_byte_is_one_event_and_one_terminator():
    """B36"""
    seen = 0

    def fault(name: str, _: int) -> Exception | None:
        nonlocal seen
        seen += name == "delta"
        return EngineClosed("the engine has stopped") if seen > 3 and name == "delta" else None

    data = events(complete([REPLY], engine={"fault": fault}, stream=True, max_tokens=50))
    assert data[-1] == "[DONE]" and data.count("[DONE]") == 1
    assert data[-2]["error"]["message"] == "the engine has stopped"
    assert [one for one in data[:-1] if "error" in one] == [data[-2]]


def test_without_a_client_for_it_the_route_says_so():
    app = create_app(ScriptedModel([]), served_names=("smol",), clock=RealClock(), ids=IdSource(1))
    response = call(app, "POST", PATH, json={"model": "smol", "prompt": "x"})
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")
    response = complete([], model="gpt-99")
    assert (response.status_code, response.json()["error"]["param"]) == (404, "model")


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_does_not_hide_that_the_engine_refused(stream: bool) -> None:
    def refuse(_: Any) -> int:
        raise EngineClosed("the engine was stopped")

    assert complete(refuse, echo=True, stream=stream).status_code == 503
