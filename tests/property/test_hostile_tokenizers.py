"""Tokenizer files that are cut, corrupt or hostile: refused with the file's name, or they work; never a crash."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from embedded_tokenizer import embedded_files
from made_tokenizers import MADE, made
from real_tokenizers import mistral_path
from tenuto.checkpoint import GGUFTokenizer, SentencePieceFile, TokenizerFiles
from tenuto.checkpoint.sentencepiece_format import read_sentencepiece
from tenuto.errors import ModelFileError, UnsupportedModel
from tenuto.text.marked import MarkedText
from tenuto.text.tokenizer import Tokenizer

SOAK = bool(os.environ.get("TENUTO_SOAK"))
PROBE = MarkedText("Hello 123 <0x0A> 北京\n\n  <s>é😀<|turn|> ----\u0301", "\ufdd0")
ODD: list[Any] = [None, True, -1, 0, 2**31, 2**63, 2**70, 1e308, "", "a", "\0", "▁" * 5000, [], {}, [[]], ["a", "b"]]
ODD += ["<unk>", [["a", 0.0]], {"type": "Sequence"}, {"type": "Nothing"}, {"Regex": "("}, {"Regex": "(a+)+$"}, "(?=)"]


def small() -> dict[str, Any]:
    """A tokenizer.json of each kind with few tokens, so that mutations hit what matters."""
    r: dict[str, Any] = {}
    for kind in MADE:
        data = json.loads(made(kind).to_str())
        vocab = data["model"]["vocab"]
        if isinstance(vocab, dict):
            kept = {t: i for t, i in vocab.items() if i < 330}
            data["model"]["vocab"] = kept
            if "merges" in data["model"]:
                pairs = [p for p in data["model"]["merges"] if {*p, "".join(p)} <= kept.keys()]
                data["model"]["merges"] = pairs
        else:
            data["model"]["vocab"] = vocab[:200]
        data["added_tokens"] = [t for t in data["added_tokens"] if t["id"] < 5]
        r[kind] = data
    return r


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += places(item, (*path, key))
    return found


def mutate(data: Any, r: random.Random) -> Any:
    """One to three values removed, replaced by odd ones, or copied over others."""
    data = deepcopy(data)
    for _ in range(r.randint(1, 3)):
        # Most places are tokens; the shape of the file is of more interest.
        some = places(data) if r.random() < 0.3 else [p for p in places(data) if len(p) < 6 and "vocab" not in p[:-1]]
        *way, last = r.choice(some)
        at = data
        for key in way:
            at = at[key]
        if r.random() < 0.2:
            del at[last]
        else:
            at[last] = deepcopy(r.choice(ODD))
        if not isinstance(data, dict) or not data:
            break
    return data


def load_and_use(files: TokenizerFiles) -> bool:
    """Whether the files work; anything but a ModelFileError is a failure of ours."""
    try:
        tokenizer = Tokenizer.from_files(files)
        ids = tokenizer.encode(PROBE)
        assert all(0 <= i < tokenizer.vocab_size for i in ids)
        tokenizer.decode(ids)
        assert not any(tokenizer.is_control(i) for i in tokenizer.encode("<s>") if tokenizer.text_of(i) == "<s>")
    except ModelFileError as error:
        assert str(error)
        return False
    return True


@pytest.mark.parametrize("kind", MADE)
def test_mutated_json(kind: str, tmp_path: Path) -> None:
    r = random.Random(kind)
    data, path = small()[kind], tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    assert load_and_use(TokenizerFiles(json_path=path)), "before any mutation"
    for _ in range(2_000 if SOAK else 60):
        path.write_text(json.dumps(mutate(data, r)), encoding="utf-8")
        load_and_use(TokenizerFiles(json_path=path))


def test_mutated_sentencepiece(tmp_path: Path) -> None:
    r = random.Random(31)
    whole, path = mistral_path("v3").read_bytes(), tmp_path / "tokenizer.model"
    head = whole[:9_000] + whole[-300:]  # some pieces, and the settings at the end
    for _ in range(8_000 if SOAK else 200):
        data = bytearray(head if r.random() < 0.9 else head[: r.randrange(len(head))])
        for _ in range(r.choice([1, 1, 2, 8])):
            if data:
                data[r.randrange(len(data))] = r.randrange(256)
        path.write_bytes(data)
        try:
            model = read_sentencepiece(path)
        except ModelFileError as error:
            assert "tokenizer.model" in str(error)
            continue
        load_and_use(TokenizerFiles(sentencepiece=SentencePieceFile(path=path, model=model, prefix="first", added={})))


def test_mutated_gguf_lists() -> None:
    r = random.Random(32)
    base = embedded_files().gguf
    assert base is not None
    tokens, types = base.tokens[:400], base.token_types[:400]
    merges = [m for m in base.merges if set(m.split(" ")) <= set(tokens) and m.replace(" ", "") in tokens]
    few = replace(base, tokens=tokens, token_types=types, merges=merges, scores=[-float(i) for i in range(400)])
    odd_tokens = ["", "[UNK]", "\0", " ", "▁", "a" * 10_000]
    changes: list[Callable[[GGUFTokenizer], GGUFTokenizer]] = [
        lambda g: replace(g, kind=r.choice(["gpt2", "llama", "t5", "bert", "none", ""])),
        lambda g: replace(g, pre=r.choice(["default", "qwen2", "tekken", "x" * 1000])),
        lambda g: replace(g, tokens=[*g.tokens[: r.randrange(400)], r.choice(odd_tokens)]),
        lambda g: replace(g, tokens=r.sample(g.tokens, len(g.tokens))),
        lambda g: replace(g, token_types=[r.randrange(-1, 9) for _ in g.tokens]),
        lambda g: replace(g, token_types=[1] * len(g.tokens), scores=[0.0] * len(g.tokens)),
        lambda g: replace(g, scores=[r.choice([float("nan"), float("inf"), -1e38, 0.0]) for _ in g.tokens]),
        lambda g: replace(g, merges=[*g.merges[:50], r.choice(["", " ", "a", "a b c", "\0 \0"])]),
        lambda g: replace(g, charsmap=r.randbytes(r.randrange(40)), kind="t5"),
        lambda g: replace(g, charsmap=b"\x08\0\0\0" + r.randbytes(8) + b"a\0", kind="t5"),
        lambda g: replace(g, add_space_prefix=True, remove_extra_whitespaces=True),
    ]
    for _ in range(4_000 if SOAK else 150):
        hostile = few
        for change in r.sample(changes, r.randint(1, 3)):
            hostile = change(hostile)
        load_and_use(TokenizerFiles(gguf=hostile))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}}, "2000 times longer"),
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}] * 7}}, "128 times longer"),
        ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Unheard"}]}}, "'Unheard'"),
        (
            {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a" * 20_000}, "behavior": "Isolated"}},
            "20000 char",
        ),
        ({"decoder": {"type": "CTC"}}, "'CTC'"),
        ({"model": {"type": "WordLevel", "vocab": {}, "unk_token": "a"}}, "'WordLevel'"),
    ],
)
def test_what_is_not_supported_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**small()["byte-level"], **change}), encoding="utf-8")
    with pytest.raises(UnsupportedModel, match=message) as caught:
        Tokenizer.from_files(TokenizerFiles(json_path=path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("ids", [2**40, -1, 5, "0", None, 1.5])
def test_ids_that_no_vocabulary_has_are_refused_before_anything_is_allocated(ids: Any, tmp_path: Path) -> None:
    data = small()["byte-level"]
    data["model"]["vocab"] = {**data["model"]["vocab"], "new": ids}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ModelFileError, match=r"tokenizer\.json"):
        Tokenizer.from_files(TokenizerFiles(json_path=path))
