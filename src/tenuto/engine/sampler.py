"""Logits to token ids, each row for itself: what a row gets does not depend on the rest of the batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tenuto.engine.batch import SequenceSlice
from tenuto.ids import TokenId
from tenuto.protocol.engine import SamplingParams
from tenuto.protocol.grammar import TokenMask

_WORD = (1 << 64) - 1


def uniform(seed: int, position: int) -> float:
    """A random number in [0, 1) keyed by (seed, position), with 53 random bits.

    Counter-based, so that no state is kept: a request that is preempted, or that is run again in other company,
    draws the same numbers. Two rounds of the finaliser of splitmix64 (Steele, Lea, Flood, "Fast splittable
    pseudorandom number generators", 2014), first over the seed, then over the position.
    """
    return (_finalise(_finalise(seed & _WORD) + position & _WORD) >> 11) * 2.0**-53


def _finalise(x: int) -> int:
    x = x + 0x9E3779B97F4A7C15 & _WORD
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _WORD
    return x ^ (x >> 31)


def sample(
    logits: Tensor, slices: Sequence[SequenceSlice], is_sound: Sequence[bool] | None = None
) -> list[TokenId | None]:
    """One token id per row; None for a row that is not sound.

    Args:
        logits: fp32 [R, vocab], changed in place where a slice has a mask.
        slices: the R slices that sample, in the order of the rows.
        is_sound: R flags, false where a row holds no finite numbers; None: all are sound.
    """
    for row, piece in enumerate(slices):
        if piece.mask is not None:
            logits[row].masked_fill_(_forbidden(piece.mask, logits.shape[1]), -torch.inf)
    chosen: list[int] = torch.argmax(logits, dim=-1).tolist()
    for row, piece in enumerate(slices):
        if piece.sampling.temperature > 0 and (is_sound is None or is_sound[row]):
            chosen[row] = _draw(logits[row], piece.sampling, piece.end)
    return [TokenId(t) if is_sound is None or is_sound[row] else None for row, t in enumerate(chosen)]


def _forbidden(mask: TokenMask, vocab_size: int) -> Tensor:
    """bool [vocab]; tokens beyond the mask's words are forbidden."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[:vocab_size]
    allowed = np.zeros(vocab_size, dtype=np.bool_)
    allowed[: len(bits)] = bits
    return torch.from_numpy(~allowed)


def _draw(logits: Tensor, params: SamplingParams, position: int) -> int:
    """Inverse of the distribution function at `uniform(seed, position)`; in fp64, so that ties hardly matter.

    Top-k first, then the smallest set of the most probable tokens whose probability reaches top-p.
    """
    scaled = logits.to("cpu", torch.float64)
    tokens: Tensor | None = None  # None: candidate i is token i
    if 0 < params.top_k < scaled.shape[0]:
        scaled, tokens = torch.topk(scaled, params.top_k)
    elif params.top_p < 1:
        scaled, tokens = torch.sort(scaled, descending=True, stable=True)
    weights = torch.softmax((scaled - scaled.max()) / params.temperature, dim=-1)
    total = torch.cumsum(weights, dim=-1)
    if params.top_p < 1:
        # A token stays if those before it have not reached top-p; the first one always does.
        total = total[: int((total - weights < params.top_p).sum())]
    target = uniform(params.seed, position) * float(total[-1])
    index = int(torch.searchsorted(total, target, right=True))
    index = min(index, int(torch.searchsorted(total, total[-1])))  # rounding must not pick a token of weight 0
    return index if tokens is None else int(tokens[index])
