"""What a family is: which tensors its models have, what each format calls them, and what its settings mean.

Neutral names: `embed.weight`, `norm.weight`, `lm_head.weight`, and per layer i (in `layers.{i}.`)
`attention_norm.weight`, `attention.{q,k,v,o}.{weight,bias}`, `attention.{q,k}_norm.weight`,
`attention_post_norm.weight`, `mlp_norm.weight`, `mlp.{gate,up,down}.{weight,bias}`, `mlp_post_norm.weight`,
`mlp.router.weight`, `mlp.experts.{j}.{gate,up,down}.weight`. Matrices are [out, in] as in torch; rotary pairs are
(j, j + head_dim / 2); norm weights are what a normed value is multiplied by.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tenuto.checkpoint.config import ModelConfig
from tenuto.checkpoint.values import Values

# Completes a config whose sizes are read: what the family's settings say beyond them. May refuse through `Values`.
Completion: TypeAlias = Callable[[Values, ModelConfig], ModelConfig]

_NUMBER = re.compile(r"(?<=\.)(0|[1-9][0-9]{0,5})(?=\.)")
_PLACES = ("{i}", "{j}")  # layer, expert


@dataclass(frozen=True, kw_only=True)
class Family:
    """One model family. A new one is a new file with one of these."""

    name: str
    gguf_architectures: tuple[str, ...]
    hf_model_types: tuple[str, ...]
    gguf_names: Mapping[str, str]  # GGUF name -> neutral name; `{i}` is the layer, `{j}` the expert
    hf_names: Mapping[str, str]
    complete_hf: Completion
    complete_gguf: Completion
    hf_ignored: frozenset[str] = field(default_factory=frozenset)  # name patterns that carry nothing
    hf_ignored_parts: tuple[str, ...] = ()  # first parts of names that belong to another model, e.g. of vision
    hf_prefixes: Mapping[str, str] = field(default_factory=dict)  # how wrapped models begin their names -> ours
    hf_defaults: Mapping[str, object] = field(default_factory=dict)  # what config.json may leave out
    hf_norm_offset: float = 0.0  # stored norm weights are less by this much
    gguf_interleaved_rope: bool = False  # GGUF stores Q and K rows as pairs (2j, 2j + 1): undone on reading
    gguf_stacked_experts: bool = False  # GGUF stores the experts of a layer in one tensor [experts, out, in]

    def neutral_gguf(self, name: str) -> str | None:
        """The neutral name of a GGUF tensor, or None if the family has no such tensor."""
        return neutral_name(self.gguf_names, name)

    def neutral_hf(self, name: str) -> str | None:
        """The neutral name of a safetensors tensor, or None if the family has no such tensor."""
        for prefix, ours in self.hf_prefixes.items():
            if name.startswith(prefix):
                name = ours + name.removeprefix(prefix)
                break
        # Embedding models are saved from the bare decoder, whose names lack the first part.
        return neutral_name(self.hf_names, name) or neutral_name(self.hf_names, f"model.{name}")

    def ignores_hf(self, name: str) -> bool:
        """Whether a safetensors tensor carries nothing that the decoder needs."""
        return name.startswith(self.hf_ignored_parts) or as_pattern(name)[0] in self.hf_ignored


def as_pattern(name: str) -> tuple[str, list[str]]:
    """A name with its first two numbers replaced by places, and those numbers."""
    numbers: list[str] = []

    def replace(found: re.Match[str]) -> str:
        numbers.append(found.group())
        return _PLACES[len(numbers) - 1]

    return _NUMBER.sub(replace, name, count=len(_PLACES)), numbers


def neutral_name(names: Mapping[str, str], name: str) -> str | None:
    """What a table of patterns calls a stored name, or None if it stands in none of them."""
    pattern, numbers = as_pattern(name)
    neutral = names.get(pattern)
    if neutral is None:
        return None
    for place, number in zip(_PLACES, numbers, strict=False):
        neutral = neutral.replace(place, number)
    return neutral
