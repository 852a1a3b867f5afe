"""A vocabulary from the tokenizer.json of a Hugging Face directory."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import tokenizers

from tenuto.checkpoint.json_file import MAX_TOKENIZER_BYTES, read_json
from tenuto.errors import ModelFileError, UnsupportedModel
from tenuto.text.cuts import BetweenStrangers
from tenuto.text.json_parts import check_parts, cut_rule, decoding, prefix_rule, without_prefix
from tenuto.text.library_tokenizer import LibraryTokenizer, library_errors
from tenuto.text.vocabulary import IMPOSSIBLE, MAX_TOKENS, Vocabulary, is_markup

_MAX_TOKEN_CHARS = 4096

Data = dict[str, Any]
Added = list[Data]


def from_json(path: Path, vocab_size: int | None) -> Vocabulary:
    """BPE (byte-level, or of SentencePiece's kind with byte fallback), Unigram or WordPiece.

    Args:
        vocab_size: the model's. Added tokens beyond it, which some files have for other models, are left out.

    Raises:
        UnsupportedModel: another kind of model, or a part that we do not know; names it.
        ModelFileError: the file cannot be read.
    """
    data = read_json(path, max_bytes=MAX_TOKENIZER_BYTES)
    with library_errors(str(path)):
        if not isinstance(data.get("model"), dict):
            raise ModelFileError("not a tokenizer we can read: it has no model")
        return _vocabulary(path, data, vocab_size)


def _vocabulary(path: Path, data: Data, vocab_size: int | None) -> Vocabulary:
    ordinary = _ordinary(data)
    added = _added(data, ordinary, vocab_size)
    check_parts(data)
    to_bytes, strips_space = decoding(data)
    control = {t["content"]: t["id"] for t in added if t["special"] or is_markup(t["content"])}
    texts = {t["id"]: t["content"] for t in added}
    by_id = {i: t for t, i in ordinary.items()}
    byte_level = to_bytes("\u0120") == b" "

    def bytes_at(i: int) -> bytes:
        if i in texts and (byte_level or texts[i] in control):
            return str(texts[i]).encode("utf-8")
        return to_bytes(texts.get(i) or by_id.get(i, ""))

    return Vocabulary(
        library=_library(path, data, ordinary, added, control),
        token_bytes=tuple(map(bytes_at, range(max((*texts, *by_id), default=-1) + 1))),
        control=control,
        special=frozenset(t["id"] for t in added if t["special"]),
        prefix=prefix_rule(data),
        strips_space=strips_space,
        strip_left=frozenset(t["content"] for t in added if t.get("lstrip") and t["content"] in control),
        strip_right=frozenset(t["content"] for t in added if t.get("rstrip") and t["content"] in control),
    )


def _kind(data: Data) -> str:
    # The oldest files do not name the kind of a BPE model.
    return str(data["model"].get("type") or ("BPE" if "merges" in data["model"] else "unknown"))


def _ordinary(data: Data) -> dict[str, int]:
    """The model's own tokens and their ids."""
    model, kind = data["model"], _kind(data)
    if kind not in ("BPE", "Unigram", "WordPiece"):
        raise UnsupportedModel(f"tokenizer model {kind!r:.40} is not supported; BPE, Unigram and WordPiece are")
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if kind == "BPE" and model.get(key):
            raise UnsupportedModel(f"tokenizer model BPE with {key} is not supported")
    vocab = model["vocab"]
    found = {t: i for i, (t, _) in enumerate(vocab)} if kind == "Unigram" else vocab
    if not isinstance(found, dict) or len(found) != len(vocab):
        raise ModelFileError("the vocabulary is not a mapping of tokens to ids, or lists a token twice")
    _check_ids(found.items())
    return found


def _check_ids(tokens: Collection[tuple[Any, Any]]) -> None:
    for token, i in tokens:
        if not isinstance(token, str) or type(i) is not int or not 0 <= i < MAX_TOKENS:
            raise ModelFileError(f"token {token!r:.80} has id {i!r:.40}; ids go from 0 to {MAX_TOKENS}")
        if len(token) > _MAX_TOKEN_CHARS:
            raise ModelFileError(f"token {token!r:.40} has {len(token)} characters")
    if len({i for _, i in tokens}) != len(tokens):
        raise ModelFileError("two tokens have the same id")


def _added(data: Data, ordinary: Mapping[str, int], vocab_size: int | None) -> Added:
    added = [t for t in data.get("added_tokens") or [] if t["content"]]
    limit = MAX_TOKENS if vocab_size is None else vocab_size
    added = [t for t in added if t["content"] in ordinary or type(t["id"]) is not int or t["id"] < limit]
    _check_ids([(t["content"], t["id"]) for t in added])
    moved = next((t for t in added if ordinary.get(t["content"], t["id"]) != t["id"]), None)
    if moved is not None:
        raise ModelFileError(f"token {moved['content']!r:.80} has two ids")
    return added


def _library(
    path: Path, data: Data, ordinary: Mapping[str, int], added: Added, control: Mapping[str, int]
) -> LibraryTokenizer:
    """The library's tokenizer of the same file without control tokens, and without prefix where there is one."""
    spelling = [t for t in added if t["content"] not in control]
    model = _model_without(data, ordinary, spelling, control)
    plain = {
        **data,
        "model": model,
        "added_tokens": spelling,
        **dict.fromkeys(("post_processor", "truncation", "padding", "decoder")),
    }
    prefixed = _build(plain)
    bare = _build(without_prefix(plain)) if prefix_rule(data) != "never" else prefixed
    if _kind(data) != "BPE" and _lets_spaces_through(bare):
        raise UnsupportedModel(f"tokenizer model {_kind(data)} that sees spaces is not supported")

    def tokens() -> Collection[str]:
        return [t for t in (*ordinary, *(s["content"].replace(" ", "▁") for s in spelling)) if t not in control]

    strangers = BetweenStrangers(tokens, "▁")
    return LibraryTokenizer(bare, prefixed, where=str(path), can_cut=cut_rule(data, strangers, spelling))


def _build(data: Data) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(json.dumps(data))


def _model_without(
    data: Data, ordinary: Mapping[str, int], spelling: Added, control: Mapping[str, int]
) -> dict[str, Any]:
    """The model without its control tokens; the others keep their ids."""
    model, kind = dict(data["model"]), _kind(data)
    if kind == "Unigram":
        model["vocab"] = [[IMPOSSIBLE + str(i) if t in control else t, s] for i, (t, s) in enumerate(model["vocab"])]
        # The library numbers added tokens anew unless the model's vocabulary has them too.
        ids = {t["id"]: t["content"] for t in spelling if t["content"] not in ordinary}
        lowest = min((s for _, s in model["vocab"]), default=0.0)
        for i in range(len(model["vocab"]), max(ids, default=-1) + 1):
            model["vocab"].append([ids.get(i, IMPOSSIBLE + str(i)), lowest])
        return model
    kept = {**ordinary, **{t["content"]: t["id"] for t in spelling}}
    model["vocab"] = {t: i for t, i in kept.items() if t not in control}
    unknown = model.get("unk_token")
    if isinstance(unknown, str) and unknown in control:
        model["unk_token"] = IMPOSSIBLE
        model["vocab"][IMPOSSIBLE] = control[unknown]
    if kind == "BPE":
        pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        if any(not {a, b, a + b} <= ordinary.keys() for a, b in pairs):
            raise ModelFileError("a merge names tokens that the vocabulary lacks")
        names = model["vocab"].keys()
        model["merges"] = [[a, b] for a, b in pairs if a in names and b in names and a + b in names]
        model["dropout"] = None  # a training aid: encoding must not be random
    return model


def _lets_spaces_through(tokenizer: tokenizers.Tokenizer) -> bool:
    """Whether a space reaches the model as such, so that text could spell the stand-in of a control token."""
    probe = f"a{IMPOSSIBLE}5 b"
    text = tokenizer.normalizer.normalize_str(probe) if tokenizer.normalizer is not None else probe
    if tokenizer.pre_tokenizer is None:
        return " " in text
    return any(" " in piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text))
