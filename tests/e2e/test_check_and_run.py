"""What `tenuto models check` says of a model is what happens when it is loaded and asked, however odd the model is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from runnable_models import write_runnable
from tenuto.clock import RealClock
from tenuto.errors import GrammarError, TenutoError
from tenuto.field import Conditions, check_model
from tenuto.protocol.chat import ChatRequest, ReplyFinished
from tenuto.protocol.engine import SamplingParams
from tenuto.protocol.messages import Message, ToolSpec
from tenuto.wiring import open_model
from tiny_models import TinyLlama

TOOL = ToolSpec(name="天气", description="", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"

Make = Callable[[Path], Path]


def templated(source: str) -> Make:
    return lambda path: write_runnable(path, template=source)


def edited(name: str, edit: Callable[[dict[str, Any]], object]) -> Make:
    """A sound model, one JSON file of which is changed."""

    def make(path: Path) -> Path:
        file = write_runnable(path) / name
        values = json.loads(file.read_text())
        edit(values)
        file.write_text(json.dumps(values))
        return path

    return make


def rows(vocab_size: int) -> Make:
    """So many rows of the embedding; the tokenizer has 261 tokens."""
    return lambda path: write_runnable(path, TinyLlama(vocab_size=vocab_size))


def _no_ends(path: Path) -> Path:
    edited("config.json", lambda c: (c.pop("eos_token_id"), c.pop("bos_token_id")))(path)
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    tokenizer["added_tokens"] = tokenizer["added_tokens"][:3]  # without ChatML's, which end turns by their very names
    tokenizer["model"]["vocab"].pop("<|im_start|>"), tokenizer["model"]["vocab"].pop("<|im_end|>")
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    return path


RUN: dict[str, Make] = {
    "as it should be": write_runnable,
    "no bos": edited("config.json", lambda c: c.pop("bos_token_id")),
    "ten times as many rows as tokens": rows(2610),
    "no end": _no_ends,
    "turns that end with no token": templated("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"),
    "tools and messages dumped": templated("{{ messages | tojson }}{{ tools | tojson(indent=2) }}"),
    "a number of no end": templated("{{ 9 ** 9 ** 9 }}" + PLAIN),
}
DO_NOT_RUN: dict[str, Make] = {
    "an end beyond all rows": edited("config.json", lambda c: c.update(eos_token_id=5000)),
    "an end beyond all tokens": edited("config.json", lambda c: c.update(eos_token_id=310)),
    "a beginning below all": edited("config.json", lambda c: c.update(bos_token_id=-1)),
    "fewer rows than tokens": rows(200),
    "one row too few": rows(260),
    "an empty template": templated(""),
    "a template that writes nothing": templated("{% if false %}x{% endif %}"),
    "a template that writes half a character": templated('{{ "\\ud800" }}' + PLAIN),
    "a template without end": templated("{% for i in range(10 ** 9) %}x{% endfor %}"),
    "a template that calls itself": templated("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
    "a template of a megabyte": templated("x" * 10**6),
    "a template of unknown filters": templated("{{ messages | frobnicate }}"),
    "a template that must have tools": templated("{{ tools[0].function.name }}" + PLAIN),
    "a template that refuses tools": templated("{% if tools %}{{ raise_exception('不行') }}{% endif %}" + PLAIN),
    "a template that refuses everyone": templated("{{ raise_exception('不行') }}"),
    "a template that looks for more": templated("{{ messages[99].content.a.b }}"),
    "a template that includes another": templated("{% include 'other' %}"),
    "a template of brackets": templated("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}"),
}


@pytest.mark.parametrize("name", RUN)
def test_what_runs(name: str, tmp_path: Path) -> None:
    path = RUN[name](tmp_path / "模型 'a\" b")
    report = check_model(path, _conditions())
    assert report.runs, report.problems
    anyio.run(_ask, path, ())
    if name == "no end":
        assert any("tools and grammars are refused" in note for note in report.notes)
        with pytest.raises(GrammarError, match="eos_token_id"):
            anyio.run(_ask, path, (TOOL,))
    else:
        anyio.run(_ask, path, (TOOL,))


@pytest.mark.parametrize("name", DO_NOT_RUN)
def test_what_does_not(name: str, tmp_path: Path) -> None:
    path = DO_NOT_RUN[name](tmp_path / "模型 'a\" b")
    report = check_model(path, _conditions())
    assert not report.runs and report.problems
    with pytest.raises(TenutoError):
        anyio.run(_ask, path, ())
        anyio.run(_ask, path, (TOOL,))


def _conditions() -> Conditions:
    return Conditions(kv_tokens=1024, available_bytes=None, clock=RealClock())


async def _ask(path: Path, tools: tuple[ToolSpec, ...]) -> None:
    request = ChatRequest(
        messages=(Message(role="user", content="你好 <s> hello"),),
        tools=tools,
        max_tokens=24,
        sampling=SamplingParams(temperature=3.0, seed=5),  # as likely as not an id that stands for nothing
        ignore_eos=not tools,
    )
    async with open_model(model=str(path), kv_tokens=1024, num_threads=1) as model:
        events = [event async for event in model.stream(request)]
    assert isinstance(events[-1], ReplyFinished)
