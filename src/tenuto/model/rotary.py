"""From rotary settings to frequencies, in float32 as the models were trained with."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tenuto.checkpoint.rope import DividedFrequencies, LinearScaling, Llama3Scaling, RopeConfig, YarnScaling


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> tuple[Tensor, float]:
    """(radians per position: float32 [head_dim / 2], the factor of cosine and sine).

    Sources of the schemes: see `checkpoint.rope`.
    """
    plain = 1.0 / rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    match rope.scaling:
        case None:
            return plain, 1.0
        case LinearScaling(factor=factor):
            return plain / factor, 1.0
        case DividedFrequencies(divisors=divisors):
            return plain / torch.tensor(divisors, dtype=torch.float32), 1.0
        case Llama3Scaling() as scaling:
            return _llama3(plain, scaling), 1.0
        case YarnScaling() as scaling:
            return _yarn(plain, scaling, rope.theta, head_dim), _yarn_factor(scaling)


def _llama3(plain: Tensor, scaling: Llama3Scaling) -> Tensor:
    # How often a wave fits the original context decides: seldom, it is stretched; often, it stays.
    turns = scaling.original_tokens * plain / (2 * math.pi)
    kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    kept = kept.clamp(0, 1)
    return (1 - kept) * plain / scaling.factor + kept * plain


def _yarn(plain: Tensor, scaling: YarnScaling, theta: float, head_dim: int) -> Tensor:
    def dimension(rotations: float) -> float:
        """The (fractional) dimension whose wave turns that often over the original context."""
        return head_dim * math.log(scaling.original_tokens / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(scaling.beta_fast), dimension(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    stretched = (torch.arange(head_dim // 2, dtype=torch.float32) - low) / max(high - low, 0.001)
    stretched = stretched.clamp(0, 1)
    return plain / scaling.factor * stretched + plain * (1 - stretched)


def _yarn_factor(scaling: YarnScaling) -> float:
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    return 0.1 * math.log(scaling.factor) + 1.0 if scaling.factor > 1 else 1.0
