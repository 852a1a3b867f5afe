"""Plain prompts over a scripted engine, with the embedded model's real tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from chat_harness import END, TOKENIZER, run, said
from tenuto.chat import LocalCompletionClient
from tenuto.clock import RealClock
from tenuto.errors import ContextLengthError, InvalidRequest, StepFailed
from tenuto.ids import IdSource, TokenId
from tenuto.protocol.chat import TextDelta, TokenScore, TokensScored
from tenuto.protocol.completion import MAX_COMPLETIONS, CompletionEvent, CompletionFinished, CompletionRequest
from tenuto.testing.scripted_engine import ScriptedEngine


def client(script: Any, **engine: Any) -> tuple[ScriptedEngine, LocalCompletionClient]:
    made = ScriptedEngine(script, **engine)
    return made, LocalCompletionClient(made, TOKENIZER, ids=IdSource(3), clock=RealClock())


async def events(
    one: LocalCompletionClient, *prompts: str | tuple[TokenId, ...], **fields: Any
) -> list[CompletionEvent]:
    return [event async for event in one.complete(CompletionRequest(prompts=prompts, **fields))]


def texts(found: Sequence[CompletionEvent]) -> dict[int, str]:
    by_choice: dict[int, str] = {}
    for event in found:
        by_choice.setdefault(event.choice, "")
        if isinstance(event, TextDelta):
            by_choice[event.choice] += event.text
    return by_choice


def finished(found: Sequence[CompletionEvent]) -> list[CompletionFinished]:
    return sorted((e for e in found if isinstance(e, CompletionFinished)), key=lambda event: event.choice)


def scores(found: Sequence[CompletionEvent]) -> list[TokenScore]:
    return [score for event in found if isinstance(event, TokensScored) for score in event.tokens]


@pytest.mark.parametrize("step", [1, 3, 50])
def test_text_follows_the_prompt_as_it_stands(step: int):
    engine, one = client([said(" 是法国的首都 😀。")], ids_per_delta=step)
    found = run(events(one, "巴黎 Paris"))
    assert texts(found) == {0: " 是法国的首都 😀。"}
    (end,) = finished(found)
    assert end.reason == "stop"
    assert end.usage.num_prompt == len(TOKENIZER.encode("巴黎 Paris"))
    assert end.usage.num_generated == len(said(" 是法国的首都 😀。"))
    assert found[-1] is end and engine.sessions == {}


def test_names_of_control_tokens_in_a_prompt_are_those_tokens():
    seen: list[list[TokenId]] = []

    def next_id(tokens: Sequence[TokenId]) -> TokenId:
        seen.append(list(tokens))
        return END

    _, one = client(next_id)
    run(events(one, "<|im_start|>user\n你好<|im_end|>\n"))
    assert seen[0][0] == TOKENIZER.control["<|im_start|>"] and END in seen[0]
    run(events(one, tuple(seen[0])))
    assert seen[1] == seen[0]


def test_every_prompt_has_its_choices_in_order():
    def next_id(tokens: Sequence[TokenId]) -> TokenId:
        text = TOKENIZER.decode(tokens)
        reply = said(" 甲乙" if text.startswith("一") else " 丙丁")
        prompt = len(TOKENIZER.encode("一" if text.startswith("一") else "二"))
        return reply[len(tokens) - prompt]

    engine, one = client(next_id)
    found = run(events(one, "一", "二", n=2))
    assert texts(found) == {0: " 甲乙", 1: " 甲乙", 2: " 丙丁", 3: " 丙丁"}
    ends = finished(found)
    assert [end.usage.num_prompt > 0 for end in ends] == [True, False, True, False]
    assert all(end.usage.num_recomputed >= 0 for end in ends)
    assert engine.sessions == {}
    seeds = [params.sampling.seed for params in engine.params]
    assert len(set(seeds)) == 2 and seeds.count(0) == 2


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("step", [1, 4])
def test_the_text_ends_before_a_stop_string(n: int, step: int):
    reply = said(" 答案STOPHEX，好STOPHERE 多余的")
    engine, one = client([reply] * n, ids_per_delta=step)
    found = run(events(one, "问", n=n, stop=("STOPHERE", "不会"), logprobs=0))
    assert set(texts(found).values()) == {" 答案STOPHEX，好"}
    for end in finished(found):
        assert end.reason == "stop"
        assert 0 < end.usage.num_generated <= len(reply)
        assert end.usage.num_recomputed >= 0 and end.usage.num_computed >= 0
    first = [s for e in found if isinstance(e, TokensScored) and e.choice == 0 for s in e.tokens]
    assert b"".join(score.token.data for score in first).decode() in " 答案STOPHEX，好"
    assert engine.sessions == {}


def test_half_a_character_at_the_end_is_dropped_with_its_tokens():
    ids = TOKENIZER.encode(" 好😀", "inside")
    whole = len(TOKENIZER.encode(" 好", "inside"))
    cut = ids[:-1]
    assert TOKENIZER.decode(cut).endswith("\ufffd"), "the emoji has several tokens"
    _, one = client([cut])
    found = run(events(one, "x", logprobs=2, max_tokens=len(cut)))
    assert texts(found) == {0: " 好"}
    assert len(scores(found)) == whole
    assert all(len(score.top) == 2 for score in scores(found))


def test_scores_come_before_their_text_and_spell_it():
    _, one = client([said(" São 你好 😀!")])
    found = run(events(one, "x", logprobs=0))
    assert b"".join(score.token.data for score in scores(found)).decode() == texts(found)[0]
    emitted = b""
    scored = b""
    for event in found:
        if isinstance(event, TokensScored):
            scored += b"".join(score.token.data for score in event.tokens)
        if isinstance(event, TextDelta):
            emitted += event.text.encode()
            assert scored.startswith(emitted)


def test_echo_writes_the_prompt_first():
    _, one = client([said(" 世界"), said(" 世界")])
    assert texts(run(events(one, "你好", echo=True))) == {0: "你好 世界"}
    assert texts(run(events(one, tuple(TOKENIZER.encode("你好")), echo=True))) == {0: "你好 世界"}


def test_max_tokens_and_ignored_ends():
    engine, one = client([said(" 一二三四")[:2], said(" 一二")])
    (end,) = finished(run(events(one, "x", max_tokens=2)))
    assert end.reason == "length"
    run(events(one, "x", ignore_eos=True, max_tokens=9))
    assert [bool(params.stop_ids) for params in engine.params] == [True, False]


def test_an_early_close_and_an_error_leave_no_session():
    engine, one = client([said(" 一二三四")] * 8)

    async def leave() -> None:
        stream = one.complete(CompletionRequest(prompts=("甲", "乙"), n=2))
        await anext(stream)
        await stream.aclose()

    run(leave())
    assert engine.sessions == {}
    for call in ("open", "append", "generate", "delta", "stats"):
        engine, one = client([said(" 一二三四")] * 4)
        engine.fault = lambda name, _, call=call: StepFailed("out of memory") if name == call else None
        with pytest.raises(StepFailed):
            run(events(one, "甲乙", "丙", n=2))
        assert engine.sessions == {}, call


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"prompts": ("",)}, "prompt"),
        ({"prompts": ()}, "prompt"),
        ({"prompts": ((TokenId(10**6),),)}, "prompt"),
        ({"prompts": ("x",) * (MAX_COMPLETIONS // 2 + 1), "n": 2}, "prompt"),
        ({"prompts": ("x",), "n": 0}, "prompt"),
        ({"prompts": ("x",), "max_tokens": 0}, "max_tokens"),
        ({"prompts": ("x",), "stop": ("",)}, "stop"),
    ],
)
def test_what_cannot_be_asked(fields: dict[str, Any], named: str):
    engine, one = client([])
    with pytest.raises(InvalidRequest) as caught:
        run(events(one, *fields.pop("prompts"), **fields))
    assert caught.value.param == named
    assert engine.num_calls["open"] == 0


def test_what_does_not_fit_is_refused_with_the_numbers():
    engine, one = client([], max_model_tokens=64)
    for prompt in ("word " * 70, tuple(TOKENIZER.encode("word " * 70)), "字" * 10**6):
        with pytest.raises(ContextLengthError, match="context holds 64"):
            run(events(one, "ok", prompt))
    with pytest.raises(ContextLengthError):
        run(events(one, "word " * 30, max_tokens=50))
    assert engine.num_calls["open"] == 0
