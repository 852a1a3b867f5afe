"""Everything that is wrong with a model's files: each stage of opening them on its own, so that none hides another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tenuto.checkpoint.families import FAMILIES, Family
from tenuto.checkpoint.hf_config import read_config, text_settings
from tenuto.checkpoint.hf_shards import stored_tensors
from tenuto.checkpoint.hf_tokenizer import read_tokenizer
from tenuto.checkpoint.json_file import read_json
from tenuto.checkpoint.quantised import read_scheme
from tenuto.checkpoint.safetensors_format import read_table
from tenuto.checkpoint.stand_ins import require_config
from tenuto.errors import ModelFileError

T = TypeVar("T")
_INDEX = "model.safetensors.index.json"
_HEAD = "lm_head.weight"


def problems_of(error: ModelFileError, folder: Path) -> list[str]:
    """What an error names, with paths relative to the model's folder."""
    return [problem.replace(f"{folder}/", "").removeprefix(f"{folder}: ") for problem in error.problems]


class Stages:
    """Runs steps that may fail, and remembers what they say."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.problems: list[str] = []

    def attempt(self, step: Callable[[], T]) -> T | None:
        try:
            return step()
        except ModelFileError as error:
            self.add(*problems_of(error, self._folder))
            return None

    def add(self, *problems: str) -> None:
        self.problems += [p for p in problems if p not in self.problems]


def directory_problems(path: Path) -> list[str]:
    """All problems of a Hugging Face directory with a decoder in it."""
    stages = Stages(path)
    stages.attempt(lambda: require_config(path))
    if stages.problems:
        return stages.problems
    config = stages.attempt(lambda: read_json(path / "config.json"))
    generation = stages.attempt(lambda: read_json(path / "generation_config.json", optional=True)) or {}
    tokenizer_config = stages.attempt(lambda: read_json(path / "tokenizer_config.json", optional=True)) or {}
    names = _tensor_names(path, stages)
    base = None
    if config is not None:
        stages.attempt(lambda: read_scheme(path, text_settings(config)))
        family = _family(config, stages)
        if family is not None:
            has_head = _HEAD in names
            base = stages.attempt(lambda: read_config(path / "config.json", family, config, has_head=has_head))
    if base is not None and config is not None:
        stages.attempt(lambda: read_tokenizer(path, base, config, generation, tokenizer_config))
    elif not (path / "tokenizer.json").exists() and not (path / "tokenizer.model").exists():
        stages.add("neither tokenizer.json nor tokenizer.model is there")
    elif (path / "tokenizer.json").exists():
        stages.attempt(lambda: read_json(path / "tokenizer.json"))
    return stages.problems


def _family(config: Mapping[str, Any], stages: Stages) -> Family | None:
    model_type = config.get("model_type")
    for family in FAMILIES:
        if model_type in family.hf_model_types:
            return family
    known = ", ".join(name for family in FAMILIES for name in family.hf_model_types)
    stages.add(f"config.json: model_type is {model_type!r:.80}; supported: {known}")
    return None


def _tensor_names(path: Path, stages: Stages) -> set[str]:
    """Names of the weights; of a sharded model those the index promises, so that a missing shard is one problem."""
    where: Mapping[str, Any] | None = None
    if (path / _INDEX).exists() and not (path / "model.safetensors").exists():
        index = stages.attempt(lambda: read_json(path / _INDEX))
        where = index.get("weight_map") if index else None
    if isinstance(where, dict) and where:
        num_before = len(stages.problems)
        for shard in _plain(where.values()):
            stages.attempt(lambda name=shard: read_table(path / name))  # type: ignore[misc]
        if len(stages.problems) == num_before:
            stages.attempt(lambda: stored_tensors(path))
        return set(map(str, where))
    found = stages.attempt(lambda: stored_tensors(path))
    return {tensor.name for tensor in found[1]} if found else set()


def _plain(shards: Iterable[object]) -> list[str]:
    """Names without a path in them: others are a problem that `stored_tensors` names."""
    plain = [s for s in shards if isinstance(s, str) and s.endswith(".safetensors") and not set(s) & set("/\\:\0")]
    return list(dict.fromkeys(plain))
