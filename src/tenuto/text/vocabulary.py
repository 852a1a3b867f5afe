"""A vocabulary as the tokenizer needs it: two encoders and the bytes of every token.

One encoder reads added tokens such as `<|im_end|>` as such; the other, `plain`, does not even contain those that have
a meaning to the model, so that no text whatever can produce them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, models

from tenuto.checkpoint import GGUFTokenizer
from tenuto.errors import ModelFileError, UnsupportedModel
from tenuto.text.pretokenizers import splitting

_CONTROL, _USER_DEFINED = 3, 4
_SURROGATES = re.compile("[\ud800-\udfff]")

Encoder = Callable[[str], list[int]]


@dataclass(frozen=True)
class Vocabulary:
    encode_plain: Encoder  # control-token strings are plain text
    encode_control: Encoder  # control-token strings become their ids
    token_bytes: tuple[bytes, ...] = field(repr=False)  # by id, of control tokens too
    control: dict[str, int] = field(repr=False)  # strings that mean something to the model, and their ids
    special: frozenset[int] = field(repr=False)  # of these, the ones flagged as special: not text for users
    strip_left: frozenset[str] = frozenset()  # control strings that swallow white space before them
    strip_right: frozenset[str] = frozenset()


def _is_markup(text: str) -> bool:
    """Whether an added token that is not flagged as special nevertheless means structure, as `<tool_call>` does.

    Others, such as runs of spaces, are only spelling and stay readable in content.
    """
    return len(text) > 2 and (text[0], text[-1]) in {("<", ">"), ("[", "]")} and not text.isspace()


def _byte_of_character() -> dict[str, int]:
    """GPT-2's table of printable stand-ins for the 256 bytes (Radford et al. 2019): printable Latin-1 stands for
    itself, the rest follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in set(printable)]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


_BYTES = _byte_of_character()


def _bytes_of(token: str) -> bytes:
    """The bytes that a token of a byte-level vocabulary stands for."""
    if all(c in _BYTES for c in token):
        return bytes(_BYTES[c] for c in token)
    return token.encode("utf-8")  # an unused filler: nothing encodes to it


def _encoder(tokenizer: tokenizers.Tokenizer) -> Encoder:
    def encode(text: str) -> list[int]:
        # A lone surrogate, which JSON can carry into a str, has no bytes that a vocabulary could spell.
        text = _SURROGATES.sub("\ufffd", text)
        # A batch of one: unlike `encode`, it lets other threads run meanwhile.
        return list(tokenizer.encode_batch([text], add_special_tokens=False)[0].ids)

    return encode


def from_gguf(files: GGUFTokenizer) -> Vocabulary:
    """Byte-level BPE from a GGUF file's metadata.

    Raises:
        UnsupportedModel: another kind of tokenizer, or an unknown pre-tokenizer.
        ModelFileError: the lists do not fit each other.
    """
    if files.kind != "gpt2":
        raise UnsupportedModel(f"tokenizer kind {files.kind!r} is not supported; only 'gpt2' (byte-level BPE) is")
    if len(files.token_types) != len(files.tokens):
        raise ModelFileError(f"the tokenizer has {len(files.tokens)} tokens, but {len(files.token_types)} token types")
    if len(set(files.tokens)) != len(files.tokens):
        raise ModelFileError("the tokenizer lists the same token twice")
    how = splitting(files.pre)
    typed = list(zip(range(len(files.tokens)), files.tokens, files.token_types, strict=True))
    control = {t: i for i, t, kind in typed if kind == _CONTROL or (kind == _USER_DEFINED and _is_markup(t))}
    spelling = [t for _, t, kind in typed if kind == _USER_DEFINED and t not in control]
    merges = [tuple(merge.split(" ")) for merge in files.merges]
    if any(len(merge) != 2 for merge in merges):
        raise ModelFileError("a merge of the tokenizer is not a pair of tokens")

    def build(with_control: bool) -> tokenizers.Tokenizer:
        left_out = {} if with_control else control
        vocabulary = {t: i for i, t, _ in typed if t not in left_out}
        kept = [(a, b) for a, b in merges if a in vocabulary and b in vocabulary and a + b in vocabulary]
        if with_control and len(kept) != len(merges):
            raise ModelFileError("a merge of the tokenizer names tokens that its vocabulary lacks")
        built = tokenizers.Tokenizer(models.BPE(vocabulary, kept, ignore_merges=how.ignore_merges))
        built.pre_tokenizer = how.pre_tokenizer()
        normalizer = how.normalizer()
        if normalizer is not None:
            built.normalizer = normalizer
        built.add_tokens([AddedToken(t, normalized=False) for t in spelling])
        if with_control:
            built.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in control])
        return built

    added = {*control, *spelling}
    return Vocabulary(
        encode_plain=_encoder(build(with_control=False)),
        encode_control=_encoder(build(with_control=True)),
        token_bytes=tuple(t.encode("utf-8") if t in added else _bytes_of(t) for t in files.tokens),
        control=control,
        special=frozenset(i for i, _, kind in typed if kind == _CONTROL),
    )


def _without_control(data: dict[str, Any], control: dict[str, int]) -> dict[str, Any]:
    """The same tokenizer.json, without the control tokens."""
    model = dict(data["model"])
    # The library numbers added tokens anew unless the model's vocabulary has them too.
    kept = {**model["vocab"], **{t["content"]: t["id"] for t in data["added_tokens"]}}
    model["vocab"] = {t: i for t, i in kept.items() if t not in control}
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    model["merges"] = [[a, b] for a, b in pairs if {a, b, a + b} <= model["vocab"].keys()]
    added = [t for t in data["added_tokens"] if t["content"] not in control]
    return {**data, "model": model, "added_tokens": added, "post_processor": None}


def from_json(path: Path) -> Vocabulary:
    """Byte-level BPE from a tokenizer.json.

    Raises:
        UnsupportedModel: not byte-level BPE.
        ModelFileError: the file cannot be read.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        whole = tokenizers.Tokenizer.from_str(json.dumps(data))
        kind, byte_level = data["model"]["type"], "ByteLevel" in json.dumps(data.get("decoder"))
        added = data.setdefault("added_tokens", [])
    except Exception as error:
        raise ModelFileError(f"{path} is not a tokenizer we can read: {error}") from error
    if kind != "BPE" or not byte_level:
        raise UnsupportedModel(f"{path}: tokenizer model {kind} is not supported; only byte-level BPE is")
    control = {t["content"]: t["id"] for t in added if t["special"] or _is_markup(t["content"])}
    texts = {t["id"]: t["content"] for t in added}
    ordinary = {i: t for t, i in data["model"]["vocab"].items()}
    size = max((*texts, *ordinary), default=-1) + 1
    plain = tokenizers.Tokenizer.from_str(json.dumps(_without_control(data, control)))
    for tokenizer in (whole, plain):
        tokenizer.no_truncation()
        tokenizer.no_padding()
    return Vocabulary(
        encode_plain=_encoder(plain),
        encode_control=_encoder(whole),
        token_bytes=tuple(
            texts[i].encode("utf-8") if i in texts else _bytes_of(ordinary.get(i, "")) for i in range(size)
        ),
        control=control,
        special=frozenset(t["id"] for t in added if t["special"]),
        strip_left=frozenset(t["content"] for t in added if t.get("lstrip")),
        strip_right=frozenset(t["content"] for t in added if t.get("rstrip")),
    )
