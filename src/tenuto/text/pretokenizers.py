"""How byte-level BPE vocabularies split text before merging, by the name a GGUF file gives it.

A wrong split loads fine and quietly costs quality, so a name that is not in this table is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

from tenuto.errors import UnsupportedModel

_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_HEAD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"


@dataclass(frozen=True)
class Splitting:
    """One way to split."""

    digits: bool = False  # every digit on its own, before anything else
    pattern: str | None = None  # None: GPT-2's own pattern
    ignore_merges: bool = False  # a piece that is a token as a whole is not merged up
    nfc: bool = False  # Unicode normalisation C first

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        steps: list[pre_tokenizers.PreTokenizer] = []
        if self.digits:
            steps.append(pre_tokenizers.Digits(individual_digits=True))
        if self.pattern is not None:
            steps.append(pre_tokenizers.Split(Regex(self.pattern), behavior="isolated"))
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=self.pattern is None))
        return pre_tokenizers.Sequence(steps)

    def normalizer(self) -> normalizers.Normalizer | None:
        return normalizers.NFC() if self.nfc else None


_BY_NAME = {
    "gpt-2": Splitting(),
    "gpt2": Splitting(),
    "smollm": Splitting(digits=True),
    "starcoder": Splitting(digits=True),
    "llama-bpe": Splitting(pattern=_HEAD + r"\p{N}{1,3}|" + _TAIL, ignore_merges=True),
    "llama3": Splitting(pattern=_HEAD + r"\p{N}{1,3}|" + _TAIL, ignore_merges=True),
    "qwen2": Splitting(pattern=_HEAD + r"\p{N}|" + _TAIL, nfc=True),
}


def splitting(name: str) -> Splitting:
    """The splitting of that name. Raises UnsupportedModel for a name we do not know for certain."""
    if name not in _BY_NAME:
        known = ", ".join(sorted(_BY_NAME))
        raise UnsupportedModel(f"pre-tokenizer {name!r} is not supported; known are {known}")
    return _BY_NAME[name]
