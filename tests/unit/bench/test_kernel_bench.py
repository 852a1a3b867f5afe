"""`tenuto bench kernels` on a tiny model: what is measured, counted and drawn."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
import torch
from typer.testing import CliRunner

from family_models import FAMILY_MODELS, make, save
from runnable_models import write_runnable
from tenuto.bench.kernels.batches import blocks_of, made_batch
from tenuto.bench.kernels.cases import Sizes, kernel_cases
from tenuto.bench.kernels.limits import Probe
from tenuto.bench.kernels.plot import roofline, write_roofline
from tenuto.bench.kernels.report import KernelReport, KernelTime, Limits
from tenuto.bench.kernels.run import Wanted, measure
from tenuto.bench.kernels.steps import matrix_operations, weight_bytes
from tenuto.bench.kernels.timing import Effort, time_in_turns
from tenuto.checkpoint import open_checkpoint
from tenuto.cli.main import app
from tenuto.device import ReferenceDevice
from tenuto.device.cpu import CpuDevice, native_library
from tenuto.errors import ConfigError, NeverFits
from tenuto.model import Decoder, load_model

LIBRARY = native_library()
native = pytest.mark.skipif(LIBRARY is None, reason="installed without a C++ compiler")
LITTLE = Effort(least_s=0.0, least_runs=1)
SIZES = Sizes(rows=(1, 8, 16), contexts=(32, 40), num_sessions=2, working_bytes=100_000)
LIMITS = Limits(
    num_threads=2,
    instruction_set="portable",
    step_bytes=1000,
    read=1e9,
    read_memory=1e9,
    int8=100e9,
    int8_tiles=0.0,
    fp32=10e9,
)


@pytest.fixture
def decoder(tmp_path: Path) -> Decoder:
    assert LIBRARY is not None
    path = save(make(FAMILY_MODELS["llama"]), tmp_path / "model")
    return load_model(open_checkpoint(path), CpuDevice(LIBRARY, 2))


def kernel(name: str = "down 96→64", num_bytes: int = 1000, num_operations: int = 2000, **more: object) -> KernelTime:
    fields = {"setting": "1 row", "rows": 1, "time_s": 1e-4, "median_s": 2e-4, "num_runs": 3, "arithmetic": "int8"}
    made = KernelTime(
        **(fields | {"floor_s": 0.0, "bound": "reading"} | more),  # type: ignore[arg-type]
        kernel=name,
        num_bytes=num_bytes,
        num_operations=num_operations,
    )
    return made.against(LIMITS)


def report(*kernels: KernelTime, limits: Limits = LIMITS) -> KernelReport:
    return KernelReport(
        model="a < b & 模型", precision="int8", kv_type="float", machine={}, limits=limits, kernels=kernels, steps=()
    )


def test_the_floor_is_the_longer_of_reading_and_computing() -> None:
    assert LIMITS.floor(1000, 10, "int8") == (1e-6, "reading")
    assert LIMITS.floor(10, 1_000_000, "int8") == (1e-5, "int8")
    assert LIMITS.floor(10, 1_000_000, "fp32") == (1e-4, "fp32")
    one = kernel(num_bytes=10_000)
    assert (one.of_limit, one.intensity, one.bound) == (pytest.approx(0.1), 0.2, "reading")


def test_the_better_measurement_counts_for_each_rate() -> None:
    other = msgspec.structs.replace(LIMITS, read=2e9, int8=1e9, int8_tiles=5e12)
    best = LIMITS.merged(other)
    assert (best.read, best.int8, best.int8_tiles, best.fp32) == (2e9, 100e9, 5e12, 10e9)


def test_times_are_the_best_of_runs_taken_in_turns() -> None:
    clock, done = 0.0, []

    def now() -> float:
        return clock

    def run(name: str, times: Iterator[float]) -> None:
        nonlocal clock
        clock += next(times)
        done.append(name)

    slow, fast = iter([9, 5, 4, 6, 9, 7, 8, 8]), iter([1, 2, 3, 4, 0, 5, 1, 3])
    found = time_in_turns([lambda: run("slow", slow), lambda: run("fast", fast)], now, Effort(0.0, 6))
    assert "".join(name[0] for name in done) == "ssssffffssssffff"
    assert [(one.best_s, one.median_s, one.num_runs) for one in found] == [(4, 6.5, 6), (1, 3.0, 6)]


def test_batches_have_blocks_of_their_own_but_for_what_is_shared() -> None:
    batch = made_batch([(20, 1), (33, 4)], 16, num_shared=1)
    assert batch.block_tables.tolist() == [[0, 1, 0], [0, 2, 3]]
    assert batch.positions.tolist() == [20, 33, 34, 35, 36] and batch.kv_lens == (21, 37)
    assert batch.slots.tolist() == [20, 49, 50, 51, 52]
    assert batch.logit_rows.tolist() == [0, 4] and batch.query_starts == (0, 1, 5)
    assert blocks_of([(20, 1), (33, 4)], 16) == 5


@native
def test_reading_sums_every_word() -> None:
    assert LIBRARY is not None
    words = torch.arange(8 * 1001)
    wanted = int(words.sum())
    for threads in (1, 2, 3, 7):
        assert LIBRARY.probe_read(words.data_ptr(), words.nbytes, 1, threads) == wanted
        assert LIBRARY.probe_read(words.data_ptr(), words.nbytes, 3, threads) == 3 * wanted


@native
def test_peaks_are_those_of_instructions_the_machine_has() -> None:
    assert LIBRARY is not None
    probe = Probe(LIBRARY, 1, time.perf_counter, LITTLE)
    assert LIBRARY.probe_multiply(b"nothing", 1, 1) == 0 and probe.operations_per_s("nothing") == 0
    for kind in ("int8", "fp32"):
        assert LIBRARY.probe_multiply(kind.encode(), 1, 2) > 0 and probe.operations_per_s(kind) > 0
    tiles = LIBRARY.probe_multiply(b"int8-tiles", 1, 1)
    assert tiles in (0, 6 * 16 * 16 * 64 * 2)


@native
def test_cases_cover_every_kernel_and_size_and_count_what_is_read(decoder: Decoder) -> None:
    cases = list(kernel_cases(decoder, SIZES))
    found = {(case.kernel, case.setting): case for case in cases}
    assert len(found) == len(cases)
    matrices = {"qkv 64→128", "output 64→64", "gate+up 64→192", "down 96→64", "head 64→96"}
    assert matrices <= {case.kernel for case in cases}
    down = found["down 96→64", "8 rows"]
    assert down.num_operations == 2 * 8 * 96 * 64
    assert down.num_bytes == 64 * 128 + 64 * 2 * 2  # two groups of 64 inputs, a scale of two bytes for each
    assert ("head 64→96", "16 rows") not in found
    one, two = found["attention, decode", "1 × 40"], found["attention, decode", "2 × 40"]
    assert one.num_bytes == 41 * 2 * 2 * 16 * 4 and two.num_bytes == 2 * one.num_bytes
    assert one.num_operations == 4 * 4 * 16 * 41
    assert found["attention, decode", "2 × 40 shared"].num_bytes == two.num_bytes - one.num_bytes // 41 * 32
    assert {s for k, s in found if k == "norm with residual"} == {"1 row", "8 rows", "16 rows"}
    for case in cases:
        case.run()


@native
@pytest.mark.parametrize("name", ["llama", "qwen3-moe", "gemma3"])
def test_a_whole_report(name: str, tmp_path: Path) -> None:
    assert LIBRARY is not None
    decoder = load_model(open_checkpoint(save(make(FAMILY_MODELS[name]), tmp_path)), CpuDevice(LIBRARY, 1, "int8"))
    probe, notes = Probe(LIBRARY, 1, time.perf_counter, LITTLE), []
    wanted = Wanted(SIZES, context=20, prefill_tokens=24, memory_bytes=1 << 20)
    limits, kernels, steps = measure(decoder, probe, wanted, notes.append)
    assert [step.step for step in steps] == ["decode, 1 × 20", "decode, 2 × 20", "prefill, 24"]
    assert [step.rows for step in steps] == [1, 2, 24]
    assert steps[1].kv_bytes == 2 * 21 * decoder.kv_bytes_per_token()
    assert all(step.of_streaming > 0 and step.of_peak > 0 for step in steps)
    assert all(one.floor_s == limits.floor(one.num_bytes, one.num_operations, one.arithmetic)[0] for one in kernels)
    assert limits.step_bytes == weight_bytes(decoder, 2) + steps[1].kv_bytes
    assert len(notes) == len(kernels) + 4  # the machine three times, and the steps


@native
def test_what_steps_read_and_compute(decoder: Decoder, tmp_path: Path) -> None:
    assert LIBRARY is not None
    layer = 64 * 128 + 64 * 64 + 3 * 64 * 96
    assert matrix_operations(decoder, 10, 2) == 2 * (10 * 4 * layer + 2 * 64 * 96)
    packed = sum(LIBRARY.int8_packed_bytes(*shape) for shape in ((128, 64), (64, 64), (192, 64), (64, 96)))
    norms = 9 * 64 * 4
    assert weight_bytes(decoder, 1) == 4 * packed + LIBRARY.int8_packed_bytes(96, 64) + norms


@native
def test_of_a_mixture_count_the_experts_that_rows_can_choose(tmp_path: Path) -> None:
    assert LIBRARY is not None
    decoder = load_model(open_checkpoint(save(make(FAMILY_MODELS["qwen3-moe"]), tmp_path)), CpuDevice(LIBRARY, 1))
    assert decoder.config.experts is not None and decoder.config.experts.num_experts == 6
    one, two = weight_bytes(decoder, 1), weight_bytes(decoder, 2)
    assert one < two == weight_bytes(decoder, 100)
    sparse = sum(layer.sparse for layer in decoder.config.layers)
    expert = LIBRARY.int8_packed_bytes(64, 64) + LIBRARY.int8_packed_bytes(64, 32)
    assert two - one == sparse * 3 * expert


def test_other_devices_are_measured_too(tmp_path: Path) -> None:
    decoder = load_model(open_checkpoint(save(make(FAMILY_MODELS["llama"]), tmp_path)), ReferenceDevice("fp32"))
    cases = list(kernel_cases(decoder, Sizes(rows=(1,), contexts=(16,), num_sessions=2, working_bytes=50_000)))
    assert all(case.arithmetic == "fp32" for case in cases)
    assert next(case.num_bytes for case in cases if case.kernel.startswith("down")) == 96 * 64 * 4
    for case in cases:
        case.run()


@pytest.mark.parametrize("tiles", [0.0, 5e12])
def test_the_roofline_is_svg_with_every_dot_inside(tiles: float) -> None:
    dots = [kernel(), kernel("attention <x>", 10**9, 1), kernel("gated", 1, 10**9, time_s=1e-9)]
    drawn = roofline(report(*dots, limits=msgspec.structs.replace(LIMITS, int8_tiles=tiles)))
    root = ElementTree.fromstring(drawn)
    places = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in root.iter("{http://www.w3.org/2000/svg}circle")]
    assert len(places) == 3
    assert all(76 <= x <= 610 and 46 <= y <= 466 for x, y in places)
    texts = {t.text or "" for t in root.iter("{http://www.w3.org/2000/svg}text")}
    assert any("a < b & 模型" in text for text in texts) and "● attention <x>" in texts
    assert any(text.startswith("INT8 tiles") for text in texts) == (tiles > 0)
    points = re.findall(r'points="([^"]+)"', drawn)
    assert len(points) == (3 if tiles else 2)
    for x, y in (map(float, pair.split(",")) for line in points for pair in line.split()):
        assert 76 <= x <= 610 and 46 <= y <= 466


def test_a_plot_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        write_roofline(report(kernel()), tmp_path / "absent" / "roof.svg")


@native
def test_the_command_measures_and_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("tenuto.bench.kernels.timing.Effort", lambda *_: LITTLE)
    path = write_runnable(tmp_path / "小模型")
    arguments = ["bench", "kernels", "--quick", "--model", str(path), "--threads", "1"]
    shown = CliRunner().invoke(app, [*arguments, "--context", "64", "--plot", str(tmp_path / "roof.svg")])
    assert shown.exit_code == 0, shown.output
    for text in ("小模型, int8, KV float", "GB/s", "decode, 8 × 64", "× reading", "attention, prefill"):
        assert text in shown.stdout, text
    assert "<svg" in (tmp_path / "roof.svg").read_text(encoding="utf-8")
    too_long = CliRunner().invoke(app, [*arguments, "--context", "2048"])
    assert isinstance(too_long.exception, ConfigError) and "2048" in str(too_long.exception)


@native
def test_what_does_not_fit_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_runnable(tmp_path / "m")
    monkeypatch.setenv("TENUTO_KV_TOKENS", "64")
    monkeypatch.setattr("tenuto.field.available_bytes", lambda: 200_000_000)
    result = CliRunner().invoke(app, ["bench", "kernels", "--quick", "--model", str(path), "--context", "64"])
    assert isinstance(result.exception, NeverFits) and "0.27 GB" in str(result.exception)


def test_the_numbers_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.cli.bench_kernels._measure", lambda *_: report(kernel()))
    told = json.loads(CliRunner().invoke(app, ["bench", "kernels", "--json"]).stdout)
    assert told["model"] == "a < b & 模型" and told["limits"]["read"] == 1e9
    assert told["kernels"][0]["kernel"] == "down 96→64" and told["kernels"][0]["bound"] == "reading"


def test_without_native_kernels_the_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.device.cpu.native_library", lambda: None)
    result = CliRunner().invoke(app, ["bench", "kernels"])
    assert isinstance(result.exception, ConfigError) and "compiler" in str(result.exception)
