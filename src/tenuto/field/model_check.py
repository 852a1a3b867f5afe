"""Whether a model will run here, in which precisions and how much memory: found without reading weights."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import msgspec

from tenuto.checkpoint import Checkpoint, TokenizerFiles, open_checkpoint
from tenuto.checkpoint.encoders import is_encoder, open_encoder
from tenuto.checkpoint.json_file import read_json
from tenuto.clock import Clock
from tenuto.device.protocol import INTEGERS, KVType, Precision
from tenuto.errors import ModelFileError, TemplateError
from tenuto.field.fit import Room, decoder_fit, encoder_fit, needed
from tenuto.field.report import ModelReport, TensorType
from tenuto.field.stages import Stages, directory_problems, problems_of
from tenuto.model.load import expected_shapes
from tenuto.model.load_encoder import expected_encoder_shapes
from tenuto.protocol.messages import Message, ToolSpec
from tenuto.text.template import ChatTemplate
from tenuto.text.tokenizer import Tokenizer

_KV_TYPES: dict[Precision, tuple[KVType, ...]] = {precision: ("float", "int8") for precision in INTEGERS}
_TIGHT = 0.9  # of free memory; beyond it other programs and the batch at hand have little left
_TEMPLATES = {
    "model": "the model's own, with tools too",
    "chatml": "the model's own; with tools Tenuto's own",
    "text": "the model's own; tools are written into it as text",
}
_TOOL = ToolSpec(name="t", description="", parameters={"type": "object", "properties": {}})


class _Stored(Protocol):
    """What decoders' and encoders' checkpoints have in common."""

    @property
    def name(self) -> str: ...

    def tensor_names(self) -> list[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What a model is checked against."""

    kv_tokens: int  # size of the KV pool
    available_bytes: int | None  # free memory; None: not known
    clock: Clock
    precisions: tuple[Precision, ...] = ("fp32", "bf16")

    @property
    def room(self) -> Room:
        return Room(kv_tokens=self.kv_tokens, available_bytes=self.available_bytes)


@dataclass
class _Findings:
    """Grows as the check goes on."""

    values: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check_model(path: Path, conditions: Conditions) -> ModelReport:
    """Say everything that can be known of a model from its headers. Never raises for a broken model."""
    found = _Findings()
    is_folder = path.is_dir()
    files = [p for p in path.iterdir() if p.is_file()] if is_folder else _parts(path)
    found.values |= {
        "file_bytes": sum(p.stat().st_size for p in files),
        "format": "safetensors" if is_folder else "GGUF",
    }
    folder = path if is_folder else path.parent
    try:
        if is_encoder(path):
            _check_encoder(path, conditions, found)
        else:
            _check_decoder(path, conditions, found)
    except ModelFileError as error:
        named = directory_problems(path) if is_folder and not _safe_is_encoder(path) else []
        found.problems += named or problems_of(error, folder)
    name = found.values.pop("name", path.stem if path.suffix == ".gguf" else path.name)
    report = ModelReport(
        name=name,
        path=str(path),
        kv_tokens=conditions.kv_tokens,
        available_bytes=conditions.available_bytes,
        **found.values,
    )
    problems = [*found.problems, *_memory_problems(report, conditions.room)]
    notes = [*found.notes, *_memory_notes(report)]
    return msgspec.structs.replace(report, runs=not problems, problems=tuple(problems), notes=tuple(notes))


def _parts(path: Path) -> list[Path]:
    """A GGUF file, and those it belongs to if it is split."""
    part = re.fullmatch(r"(.+)-[0-9]{5}(-of-[0-9]{5}\.gguf)", path.name)
    others = [] if part is None else [p for p in path.parent.iterdir() if _is_part(p.name, part[1], part[2])]
    return others or ([path] if path.is_file() else [])


def _is_part(name: str, stem: str, end: str) -> bool:
    return re.fullmatch(rf"{re.escape(stem)}-[0-9]{{5}}{re.escape(end)}", name) is not None


def _safe_is_encoder(path: Path) -> bool:
    try:
        return is_encoder(path)
    except ModelFileError:
        return False


def _check_decoder(path: Path, conditions: Conditions, found: _Findings) -> None:
    checkpoint = open_checkpoint(path)
    config = checkpoint.config
    shapes = expected_shapes(config)
    _describe(checkpoint, shapes, found)
    found.values |= {"family": config.family, "max_model_tokens": config.max_model_tokens}
    if len(checkpoint.tensor_names()) * 2 >= len(shapes):  # a config that promises far more is wrong, not large
        found.values["precisions"] = tuple(
            decoder_fit(checkpoint, shapes, precision, replace(conditions.room, kv_type=kv_type))
            for precision in conditions.precisions
            for kv_type in _KV_TYPES.get(precision, ("float",))
        )
    _check_text(checkpoint, path if path.is_dir() else path.parent, conditions.clock, found)


def _check_encoder(path: Path, conditions: Conditions, found: _Findings) -> None:
    checkpoint = open_encoder(path)
    config = checkpoint.config
    shapes = expected_encoder_shapes(config)
    _describe(checkpoint, shapes, found)
    found.values |= {"family": config.family, "max_model_tokens": config.max_model_tokens, "use": "embedding"}
    found.values["precisions"] = tuple(
        encoder_fit(path, config, precision, conditions.room) for precision in conditions.precisions
    )
    stages = Stages(path)
    stages.attempt(lambda: Tokenizer.from_files(checkpoint.tokenizer, config.vocab_size))
    found.values["tokenizer"] = _tokenizer_kind(checkpoint.tokenizer)
    found.problems += stages.problems


def _describe(checkpoint: _Stored, expected: Mapping[str, tuple[int, ...]], found: _Findings) -> None:
    """Name, parameters, how tensors are stored, and which of them are missing, left over or of another shape."""
    stored = {name: checkpoint.shape(name) for name in checkpoint.tensor_names()}
    found.values["name"] = checkpoint.name
    found.values["num_parameters"] = sum(_product(shape) for shape in stored.values())
    found.values["tensor_types"] = _tensor_types(checkpoint)
    missing, unexpected = expected.keys() - stored.keys(), stored.keys() - expected.keys()
    found.problems += [f"tensors are missing: {name}" for name in in_ranges(missing)]
    found.problems += [f"tensors do not belong to the model: {name}" for name in in_ranges(unexpected)]
    found.problems += [
        f"tensor {name} has shape {list(stored[name])}, the config asks for {list(shape)}"
        for name, shape in expected.items()
        if name in stored and stored[name] != shape
    ]


def _tensor_types(checkpoint: Any) -> tuple[TensorType, ...]:
    counts: dict[str, list[int]] = defaultdict(list)
    for name in checkpoint.tensor_names():
        counts[checkpoint.stored_type(name)].append(checkpoint.stored_bytes(name))
    found = [TensorType(name, len(sizes), sum(sizes)) for name, sizes in counts.items()]
    return tuple(sorted(found, key=lambda t: -t.num_bytes))


def _check_text(checkpoint: Checkpoint, folder: Path, clock: Clock, found: _Findings) -> None:
    files = checkpoint.tokenizer
    found.values["tokenizer"] = _tokenizer_kind(files)
    try:
        tokenizer = Tokenizer.from_files(files, checkpoint.config.vocab_size)
    except ModelFileError as error:
        found.problems += problems_of(error, folder)
        return
    if not tokenizer.eos_ids:
        found.notes.append(
            "no end-of-turn token is named: answers end only at their limit, and tools and grammars are refused"
        )
    try:
        template = ChatTemplate(files.chat_template, tokenizer, clock)
        for tools in ((), (_TOOL,)):
            prompt = template.render([Message(role="user", content="?")], tools, add_generation_prompt=True)
            num_tokens = len(tokenizer.encode(prompt))
            if not num_tokens:
                raise TemplateError("the chat template renders a conversation to nothing")
            if not tools and num_tokens >= (limit := checkpoint.config.max_model_tokens):
                found.problems.append(
                    f"context: it holds {limit} tokens, but a question of one letter needs {num_tokens}"
                )
    except TemplateError as error:
        found.problems.append(f"chat template: {error}")
        return
    found.values["chat_template"] = (
        "none in the files: Tenuto's own is used" if files.chat_template is None else _TEMPLATES[template.tools_through]
    )


def _tokenizer_kind(files: TokenizerFiles) -> str:
    if files.json_path is not None:
        try:
            model = read_json(files.json_path).get("model")
        except ModelFileError:
            return "tokenizer.json"
        return f"{model.get('type')} (tokenizer.json)" if isinstance(model, dict) else "tokenizer.json"
    if files.gguf is not None:
        return f"{files.gguf.kind}, split as {files.gguf.pre!r:.40} (GGUF)"
    return "SentencePiece (tokenizer.model)"


def _memory_problems(report: ModelReport, room: Room) -> list[str]:
    if not report.precisions or any(fit.fits is not False for fit in report.precisions):
        return []
    problems = [f"{fit.name}: {fit.problem}" for fit in report.precisions if fit.problem]
    able = [fit for fit in report.precisions if not fit.problem]
    if not able or room.available_bytes is None:
        return problems
    least = min(able, key=lambda fit: fit.total_bytes)
    return [*problems, f"memory: {needed(least, room)}; a smaller kv_tokens takes less KV"]


def _memory_notes(report: ModelReport) -> list[str]:
    available = report.available_bytes
    cannot = [f"{fit.name} is not possible: {fit.problem}" for fit in report.precisions if fit.problem]
    if available is None:
        return [*cannot, "free memory is not known on this system"]
    tight = [f.name for f in report.precisions if f.fits and f.total_bytes > _TIGHT * available]
    return [*cannot, *(f"{precision} leaves less than a tenth of the free memory" for precision in tight)]


def _product(shape: Iterable[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def in_ranges(names: Iterable[str]) -> list[str]:
    """Names that differ only in their first number, together: `layers.0-3,7.mlp.up.weight`."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for name in names:
        found = re.search(r"(?<=\.)\d+(?=\.)", name)
        pattern = name if found is None else f"{name[: found.start()]}\0{name[found.end() :]}"
        numbers[pattern].append(int(found[0]) if found else 0)
    return sorted(pattern.replace("\0", _ranges(sorted(given))) for pattern, given in numbers.items())


def _ranges(numbers: list[int]) -> str:
    runs: list[tuple[int, int]] = []
    for n in numbers:
        runs = [*runs[:-1], (runs[-1][0], n)] if runs and n == runs[-1][1] + 1 else [*runs, (n, n)]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
