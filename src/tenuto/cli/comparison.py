"""What `tenuto compare` runs: one side after the other, then what they left behind against each other."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from tenuto.agents.examples import example_messages
from tenuto.checkpoint import open_checkpoint
from tenuto.cli.assistant import MAX_REPLY_TOKENS, weather_toolbox
from tenuto.clock import RealClock
from tenuto.compare.calls import Calls, call_report, collect_calls, prompts
from tenuto.compare.copies import copy_report
from tenuto.compare.plan import Plan, Watch
from tenuto.compare.record import Reading, SideRecord, layers_of, record, text_reports
from tenuto.compare.report import Comparison, SideReport, SpeedReport
from tenuto.compare.setting import Setting
from tenuto.compare.speed import NUM_ROUNDS, Rounds, SpeedProbe, speed_reports, time_rounds
from tenuto.compare.verdict import judge
from tenuto.config import Config
from tenuto.device import Device, ReferenceDevice, choose_device
from tenuto.errors import CapacityError, ConfigError, NeverFits, RequestError
from tenuto.field.measure import held_bytes
from tenuto.protocol.chat import ChatRequest
from tenuto.protocol.messages import Message
from tenuto.text.tokenizer import Tokenizer
from tenuto.tools import ToolRegistry
from tenuto.wiring import LoadedModel, load, running


@dataclass
class _Work:
    """What is to be measured, who watches, and what could not be measured."""

    plan: Plan
    watch: Watch
    skipped: list[str]


@dataclass(frozen=True)
class Side:
    """A or B: what was asked for, and where its model lies."""

    setting: Setting
    config: Config
    path: Path


def compare(a: Side, b: Side, plan: Plan, watch: Watch) -> Comparison:
    """Measure both sides, each loaded once; together in memory only to time them by turns, if there is room.

    Raises:
        ConfigError: the sides split text into different tokens, so that nothing can be compared token by token.
        What `load` raises.
    """
    work = _Work(plan, watch, [])
    tokenizer, reading = _shared_reading(a, b, plan)
    loaded_a, report_a = _load(a, watch)
    record_a = _record(loaded_a, a.config, reading, report_a, work)
    kept: LoadedModel | None = loaded_a if "speed" in plan.parts else None
    rounds_a: Rounds | None = None
    del loaded_a
    try:
        loaded_b, report_b = _load(b, watch)
    except NeverFits:
        if kept is None:
            raise
        rounds_a = _alone(kept, reading, work)
        kept = None
        loaded_b, report_b = _load(b, watch)
    record_b = _record(loaded_b, b.config, reading, report_b, work)
    speeds = _speeds(kept, rounds_a, loaded_b, reading, work) if "speed" in plan.parts else ()
    del kept, loaded_b
    return _put_together(record_a, record_b, tokenizer, reading, speeds, work)


def _put_together(
    a: SideRecord,
    b: SideRecord,
    tokenizer: Tokenizer,
    reading: Reading,
    speeds: tuple[SpeedReport, ...],
    work: _Work,
) -> Comparison:
    plan = work.plan
    texts = text_reports(a, b, reading, work.watch)
    copies = tuple(
        copy_report(kind, tasks, a.copies[kind], b.copies[kind], tokenizer) for kind, tasks in reading.copies.items()
    )
    calls = None if a.calls is None or b.calls is None else call_report(prompts(plan.num_prompts), a.calls, b.calls)
    layers = layers_of(a, b)
    if layers is None and "layers" in plan.parts:
        work.skipped.append("layers: the models have other layers")
    if not copies and "copies" in plan.parts:
        work.skipped.append("copies: the context is too small for them")
    return Comparison(
        a=a.report,
        b=b.report,
        texts=texts,
        layers=layers,
        copies=copies,
        calls=calls,
        speeds=speeds,
        skipped=tuple(dict.fromkeys(work.skipped)),
        verdict=judge(texts, copies, calls, all_measured=all((texts, copies, calls))),
    )


def _shared_reading(a: Side, b: Side, plan: Plan) -> tuple[Tokenizer, Reading]:
    """What both sides read, found before a weight is. Raises ConfigError if they read it as different tokens, or if
    a side's settings contradict each other."""
    for side in (a, b):
        choose_device(side.config.precision, side.config.num_threads, side.config.kv_type)
    checkpoints = [open_checkpoint(side.path) for side in (a, b)]
    tokenizers = [Tokenizer.from_files(c.tokenizer, c.config.vocab_size) for c in checkpoints]
    limit = min(c.config.max_model_tokens for c in checkpoints)
    reading, other = (Reading.of(plan, tokenizer, limit) for tokenizer in tokenizers)
    if reading != other or tokenizers[0].vocab_size != tokenizers[1].vocab_size:
        raise ConfigError(
            f"{checkpoints[0].name} and {checkpoints[1].name} split text into different tokens: only models of one "
            "tokenizer can be compared"
        )
    return tokenizers[0], reading


def _load(side: Side, watch: Watch) -> tuple[LoadedModel, SideReport]:
    setting, config = side.setting, side.config
    watch.begin(f"loading {setting.text}", 1)
    _give_back_memory()
    before = _resident_bytes()
    loaded = load(config, RealClock(), _device(setting, config))
    after = _resident_bytes()
    watch.advance()
    decoder = loaded.decoder
    return loaded, SideReport(
        setting=setting.text,
        model=loaded.name,
        device=decoder.device.name,
        precision=config.precision,
        kv_type=config.kv_type,
        weight_bytes=held_bytes(decoder),
        kv_bytes_per_token=decoder.kv_bytes_per_token(),
        loaded_bytes=None if before is None or after is None else after - before,
    )


def _device(setting: Setting, config: Config) -> Device | None:
    if setting.device == "best":
        return None
    return ReferenceDevice(config.precision, kv_type=config.kv_type)


def _give_back_memory() -> None:
    """What the other side left behind goes back to the system, so that this side's growth can be seen."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError, TypeError):
        return  # only glibc keeps freed memory so


def _resident_bytes() -> int | None:
    """What the process holds in memory, where the system tells (Linux)."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def _record(loaded: LoadedModel, config: Config, reading: Reading, report: SideReport, work: _Work) -> SideRecord:
    calls: list[Calls] | None = None
    if "calls" in work.plan.parts:
        questions = [prompt.question for prompt in prompts(work.plan.num_prompts)]
        work.watch.begin(f"tool calls of {report.setting}", len(questions))
        try:
            calls = anyio.run(_collect, loaded, config, questions, work.watch)
        except* (RequestError, CapacityError) as group:
            work.skipped.append(f"tool calls: {_first(group)}")
    return record(loaded.decoder, reading, work.plan, work.watch, report, calls)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


async def _collect(loaded: LoadedModel, config: Config, questions: Sequence[str], watch: Watch) -> list[Calls]:
    clock = RealClock()
    box = weather_toolbox(clock)
    request = ChatRequest(
        messages=(Message(role="system", content=box.instructions),),
        examples=example_messages(box.tools),
        tools=ToolRegistry(box.tools).specs(),
        max_tokens=MAX_REPLY_TOKENS,
    )
    async with running(loaded, config, clock=clock) as started:
        return await collect_calls(started.model, request, questions, watch.advance)


def _alone(loaded: LoadedModel, reading: Reading, work: _Work) -> Rounds:
    work.watch.begin("speed of A alone: both do not fit at once", NUM_ROUNDS)
    return time_rounds([SpeedProbe(loaded.decoder, reading.first, RealClock())], work.watch.advance)[0]


def _speeds(
    a: LoadedModel | None, rounds_a: Rounds | None, b: LoadedModel, reading: Reading, work: _Work
) -> tuple[SpeedReport, ...]:
    work.watch.begin("speed", NUM_ROUNDS)
    probe = SpeedProbe(b.decoder, reading.first, RealClock())
    if a is None:
        assert rounds_a is not None, "A was timed before it was dropped"
        rounds_b = time_rounds([probe], work.watch.advance)[0]
        return speed_reports(rounds_a, rounds_b, probe.num_tokens, is_interleaved=False)
    of_a, of_b = time_rounds([SpeedProbe(a.decoder, reading.first, RealClock()), probe], work.watch.advance)
    return speed_reports(of_a, of_b, probe.num_tokens, is_interleaved=True)
