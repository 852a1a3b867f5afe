"""The sentence-transformers layout of a model directory: what makes vectors of hidden states.

`modules.json` lists the modules in order: the transformer, a pooling, sometimes a normalisation. Each has a folder
with a config of its own. Source: the sentence-transformers documentation, "Creating custom models".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tenuto.checkpoint.encoders.config import EmbeddingLayout, PoolingName
from tenuto.checkpoint.json_file import read_json
from tenuto.checkpoint.values import Values
from tenuto.errors import ModelFileError, UnsupportedModel

_POOLINGS: dict[str, PoolingName] = {
    "cls": "first",
    "cls_token": "first",
    "mean": "mean",
    "mean_tokens": "mean",
    "lasttoken": "last",
}
_FLAG = "pooling_mode_"
_MAX_PROMPT_CHARS = 10_000


def read_layout(path: Path, config: Mapping[str, Any]) -> EmbeddingLayout:
    """What the files beside config.json say; all defaults if there are none.

    Args:
        config: the content of config.json.

    Raises:
        ModelFileError: a file is corrupt.
        UnsupportedModel: a module that would change the vectors in a way we do not do; names it.
    """
    layout = replace(_prompts(path), sigmoid=_has_sigmoid(path, config))
    layout = replace(layout, **_sentence_settings(path))
    modules = _modules(path)
    if modules:
        layout = replace(layout, normalise=False)
    for kind, folder in modules:
        match kind:
            case "Transformer":
                pass
            case "Pooling":
                layout = replace(layout, pooling=_pooling(path / folder / "config.json"))
            case "Normalize":
                layout = replace(layout, normalise=True)
            case _:
                raise UnsupportedModel(f"{path / 'modules.json'}: module {kind:.80} is not supported")
    return layout


def _modules(path: Path) -> list[tuple[str, str]]:
    """(class name, folder) of each module; the folder is a plain name inside the model's directory."""
    file = path / "modules.json"
    if not file.is_file():
        return []
    try:
        entries = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{file}: not JSON; it is cut short or corrupt") from error
    modules = []
    for entry in entries if isinstance(entries, list) else [None]:
        match entry:
            case {"type": str(kind), "path": str(folder)} if not set(folder) & set("/\\:\0") and folder != "..":
                modules.append((kind.rpartition(".")[2], folder))
            case _:
                raise ModelFileError(f"{file}: expected a list of modules, each with its type and folder")
    return modules


def _pooling(file: Path) -> PoolingName:
    values = Values(file, read_json(file))
    chosen = [key.removeprefix(_FLAG) for key in values.names() if key.startswith(_FLAG) and values.flag(key, False)]
    if (name := values.text("pooling_mode", "")) and not chosen:
        chosen = [name]
    values.only("include_prompt", True)
    if len(chosen) != 1 or chosen[0] not in _POOLINGS:
        values.refuse(f"pooling by {' and '.join(chosen) or 'nothing'} is not supported; by cls, mean or lasttoken is")
    values.finish()
    return _POOLINGS[chosen[0]]


def _sentence_settings(path: Path) -> dict[str, Any]:
    file = path / "sentence_bert_config.json"
    values = Values(file, read_json(file, optional=True))
    most = values.integer("max_seq_length", 0)
    if most < 0 or most >= 2**31:
        raise ModelFileError(f"{file}: max_seq_length is {most}, which no model has")
    return {"max_model_tokens": most or None, "lowercase": values.flag("do_lower_case", False)}


def _prompts(path: Path) -> EmbeddingLayout:
    file = path / "config_sentence_transformers.json"
    values = Values(file, read_json(file, optional=True))
    prompts = values.get("prompts") or {}
    default = values.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise ModelFileError(f"{file}: prompts is no table of texts")
    if any(len(text) > _MAX_PROMPT_CHARS for text in prompts.values()):
        raise ModelFileError(f"{file}: a prompt is longer than {_MAX_PROMPT_CHARS} characters")
    if default is not None and default not in prompts:
        raise ModelFileError(f"{file}: default_prompt_name is {default!r:.80}, which is none of its prompts")
    return EmbeddingLayout(prompts=tuple(prompts.items()), default_prompt=default)


def _has_sigmoid(path: Path, config: Mapping[str, Any]) -> bool:
    """Of a cross-encoder's score, unless its config names the identity."""
    settings = config.get("sentence_transformers")
    named = settings.get("activation_fn") if isinstance(settings, dict) else None
    named = named or config.get("sbert_ce_default_activation_function") or "torch.nn.modules.activation.Sigmoid"
    match str(named).rpartition(".")[2]:
        case "Sigmoid":
            return True
        case "Identity":
            return False
        case other:
            raise UnsupportedModel(f"{path / 'config.json'}: the score's activation {other:.80} is not supported")
