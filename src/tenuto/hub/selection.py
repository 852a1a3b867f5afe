"""Which files of a repository a model needs: never pickles, never a second copy of the weights."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from tenuto.errors import HubError, UnsupportedModel
from tenuto.hub.listing import Listing, RepoFile, checked_path
from tenuto.hub.reference import ModelReference

INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_CONFIG = "config.json"
# Read where they exist; everything else in a repository (code, other formats, pictures) stays there.
_SIDE_FILES = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "quantize_config.json",
    "quant_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
)
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_SPLIT = re.compile(r"-[0-9]{5}-of-[0-9]{5}(?=\.gguf$)", re.IGNORECASE)
_MAX_SHARDS = 1000

ReadIndex = Callable[[RepoFile], bytes]


def needed_files(reference: ModelReference, listing: Listing, read_index: ReadIndex) -> tuple[RepoFile, ...]:
    """The files of the model, small ones first.

    Args:
        read_index: gives the content of the index of a sharded model; called at most once.

    Raises:
        HubError: no such file, several to choose from, or names that lead outside; says what there is.
        UnsupportedModel: only pickled weights.
    """
    if reference.file or reference.tag:
        return _chosen_gguf(reference, listing)
    if listing.find(_CONFIG) and (listing.find(_SINGLE) or listing.find(INDEX)):
        small = [f for name in (_CONFIG, *_SIDE_FILES) if (f := listing.find(name))]
        return (*small, *_weights(reference, listing, read_index))
    models = _ggufs(listing)
    if len(models) == 1:
        return models[0]
    if models:
        example = f"{reference.hub}:{reference.repo}/{models[0][0].path}"
        raise HubError(f"{reference} holds several models; choose one, e.g. `{example}`: {_named(models)}")
    if any(f.path.endswith(_PICKLES) for f in listing.files):
        raise UnsupportedModel(
            f"{reference} holds only pickled weights, which can run code and are never fetched; "
            "look for a repository with safetensors or GGUF files"
        )
    raise HubError(f"{reference} holds no model: neither {_CONFIG} with {_SINGLE} or its shards, nor a GGUF file")


def _weights(reference: ModelReference, listing: Listing, read_index: ReadIndex) -> list[RepoFile]:
    if single := listing.find(_SINGLE):
        return [single]
    index = listing.find(INDEX)
    assert index is not None
    try:
        names = json.loads(read_index(index))["weight_map"].values()
        shards = list(dict.fromkeys(str(name) for name in names))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise HubError(f"{reference}: {INDEX} is not an index of shards; the repository is broken") from error
    if not 0 < len(shards) <= _MAX_SHARDS:
        raise HubError(f"{reference}: {INDEX} names {len(shards)} shards, which no model has")
    found = []
    for name in shards:
        if not name.endswith(".safetensors"):
            raise HubError(f"{reference}: {INDEX} names the shard {name!r:.80}, which is not a safetensors file")
        shard = listing.find(checked_path(reference.repo, name))
        if shard is None:
            raise HubError(f"{reference}: shard {name}, which {INDEX} names, is not in the repository")
        found.append(shard)
    return [index, *found]


def _ggufs(listing: Listing) -> list[tuple[RepoFile, ...]]:
    """Models, each with all its parts in order; a projector of pictures is no model of its own."""
    found: dict[str, list[RepoFile]] = {}
    for file in listing.files:
        if file.path.lower().endswith(".gguf") and "mmproj" not in file.path.lower():
            found.setdefault(_SPLIT.sub("", checked_path(listing.repo, file.path)), []).append(file)
    return [tuple(sorted(parts, key=lambda f: f.path)) for parts in found.values()]


def _chosen_gguf(reference: ModelReference, listing: Listing) -> tuple[RepoFile, ...]:
    models = _ggufs(listing)
    if reference.file:
        chosen = [parts for parts in models if any(f.path == reference.file for f in parts)]
    else:
        tag = re.compile(rf"(?<![a-z0-9]){re.escape(str(reference.tag).lower())}(?![a-z0-9_])")
        chosen = [parts for parts in models if tag.search(parts[0].path.rpartition("/")[2].lower())]
    if len(chosen) == 1:
        return chosen[0]
    what = "holds several such files" if chosen else "holds no such file"
    raise HubError(f"{reference} {what}; GGUF files there: {_named(chosen or models)}")


def _named(models: list[tuple[RepoFile, ...]]) -> str:
    shown = [f"{parts[0].path} ({sum(f.size for f in parts) / 1e9:.2f} GB)" for parts in models[:20]]
    return ", ".join(shown) + (f" and {len(models) - 20} more" if len(models) > 20 else "") or "none"
