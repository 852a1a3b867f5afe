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

On the host and in numpy: its argmax, sort and partition of a vocabulary are 15 to 30 times as fast as torch's on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tenuto.engine.batch import SeenTokens, SequenceSlice
from tenuto.ids import TokenId
from tenuto.protocol.engine import SamplingParams, TokenLogprob
from tenuto.protocol.grammar import TokenMask

Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Ids: TypeAlias = NDArray[np.int64]

_WORD = (1 << 64) - 1
_BLOCK = 256  # weights summed at once


class Sampled(NamedTuple):
    """One entry for each slice."""

    ids: list[TokenId | None]  # None: the row held no finite numbers, or none that may be chosen
    num_accepted: list[int]  # drafts before the id that are right
    logprobs: list[tuple[TokenLogprob, ...]]  # of the right drafts, then of the id; empty: not asked for, or no id


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


def sample(logits: Floats, slices: Sequence[SequenceSlice]) -> Sampled:
    """The right drafts of each slice and the id after them.

    Where nobody asks for more than the likeliest id, one pass over the batch and no other.

    Args:
        logits: [R, vocab], a row for each slice and one for each of its drafts; rows with a bias, penalties or a mask
            are changed in place.
        slices: those that sample, in the order of the rows.
    """
    # Of a row that holds a NaN, that is the largest; any token would be "the likeliest", step after step.
    likeliest = logits.argmax(axis=-1)
    is_sound = np.isfinite(logits[np.arange(len(logits)), likeliest]).tolist()
    best: list[TokenId | None] = [
        TokenId(token) if sound else None for token, sound in zip(likeliest.tolist(), is_sound, strict=True)
    ]
    sampled = Sampled([], [], [])
    row = 0
    scores: tuple[TokenLogprob, ...]
    for piece in slices:
        num_rows = piece.num_drafts + 1
        if num_rows == 1 and _is_plain(piece):
            chosen, scores = best[row : row + 1], ()
        else:
            chosen, scores = _verify(logits[row : row + num_rows], best[row : row + num_rows], piece)
        row += num_rows
        sampled.ids.append(chosen[-1])
        sampled.num_accepted.append(len(chosen) - 1)
        sampled.logprobs.append(scores)
    assert row == len(logits), "not as many rows as slices and drafts"
    return sampled


def _verify(
    logits: Floats, best: Sequence[TokenId | None], piece: SequenceSlice
) -> tuple[list[TokenId | None], tuple[TokenLogprob, ...]]:
    """Choose after the known tokens and after each draft that is right, row by row; the ids and their scores.

    Args:
        logits: [drafts + 1, vocab].
        best: the likeliest id of each row.
    """
    chosen: list[TokenId | None] = []
    scores: list[TokenLogprob] = []
    plain = _is_plain(piece)
    for place, draft in enumerate((*piece.drafts, None)):
        token = best[place]
        if token is not None and not plain:
            scored = None if piece.logprobs is None else _log_softmax(logits[place])
            token = _choose(logits[place], token, piece, place)
            if scored is not None and token is not None:
                scores.append(_logprob(scored, token, piece.logprobs or 0))
        if token is None and place:
            break  # the draft before it is the id; the next step, which begins after it, will say what is broken
        chosen.append(token)
        if token is None or token != draft:
            break
    return chosen, tuple(scores)


def _is_plain(piece: SequenceSlice) -> bool:
    """The likeliest id of the logits as they are, and nothing else."""
    sampling = piece.sampling
    if sampling.temperature or sampling.logit_bias:
        return False
    return piece.mask is None and piece.seen is None and piece.logprobs is None


def _choose(logits: Floats, likeliest: TokenId, piece: SequenceSlice, num_drafts: int) -> TokenId | None:
    """Changes the row [vocab] in place, unless that changes nothing.

    Args:
        likeliest: id of the row as it is.
        num_drafts: that come before.
    """
    sampling, mask, seen = piece.sampling, piece.mask_after(num_drafts), piece.seen_after(num_drafts)
    adjusted = bool(sampling.logit_bias) or seen is not None
    if mask is not None and not adjusted and sampling.temperature == 0 and _allows(mask, likeliest):
        return likeliest
    _adjust(logits, sampling, mask, seen)
    best = int(logits.argmax()) if adjusted or mask is not None else likeliest
    if not math.isfinite(logits[best]):
        return None
    if sampling.temperature == 0:
        return TokenId(best)
    position = piece.end - piece.num_drafts + num_drafts
    return TokenId(_draw(logits, sampling, position))


def _allows(mask: TokenMask, token: TokenId) -> bool:
    word = token >> 5
    return word < len(mask) and bool(int(mask[word]) >> (token & 31) & 1)


def _adjust(logits: Floats, sampling: SamplingParams, mask: TokenMask | None, seen: SeenTokens | None) -> None:
    """Bias, penalties, mask."""
    for token, bias in sampling.logit_bias:
        logits[token] += np.float32(bias)
    if seen is not None:
        values, repetition = logits[seen.ids], np.float32(sampling.repetition_penalty)
        if repetition != 1:
            values = np.where(values > 0, values / repetition, values * repetition)
        values -= np.float32(sampling.frequency_penalty) * seen.counts.astype(np.float32)
        values -= np.float32(sampling.presence_penalty) * (seen.counts > 0)
        logits[seen.ids] = values
    if mask is not None:
        np.copyto(logits, -np.inf, where=_forbidden(mask, len(logits)))


def _forbidden(mask: TokenMask, vocab_size: int) -> NDArray[np.bool_]:
    """[vocab]; tokens beyond the mask's words are forbidden."""
    allowed = np.unpackbits(mask.view(np.uint8), bitorder="little", count=vocab_size)  # filled up with zeros
    return np.logical_not(allowed)


def _log_softmax(logits: Floats) -> Doubles:
    shifted = logits.astype(np.float64)
    shifted -= shifted.max()
    shifted -= np.log(np.exp(shifted).sum())
    return shifted


def _logprob(scores: Doubles, token: TokenId, num_top: int) -> TokenLogprob:
    """Args:
    scores: log-probabilities, [vocab].
    """
    top: tuple[tuple[TokenId, float], ...] = ()
    if num_top:
        ids = np.flatnonzero(scores >= _kth_largest(scores, num_top))
        ids = ids[np.argsort(-scores[ids], kind="stable")][:num_top]  # of equals the lowest id first
        top = tuple((TokenId(int(other)), float(scores[other])) for other in ids)
    return TokenLogprob(logprob=float(scores[token]), top=top)


def _draw(logits: Floats, params: SamplingParams, position: int) -> int:
    """Inverse of the distribution function, over the ids that are left in their order, at `uniform(seed, position)`."""
    ids: Ids | None = None  # None: candidate i is id i
    if 0 < params.top_k < len(logits):
        ids = _largest(logits, params.top_k)
        logits = logits[ids]
    weights = logits.astype(np.float64)
    weights -= weights.max()
    with np.errstate(over="ignore"):  # what overflows has no probability
        weights /= params.temperature
    np.exp(weights, out=weights)  # the likeliest weighs 1
    if params.top_p < 1:
        ids, weights = _nucleus(ids, weights, params.top_p)
    if params.min_p > 0:
        ids, weights = _only(ids, weights, np.flatnonzero(weights >= params.min_p))
    index = _pick(weights, uniform(params.seed, position))
    return index if ids is None else int(ids[index])


def _pick(weights: Doubles, number: float) -> int:
    """The first place up to which the weights sum to more than `number` (below 1) of their total.

    In two passes, over blocks and within one: a running sum over a whole vocabulary takes ten times as long.
    """
    blocks = np.arange(0, len(weights), _BLOCK)
    total = np.cumsum(np.add.reduceat(weights, blocks))
    target = number * float(total[-1])
    # Rounding must not lead beyond the last weight, nor to one that is 0.
    block = min(int(np.searchsorted(total, target, side="right")), int(np.searchsorted(total, total[-1])))
    inner = weights[block * _BLOCK : (block + 1) * _BLOCK]
    running = np.cumsum(inner)
    if block:
        target -= float(total[block - 1])
    index = min(int(np.searchsorted(running, target, side="right")), int(np.searchsorted(running, running[-1])))
    return block * _BLOCK + index


def _only(ids: Ids | None, weights: Doubles, places: Ids) -> tuple[Ids, Doubles]:
    return (places if ids is None else ids[places]), weights[places]


def _nucleus(ids: Ids | None, weights: Doubles, top_p: float) -> tuple[Ids, Doubles]:
    """The fewest of the likeliest that reach the part `top_p` of all weight.

    What weighs less than the mean of the part to be left out is not among them: all of that together is less than that
    part. That spares a sort of the whole vocabulary.
    """
    total = float(weights.sum())
    left_out = (1 - top_p) * total
    places = np.flatnonzero(weights >= 0.5 * left_out / len(weights))
    likely = weights[places]
    ordered = np.sort(likely)
    left_out -= total - float(likely.sum())  # that much is left out already
    # Those whose weight, with all that is lighter, may be left out; never the likeliest.
    count = int(np.searchsorted(np.cumsum(ordered), left_out, side="right"))
    count = min(count, len(ordered) - 1)
    places = places[_heaviest(likely, ordered[count], len(ordered) - count)]
    return _only(ids, weights, places)


def _largest(weights: Floats | Doubles, count: int) -> Ids:
    """Where the `count` largest stand, in order of place; of equals the first."""
    return _heaviest(weights, _kth_largest(weights, count), count)


def _heaviest(weights: Floats | Doubles, least: np.floating[Any], count: int) -> Ids:
    """The same, if the least of them is known."""
    chosen = weights > least
    equals = np.flatnonzero(weights == least)
    chosen[equals[: count - np.count_nonzero(chosen)]] = True
    return np.flatnonzero(chosen)


def _kth_largest(values: Floats | Doubles, count: int) -> np.floating[Any]:
    place = max(0, len(values) - count)
    found: np.floating[Any] = np.partition(values, place)[place]
    return found
