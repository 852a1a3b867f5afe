"""Whatever a client sends, it gets an answer or a 4xx in OpenAI's shape; and the same answer however it is cut."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tenuto.clock import RealClock
from tenuto.ids import IdSource
from tenuto.server import create_app
from tenuto.testing.scripted_model import Reply, ScriptedModel

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["user", "tool"])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def mostly(sound: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly sound, so that the rest of the body is looked at too."""
    return st.integers(0, 9).flatmap(lambda die: JSON if die == 0 else sound)


TEXT = st.text(max_size=8)
ARGUMENTS = mostly(st.dictionaries(TEXT, SCALARS, max_size=2)).map(json.dumps) | st.sampled_from(
    ["", "{", "[]", "\ud800"]
)
FUNCTION = st.fixed_dictionaries({"name": mostly(st.text(min_size=1, max_size=4)), "arguments": mostly(ARGUMENTS)})
MADE = st.fixed_dictionaries({"id": mostly(st.text(min_size=1, max_size=4)), "function": FUNCTION})
PART = st.fixed_dictionaries({"type": mostly(st.just("text")), "text": mostly(TEXT)})
CONTENT = mostly(TEXT | st.lists(PART, max_size=2))
MESSAGE = st.one_of(
    st.fixed_dictionaries({"role": mostly(st.sampled_from(["system", "developer", "user"])), "content": CONTENT}),
    st.fixed_dictionaries(
        {"role": st.just("assistant")}, optional={"content": CONTENT, "tool_calls": mostly(st.lists(MADE, max_size=2))}
    ),
    st.fixed_dictionaries({"role": st.just("tool"), "tool_call_id": mostly(st.text(min_size=1)), "content": CONTENT}),
)
TOOL = st.fixed_dictionaries({"type": st.just("function"), "function": FUNCTION})
NAMES = ["tool_choice", "parallel_tool_calls", "max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "stream"]
NAMES += [
    "stream_options",
    "ignore_eos",
    "n",
    "logprobs",
    "response_format",
    "logit_bias",
    "user",
    "functions",
    "extra",
]
BODY = st.builds(
    lambda sound, odd: {**sound, **odd},
    st.fixed_dictionaries(
        {"model": st.just("default"), "messages": st.lists(MESSAGE, min_size=1, max_size=3)},
        optional={
            "tools": mostly(st.lists(TOOL, max_size=2)),
            "stream": st.booleans(),
            "seed": st.integers(-(2**63), 2**63 - 1),
            "temperature": st.floats(0, 2),
            "stop": TEXT.map(lambda text: text + "."),
        },
    ),
    st.dictionaries(st.sampled_from(NAMES), JSON, max_size=1),
)


def post(app: Any, content: bytes) -> httpx.Response:
    async def main() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tenuto") as client:
            headers = {"Content-Type": "application/json"}
            return await client.post("/v1/chat/completions", content=content, headers=headers)

    return asyncio.run(main())


def assert_answered(response: httpx.Response) -> None:
    event(f"status {response.status_code}")
    assert response.status_code in (200, 400, 404), response.text
    if response.status_code != 200:
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}


def any_answer() -> Any:
    model = ScriptedModel(lambda _: Reply("好", calls=(("ping", {}),)))
    return create_app(model, served_names=("smol",), clock=RealClock(), ids=IdSource(1))


APP = any_answer()


@settings(max_examples=250, deadline=None)
@given(BODY)
def test_no_body_of_about_the_right_shape_makes_the_server_fail(body: dict[str, Any]):
    # As other writers of JSON do: NaN and lone surrogates' escapes are sent as they are.
    assert_answered(post(APP, json.dumps(body).encode()))


@settings(max_examples=100, deadline=None)
@given(BODY, st.data())
def test_no_damaged_body_makes_the_server_fail(body: dict[str, Any], data: st.DataObject):
    content = bytearray(json.dumps(body, ensure_ascii=True).encode())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at : at + data.draw(st.integers(0, 5))] = data.draw(st.binary(max_size=4))
    assert_answered(post(APP, bytes(content)))
