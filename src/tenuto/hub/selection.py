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
_SPLIT = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
_MAX_SHARDS = 1000

ReadIndex = Callable[[RepoFile], bytes]


def needed_files(reference: ModelReference, listing: Listing, read_index: ReadIndex) -> tuple[RepoFile, ...]:
    """The files of the model, small ones first.

    Args:
        read_index: gives the content of the index of a sharded model; called at most once.

    Raises:
        HubError: no such file, several to choose from, or names that lead outside; says what there is.
        UnsupportedModel: only pickled weights, or a GGUF file in parts.
    """
    if reference.file or reference.tag:
        return (_chosen_gguf(reference, listing),)
    if listing.find(_CONFIG) and (listing.find(_SINGLE) or listing.find(INDEX)):
        small = [f for name in (_CONFIG, *_SIDE_FILES) if (f := listing.find(name))]
        return (*small, *_weights(reference, listing, read_index))
    ggufs = _ggufs(listing)
    if len(ggufs) == 1:
        return (_whole(reference, ggufs[0]),)
    if ggufs:
        raise HubError(
            f"{reference} holds several models; choose one, e.g. {_example(reference, ggufs)}: {_named(ggufs)}"
        )
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


def _ggufs(listing: Listing) -> list[RepoFile]:
    """Models only: a projector of pictures is no model of its own."""
    found = [f for f in listing.files if f.path.lower().endswith(".gguf") and "mmproj" not in f.path.lower()]
    return [f for f in found if checked_path(listing.repo, f.path)]


def _chosen_gguf(reference: ModelReference, listing: Listing) -> RepoFile:
    ggufs = _ggufs(listing)
    if reference.file:
        chosen = [f for f in ggufs if f.path == reference.file]
    else:
        tag = re.compile(rf"(?<![a-z0-9]){re.escape(str(reference.tag).lower())}(?![a-z0-9_])")
        chosen = [f for f in ggufs if tag.search(f.path.rpartition("/")[2].lower())]
    if len(chosen) == 1:
        return _whole(reference, chosen[0])
    if chosen and all(_SPLIT.search(f.path) for f in chosen):
        return _whole(reference, chosen[0])  # raises: it is one of many
    what = "holds several such files" if chosen else "holds no such file"
    raise HubError(f"{reference} {what}; GGUF files there: {_named(chosen or ggufs)}")


def _whole(reference: ModelReference, file: RepoFile) -> RepoFile:
    if _SPLIT.search(file.path):
        raise UnsupportedModel(f"{reference}: {file.path} is one part of a split GGUF file; only whole files are read")
    return file


def _named(files: list[RepoFile]) -> str:
    shown = [f"{f.path} ({f.size / 1e9:.2f} GB)" for f in files[:20]]
    return ", ".join(shown) + (f" and {len(files) - 20} more" if len(files) > 20 else "") or "none"


def _example(reference: ModelReference, ggufs: list[RepoFile]) -> str:
    return f"`{reference.hub}:{reference.repo}/{ggufs[0].path}`"
