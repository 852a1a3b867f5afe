"""Rotary positions as data: the base, and how a model stretches it beyond the context it was first trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, kw_only=True)
class LinearScaling:
    """Positions are divided by `factor` (position interpolation; Chen et al., 2023)."""

    factor: float


@dataclass(frozen=True, kw_only=True)
class Llama3Scaling:
    """Long waves are divided by `factor`, short ones kept, those between blended (Llama 3.1 model card).

    A wave is long from `original_tokens / low_freq_factor` tokens on, short below `original_tokens / high_freq_factor`.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_tokens: int


@dataclass(frozen=True, kw_only=True)
class YarnScaling:
    """YaRN (Peng et al., "Efficient context window extension of large language models", 2023), "NTK by parts"."""

    factor: float
    original_tokens: int
    beta_fast: float = 32.0  # rotations over the original context from which a frequency is kept
    beta_slow: float = 1.0  # rotations below which it is divided by `factor`
    truncate: bool = True  # round the ramp's ends to whole dimensions
    attention_factor: float | None = None  # of cosine and sine; None: 0.1 ln(factor) + 1


@dataclass(frozen=True, kw_only=True)
class DividedFrequencies:
    """Each frequency is divided by its own number, as GGUF stores it in the tensor `rope_freqs`."""

    divisors: tuple[float, ...]  # head_dim / 2 of them


RopeScaling: TypeAlias = LinearScaling | Llama3Scaling | YarnScaling | DividedFrequencies


@dataclass(frozen=True, kw_only=True)
class RopeConfig:
    """One table of rotary angles; the layers of a model may use several."""

    theta: float
    scaling: RopeScaling | None = None
