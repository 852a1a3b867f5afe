"""A model in a Hugging Face directory: config.json, safetensors, tokenizer.json or tokenizer.model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from tenuto.checkpoint.blocks import Floats
from tenuto.checkpoint.encoders.names import ENCODER_FAMILIES
from tenuto.checkpoint.families import FAMILIES, Family
from tenuto.checkpoint.hf_config import read_config, text_settings
from tenuto.checkpoint.hf_shards import stored_tensors
from tenuto.checkpoint.hf_tokenizer import read_tokenizer
from tenuto.checkpoint.json_file import MAX_TOKENIZER_BYTES, read_file, read_json
from tenuto.checkpoint.quant_types import STORED_TYPES
from tenuto.checkpoint.quantised import gather, read_scheme
from tenuto.checkpoint.stand_ins import require_config
from tenuto.checkpoint.stored_model import StoredModel, Transformed, some
from tenuto.checkpoint.weight_file import StoredTensor, TensorSource
from tenuto.errors import ModelFileError, UnsupportedModel


class HFCheckpoint(StoredModel):
    """Opened and checked directory; see the `Checkpoint` protocol."""

    def __init__(self, path: Path) -> None:
        require_config(path)
        config = read_json(path / "config.json")
        generation = read_json(path / "generation_config.json", optional=True)
        tokenizer_config = read_json(path / "tokenizer_config.json", optional=True)
        family = _family(path, config.get("model_type"))
        scheme = read_scheme(path, text_settings(config))
        headers, tensors = stored_tensors(path)
        stored = {tensor.name: tensor for tensor in tensors if not family.ignores_hf(tensor.name)}
        found = _by_neutral_name(path, family, stored if scheme is None else gather(scheme, stored.values()))
        base = read_config(path / "config.json", family, config, has_head="lm_head.weight" in found)
        self.config, self.tokenizer = read_tokenizer(path, base, config, generation, tokenizer_config)
        super().__init__(path, path.resolve().name, _with_norms(family, found))
        tokenizer = "tokenizer.model" if self.tokenizer.json_path is None else "tokenizer.json"
        names = ("config.json", tokenizer, "tokenizer_config.json")
        texts = (read_file(path / name, MAX_TOKENIZER_BYTES) for name in names if (path / name).exists())
        self.fingerprint = self.fingerprint_with([*headers, *texts])


def _family(path: Path, model_type: object) -> Family:
    for family in FAMILIES:
        if model_type in family.hf_model_types:
            return family
    if any(model_type in family.hf_model_types for family in ENCODER_FAMILIES):
        raise UnsupportedModel(
            f"{path / 'config.json'}: {model_type!r} is an encoder, which generates nothing; "
            "`tenuto embed` and `tenuto rerank` take it"
        )
    known = ", ".join(name for family in FAMILIES for name in family.hf_model_types)
    raise UnsupportedModel(f"{path / 'config.json'}: model_type is {model_type!r:.80}; supported: {known}")


def _by_neutral_name(path: Path, family: Family, sources: Mapping[str, TensorSource]) -> dict[str, TensorSource]:
    found: dict[str, TensorSource] = {}
    strange: list[str] = []
    for name, source in sources.items():
        neutral = family.neutral_hf(name)
        if neutral is None:
            strange.append(f"tensor {name:.80} is not part of a {family.name} model")
        elif isinstance(source, StoredTensor) and source.type_name not in STORED_TYPES:
            strange.append(f"tensor {name:.80} has type {source.type_name}, which is not read as a weight")
        elif neutral in found:
            raise ModelFileError(f"{path}: tensor {name:.80} is stored twice")
        else:
            found[neutral] = source
    if strange:
        raise UnsupportedModel.of(path, some(strange))
    return found


def _with_norms(family: Family, sources: Mapping[str, TensorSource]) -> Mapping[str, TensorSource]:
    """The same, with norm weights as they multiply."""
    if not family.hf_norm_offset:
        return sources
    undo = partial(_plus, offset=family.hf_norm_offset)
    return {name: Transformed(s, undo) if name.endswith("norm.weight") else s for name, s in sources.items()}


def _plus(values: Floats, offset: float) -> Floats:
    values += np.float32(offset)
    return values
