"""Several choices of one prompt: computed once, KV shared, each on its own, and all gone when the caller goes (B31)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from chat_harness import END, TOKENIZER, WEATHER, Chat, call_text, run, said, user
from embedded_tokenizer import embedded_files
from tenuto.chat import LocalModelClient, TextTools
from tenuto.chat.choices import merge
from tenuto.clock import VirtualClock, run_virtual
from tenuto.engine import ClientOptions, Engine, EngineConfig, LocalEngineClient
from tenuto.errors import EngineClosed, InvalidRequest, QueueFull, TenutoError
from tenuto.ids import IdSource, TokenId
from tenuto.protocol.chat import ChatRequest, ModelEvent, ReplyFinished, TextDelta, ToolCallFinished
from tenuto.protocol.engine import EngineInfo, SamplingParams
from tenuto.testing.fake_executor import FakeExecutor
from tenuto.text.template import ChatTemplate
from tenuto.text.tool_format import HermesFormat

ASK = user("给我讲一个故事，可以吗？")


def by_choice(events: Sequence[ModelEvent]) -> dict[int, list[ModelEvent]]:
    found: dict[int, list[ModelEvent]] = {}
    for event in events:
        found.setdefault(event.choice, []).append(event)
    return found


def finishes(events: Sequence[ModelEvent]) -> list[ReplyFinished]:
    """In the order of the choices."""
    found = [events[-1] for _, events in sorted(by_choice(events).items())]
    assert all(isinstance(event, ReplyFinished) for event in found)
    return found  # type: ignore[return-value]


# Over the scripted engine


def test_events_say_which_choice_they_belong_to():
    async def main() -> None:
        chat = Chat([said("从前有座山。"), said("好。"), said(call_text(city="奥斯陆"))])
        events = await chat.events(ASK, n=3, tools=(WEATHER,))
        found = by_choice(events)
        assert set(found) == {0, 1, 2} and all(isinstance(e[-1], ReplyFinished) for e in found.values())
        texts = ["".join(e.text for e in found[i] if isinstance(e, TextDelta)) for i in range(3)]
        assert sorted(texts) == sorted(["从前有座山。", "好。", ""])
        calls = [event for event in events if isinstance(event, ToolCallFinished)]
        assert [one.call.arguments for one in calls] == [{"city": "奥斯陆"}]
        assert [f.message.content for f in finishes(events)] == texts
        assert chat.engine.sessions == {}

    run(main())


def test_choices_have_seeds_of_their_own_and_the_first_has_the_requests():
    async def seeds(seed: int, n: int) -> list[int]:
        chat = Chat([said("好。")] * n)
        await chat.events(ASK, n=n, sampling=SamplingParams(temperature=1.0, seed=seed))
        return [params.sampling.seed for params in chat.engine.params]

    async def main() -> None:
        three, four = sorted(await seeds(5, 3)), sorted(await seeds(5, 4))
        assert 5 in three and len(set(four)) == 4 and set(three) < set(four)
        assert await seeds(5, 1) == [5]
        assert not set(await seeds(6, 4)) & set(four)

    run(main())


@pytest.mark.parametrize(("fields", "says"), [({"n": 0}, "between"), ({"n": 17}, "between"), ({"n": 2}, "must be 1")])
def test_what_cannot_be_asked_for(fields: dict[str, int], says: str):
    async def main() -> None:
        chat = Chat([said("好。")] * 2)
        with pytest.raises(InvalidRequest, match=says) as caught:
            await chat.ask(ASK, **fields)
        assert caught.value.param == "n" and not chat.engine.num_calls["open"]

    run(main())


@pytest.mark.parametrize("call", ["open", "append", "stats", "generate", "delta"])
def test_an_error_of_one_choice_ends_all_and_leaves_nothing(call: str):
    """At the first such call, and at each later one."""

    async def main(number: int) -> bool:
        calls = [0]

        def fault(name: str, _: int) -> Exception | None:
            calls[0] += name == call
            return QueueFull("no more") if name == call and calls[0] == number else None

        chat = Chat([said("从前有座山。")] * 3, fault=fault)
        try:
            await chat.events(ASK, n=3)
        except QueueFull:
            assert chat.engine.sessions == {}
            return True
        assert chat.engine.sessions == {}
        return False

    failed = [run(main(number)) for number in (1, 2, 3, 99)]
    assert failed == [True, call not in ("append", "stats"), call not in ("append", "stats"), False]


def test_leaving_early_stops_all_choices():
    async def main() -> None:
        chat = Chat(lambda tokens: said("好的。")[len(tokens) % 3])
        for leave_at in (1, 2, 7):
            stream = chat.client.stream(ChatRequest(messages=(ASK,), n=2))
            for _ in range(leave_at):
                await anext(stream)
            assert len(chat.engine.sessions) == 2
            await stream.aclose()
            assert chat.engine.sessions == {}

    run(main())


def test_a_conversation_goes_on_from_any_choice():
    async def main() -> None:
        chat = Chat([said("甲。"), said("乙。"), said("好。"), said("好。")], block_size=1)
        events = await chat.events(ASK, n=2)
        for finished in finishes(events):
            again = (await chat.events(ASK, finished.message, user("接着讲。")))[-1]
            assert isinstance(again, ReplyFinished)
            known = len(chat.rendered(ASK)) + len(finished.token_ids)
            assert again.usage.num_shared >= known, "its ids were kept"

    run(main())


# Merging


def test_merging_closes_every_stream_however_it_ends():
    async def numbers(name: str, count: int, log: list[str], error: Exception | None = None) -> AsyncIterator[str]:
        try:
            for number in range(count):
                await asyncio.sleep(0)
                yield f"{name}{number}"
            if error is not None:
                raise error
        finally:
            await asyncio.sleep(0)
            log.append(name)

    async def main() -> None:
        log: list[str] = []
        whole = [item async for item in merge([numbers("a", 2, log), numbers("b", 3, log)], 1.0)]
        assert whole == ["a0", "b0", "a1", "b1", "b2"] and sorted(log) == ["a", "b"]
        log.clear()
        broken = merge([numbers("a", 9, log), numbers("b", 1, log, QueueFull("x")), numbers("c", 9, log)], 1.0)
        with pytest.raises(QueueFull):
            _ = [item async for item in broken]
        assert sorted(log) == ["a", "b", "c"]
        log.clear()
        left = merge([numbers("a", 9, log), numbers("b", 9, log)], 1.0)
        await anext(left)
        await left.aclose()
        assert sorted(log) == ["a", "b"]

    run(main())


def test_merging_closes_every_stream_although_its_closing_is_cancelled():
    """A client that takes nothing is given up, and then it leaves."""

    async def endless(name: str, log: list[str]) -> AsyncIterator[str]:
        try:
            while True:
                await asyncio.sleep(0)
                yield name
        finally:
            await asyncio.sleep(0.02)
            log.append(name)

    async def main() -> None:
        log: list[str] = []
        merged = merge([endless(name, log) for name in "abc"], 5.0)
        await anext(merged)
        closing = asyncio.create_task(merged.aclose())
        for _ in range(3):
            await asyncio.sleep(0.005)
            closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert log == ["a", "b", "c"]

    run_virtual(main())


# Over the production engine: a fake executor in virtual time


@dataclass
class Stage:
    client: LocalModelClient
    core: Engine
    engine: LocalEngineClient

    async def ask(self, n: int, **fields: object) -> list[ModelEvent]:
        return [e async for e in self.client.stream(ChatRequest(messages=(ASK,), n=n, **fields))]  # type: ignore[arg-type]


@asynccontextmanager
async def staged(**changes: int) -> AsyncIterator[Stage]:
    sizes = {"num_blocks": 64, "block_size": 16, "max_model_tokens": 512, "max_batch_tokens": 64, **changes}
    config = EngineConfig(vocab_size=TOKENIZER.vocab_size, max_running=8, **sizes)  # type: ignore[arg-type]
    core, clock = Engine(config), VirtualClock()
    executor = FakeExecutor(config.num_blocks, config.block_size, config.vocab_size, free_blocks=core.free_blocks)
    info = EngineInfo(
        model="fake",
        fingerprint="",
        vocab_size=config.vocab_size,
        max_model_tokens=config.max_model_tokens,
        block_size=config.block_size,
        num_blocks=config.num_blocks,
        kv_bytes_per_token=1,
        device="fake",
        precision="exact",
        row_invariant=True,
    )
    options = ClientOptions(inline=True, step_cost=lambda _: 0.01)
    async with LocalEngineClient(core, executor, clock, info, options=options) as engine:
        template = ChatTemplate(embedded_files().chat_template, TOKENIZER, clock)
        text = TextTools(TOKENIZER, template, HermesFormat())
        yield Stage(LocalModelClient(engine, text, ids=IdSource(3), clock=clock), core, engine)


SAMPLING = SamplingParams(temperature=1.0, seed=8, repetition_penalty=1.1)


def on_stage(main: Callable[[Stage], object], **changes: int) -> None:
    async def body() -> None:
        async with staged(**changes) as stage:
            await main(stage)  # type: ignore[misc]
            stage.core.check_invariants()

    run_virtual(body())


def test_the_prompt_is_computed_once_and_its_kv_shared():
    async def main(stage: Stage) -> None:
        events = await stage.ask(3, max_tokens=8, sampling=SAMPLING, ignore_eos=True)
        done = finishes(events)
        num_prompt = done[0].usage.num_prompt
        assert num_prompt > 16
        counters = await stage.engine.counters()
        # All but the last token of the prompt once; of each choice that token, and all generated ids but the last.
        assert counters.num_computed_tokens == num_prompt - 1 + 3 * (1 + 7)
        assert 0 < counters.num_copies <= 3, "only the partial block is copied"
        usages = [finished.usage for finished in done]
        assert sum(u.num_prompt for u in usages) == num_prompt
        assert sum(u.num_computed for u in usages) == num_prompt
        assert [u.num_recomputed for u in usages] == [0, 1, 1]
        assert [u.num_generated for u in usages] == [8, 8, 8]
        again = finishes(await stage.ask(3, max_tokens=8, sampling=SAMPLING, ignore_eos=True))
        assert again[0].usage.num_shared == (num_prompt - 1) // 16 * 16
        assert stage.core.num_owned_blocks == 0

    on_stage(main)


@pytest.mark.parametrize("num_blocks", [64, 6])
def test_choices_are_the_same_whatever_the_pool_and_the_first_is_the_only_one_of_n_1(num_blocks: int):
    async def main(stage: Stage) -> None:
        alone = finishes(await stage.ask(1, max_tokens=30, sampling=SAMPLING, ignore_eos=True))
        three = finishes(await stage.ask(3, max_tokens=30, sampling=SAMPLING, ignore_eos=True))
        two = finishes(await stage.ask(2, max_tokens=30, sampling=SAMPLING, ignore_eos=True))
        assert three[0].token_ids == alone[0].token_ids
        assert [f.token_ids for f in two] == [f.token_ids for f in three[:2]]
        assert len({f.token_ids for f in three}) == 3
        found.append([f.token_ids for f in three])
        if num_blocks == 6:
            assert (await stage.engine.counters()).num_discards > 0, "a fork lost its KV while it waited"

    found: list[list[tuple[TokenId, ...]]] = []
    on_stage(main, num_blocks=num_blocks)
    on_stage(main, num_blocks=num_blocks, max_batch_tokens=16)
    assert found[0] == found[1]


def test_b31_cancelling_two_choices_anywhere_leaves_no_block():
    async def main(stage: Stage) -> None:
        places: set[tuple[int, bool]] = set()
        for round_ in range(200):
            task = asyncio.create_task(stage.ask(2, max_tokens=12, sampling=SAMPLING, ignore_eos=True))
            for _ in range(round_ % 50):
                await asyncio.sleep(0)
            await stage.client._clock.sleep(0.01 * (round_ % 7))
            places.add((stage.core.num_running, bool(stage.core.num_waiting)))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not stage.core.has_work and stage.core.num_owned_blocks == 0
            stage.core.check_invariants()
        assert len(places) >= 3, "cancelled before, during and between the choices"

    on_stage(main, num_blocks=16)


def test_an_engine_that_stops_ends_all_choices():
    async def main(stage: Stage) -> None:
        task = asyncio.create_task(stage.ask(3, ignore_eos=True, max_tokens=200))
        await stage.client._clock.sleep(0.1)
        await stage.engine.stop()
        with pytest.raises(EngineClosed):
            await task

    on_stage(main)


def test_one_choice_too_many_for_the_queue_ends_all():
    async def main(stage: Stage) -> None:
        with pytest.raises(TenutoError, match="waiting"):
            await stage.ask(8, max_tokens=20, ignore_eos=True)
        assert stage.core.num_owned_blocks == 0 and not stage.core.has_work

    on_stage(main, max_waiting=1)


def test_end_and_stop_of_choices_are_their_own():
    async def main() -> None:
        chat = Chat([said("一。二。"), [*said("三四", None), END], said("五六七八九" * 4, None)])
        done = finishes(await chat.events(ASK, n=3, stop=("二",), max_tokens=len(said("一。二。"))))
        assert sorted(f.reason for f in done) == ["length", "stop", "stop"]
        contents = {f.message.content for f in done}
        assert "一。" in contents and "三四" in contents

    run(main())
