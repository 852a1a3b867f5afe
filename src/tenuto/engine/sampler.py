"""Logits to token ids, each row for itself: what a row gets does not depend on the rest of the batch.

What happens to a row, in this order; docs/sampling.md has the formulas:

1. Log-probabilities, if asked for: log-softmax of the logits as the model gave them.
2. Bias: added to the logits of the ids it names (OpenAI's API reference, `logit_bias`).
3. Penalties: repetition over prompt and output, a positive logit divided and a negative one multiplied (Keskar et al.,
   "CTRL", 2019, in the form of Hugging Face's RepetitionPenaltyLogitsProcessor); then frequency and presence over what
   the call has generated, subtracted (OpenAI's API reference).
4. The grammar's mask: forbidden ids get no probability. Its place among 2 to 4 makes no difference.
5. Temperature 0: the largest logit, and of equals the lowest id. Otherwise the logits are divided by the temperature.
6. Top-k (Fan et al., "Hierarchical neural story generation", 2018): exactly k ids, of equals the lowest.
7. Top-p (Holtzman et al., "The curious case of neural text degeneration", 2020): the fewest of the likeliest ids whose
   probability, renormalised after top-k, reaches p.
8. Min-p (Nguyen et al., "Turning up the heat: min-p sampling", 2024): those at least min_p times as likely as the
   likeliest.
9. One draw from what is left, at a random number keyed by (seed, position).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tenuto.engine.batch import SequenceSlice
from tenuto.ids import TokenId
from tenuto.protocol.engine import SamplingParams, TokenLogprob
from tenuto.protocol.grammar import TokenMask

_WORD = (1 << 64) - 1
_FIRST_GUESS = 256  # the likeliest ids that top-p looks at first; they nearly always suffice


class Sampled(NamedTuple):
    """One entry for each row."""

    ids: list[TokenId | None]  # None: the row held no finite numbers, or none that may be chosen
    logprobs: list[TokenLogprob | None]  # None: not asked for, or no id


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


def sample(logits: Tensor, slices: Sequence[SequenceSlice]) -> Sampled:
    """One token id per row. Where nobody asks for more than the likeliest id, one pass over the batch and no other.

    Args:
        logits: fp32 [R, vocab]; rows with a bias, penalties or a mask are changed in place.
        slices: the R slices that sample, in the order of the rows.
    """
    # The largest logit is NaN if any is. Of such a row any token would be "the likeliest", step after step.
    largest, likeliest = (found.tolist() for found in logits.max(dim=-1))
    ids = [TokenId(token) if math.isfinite(value) else None for value, token in zip(largest, likeliest, strict=True)]
    logprobs: list[TokenLogprob | None] = [None] * len(slices)
    for row, piece in enumerate(slices):
        if ids[row] is None or _is_plain(piece):
            continue
        scores = None if piece.logprobs is None else torch.log_softmax(logits[row], dim=-1)
        token = ids[row] = _choose(logits[row], piece)
        if scores is not None and token is not None:
            logprobs[row] = _logprob(scores, token, piece.logprobs or 0)
    return Sampled(ids, logprobs)


def _is_plain(piece: SequenceSlice) -> bool:
    """The likeliest id of the logits as they are, and nothing else."""
    adjusted = piece.sampling.logit_bias or piece.seen is not None or piece.mask is not None
    return piece.sampling.temperature == 0 and not adjusted and piece.logprobs is None


def _choose(logits: Tensor, piece: SequenceSlice) -> TokenId | None:
    """Changes the row [vocab] in place."""
    _adjust(logits, piece)
    largest, likeliest = logits.max(dim=0)
    if not torch.isfinite(largest):
        return None
    return TokenId(_draw(logits, piece.sampling, piece.end) if piece.sampling.temperature > 0 else int(likeliest))


def _adjust(logits: Tensor, piece: SequenceSlice) -> None:
    """Bias, penalties, mask."""
    sampling, seen = piece.sampling, piece.seen
    if sampling.logit_bias:
        ids = torch.tensor([token for token, _ in sampling.logit_bias], device=logits.device)
        logits[ids] += torch.tensor([bias for _, bias in sampling.logit_bias], device=logits.device)
    if seen is not None and len(seen.ids):
        ids = torch.from_numpy(seen.ids).to(logits.device)
        counts = torch.from_numpy(seen.counts).to(logits.device)
        values, repetition = logits[ids], sampling.repetition_penalty
        if repetition != 1:
            values = torch.where(values > 0, values / repetition, values * repetition)
        logits[ids] = values - sampling.frequency_penalty * counts - sampling.presence_penalty * (counts > 0)
    if piece.mask is not None:
        logits.masked_fill_(_forbidden(piece.mask, logits.shape[0]).to(logits.device), -torch.inf)


def _forbidden(mask: TokenMask, vocab_size: int) -> Tensor:
    """bool [vocab]; tokens beyond the mask's words are forbidden."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[:vocab_size]
    allowed = np.zeros(vocab_size, dtype=np.bool_)
    allowed[: len(bits)] = bits
    return torch.from_numpy(~allowed)


def _logprob(scores: Tensor, token: TokenId, num_top: int) -> TokenLogprob:
    """Args:
    scores: log-probabilities, [vocab].
    """
    ids = _likeliest(scores, num_top)
    top = zip(ids.tolist(), scores[ids].tolist(), strict=True)
    return TokenLogprob(logprob=float(scores[token]), top=tuple((TokenId(i), score) for i, score in top))


def _draw(logits: Tensor, params: SamplingParams, position: int) -> int:
    """Inverse of the distribution function at `uniform(seed, position)`; in fp64, so that ties hardly matter."""
    values = logits.to("cpu", torch.float64)
    weights = torch.exp((values - values.max()) / params.temperature)  # the likeliest weighs 1
    ids: Tensor | None = None  # None: candidate i is id i
    if 0 < params.top_k < len(values):
        ids = _likeliest(values, params.top_k)
    if params.top_p < 1:
        ids = _nucleus(values, weights, ids, params.top_p)
    if ids is not None:
        weights = weights[ids]
    if params.min_p > 0:
        weights = torch.where(weights < params.min_p, 0.0, weights)
    total = torch.cumsum(weights, dim=-1)
    target = uniform(params.seed, position) * float(total[-1])
    index = int(torch.searchsorted(total, target, right=True))
    index = min(index, int(torch.searchsorted(total, total[-1])))  # rounding must not pick a token of weight 0
    return index if ids is None else int(ids[index])


def _likeliest(values: Tensor, count: int) -> Tensor:
    """The ids of the `count` largest values, largest first, of equals the lowest id first.

    Sorting a vocabulary of 50,000 takes 6 ms, selecting 0.3 ms; but a selection says nothing of equals, so all that
    equal the last one selected are taken in, and the few are sorted.
    """
    if count == 0:
        return torch.empty(0, dtype=torch.int64, device=values.device)
    least = torch.topk(values, count, sorted=False).values.min() if count < len(values) else values.min()
    ids = torch.nonzero(values >= least)[:, 0]
    order = torch.sort(values[ids], descending=True, stable=True).indices
    return ids[order[:count]]


def _nucleus(values: Tensor, weights: Tensor, ids: Tensor | None, top_p: float) -> Tensor:
    """The fewest of the likeliest ids whose weight reaches the part `top_p` of all.

    Args:
        ids: those that top-k has left, likeliest first; None: all.
    """
    wanted = top_p * float(weights.sum() if ids is None else weights[ids].sum())
    count = _FIRST_GUESS
    while ids is None:
        candidates = _likeliest(values, count)
        if len(candidates) < count or float(weights[candidates].sum()) >= wanted:
            ids = candidates
        count *= 16
    each = weights[ids]
    # An id stays if those before it have not reached top-p; the first one always does.
    return ids[: int((torch.cumsum(each, dim=-1) - each < wanted).sum())]
