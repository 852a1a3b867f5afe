"""How byte-level BPE vocabularies split text before merging, by the name a GGUF file gives it.

A wrong split loads fine and quietly costs quality, so a name that is not in this table is refused. The patterns are
those of the models' own tokenizer files.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

from tenuto.errors import UnsupportedModel

_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_HEAD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = _HEAD + r"\p{N}{1,3}|" + _TAIL
_QWEN2 = _HEAD + r"\p{N}|" + _TAIL
_QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|"
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s|"
_CASED_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN = _CASED % ("", "") + r"\p{N}|" + _CASED_TAIL
_GPT4O = _CASED % (("(?i:'s|'t|'re|'ve|'m|'ll|'d)?",) * 2) + r"\p{N}{1,3}|" + _CASED_TAIL
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)
# What llama.cpp, which named these, does with a file that names none or `default`.
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")

_WORD_PATTERNS = frozenset({_GPT2, _LLAMA3, _QWEN2, _QWEN35, _TEKKEN, _GPT4O, _DEEPSEEK3[-1]})
_KNOWN_PATTERNS = _WORD_PATTERNS | {*_DEEPSEEK3, *_DEFAULT, r"\p{N}"}


@dataclass(frozen=True)
class Splitting:
    """One way to split."""

    patterns: tuple[str, ...]  # each splits the pieces that the one before has left
    ignore_merges: bool = False  # a piece that is a token as a whole is not merged up
    nfc: bool = False  # Unicode normalisation C first

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        steps: list[pre_tokenizers.PreTokenizer] = [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in self.patterns
        ]
        return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

    def normalizer(self) -> normalizers.Normalizer | None:
        return normalizers.NFC() if self.nfc else None


_BY_NAME = {
    **dict.fromkeys(("gpt-2", "gpt2", "phi-2"), Splitting((_GPT2,))),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r"), Splitting((r"\p{N}", _GPT2))),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), Splitting((_LLAMA3,), ignore_merges=True)),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), Splitting((_LLAMA3,))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), Splitting((_QWEN2,), nfc=True)),
    "qwen35": Splitting((_QWEN35,), nfc=True),
    "tekken": Splitting((_TEKKEN,), ignore_merges=True),
    **dict.fromkeys(("gpt-4o", "llama4"), Splitting((_GPT4O,))),
    "deepseek-v3": Splitting(_DEEPSEEK3),
    "default": Splitting(_DEFAULT),
}


def splitting(name: str) -> Splitting:
    """The splitting of that name. Raises UnsupportedModel for a name we do not know for certain."""
    if name not in _BY_NAME:
        known = ", ".join(sorted(_BY_NAME))
        raise UnsupportedModel(f"pre-tokenizer {name!r:.80} is not supported; known are {known}")
    return _BY_NAME[name]


def splits_words(pattern: str) -> bool:
    """Whether a pattern of a tokenizer.json is one of those above that split words."""
    return pattern in _WORD_PATTERNS


def is_known_pattern(pattern: str) -> bool:
    """Whether it is any of those above, also one that only splits what another has left."""
    return pattern in _KNOWN_PATTERNS
