"""The sampler against its definition: written once more, in numpy and fp64, as docs/sampling.md has it; and against
the processors of `transformers` that users know the parameters from."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from tenuto.engine.batch import SequenceSlice
from tenuto.engine.penalties import counter_for
from tenuto.engine.sampler import sample, uniform
from tenuto.ids import RequestId, TokenId
from tenuto.protocol.engine import SamplingParams

VOCAB = 40
EDGE = 1e-6  # within that of a boundary, fp32 and fp64 may disagree

PARAMS = st.builds(
    SamplingParams,
    logit_bias=st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-100, 100), max_size=4).map(
        lambda biases: tuple((TokenId(i), b) for i, b in biases.items())
    ),
    repetition_penalty=st.sampled_from([1.0, 0.8, 1.3, 5.0]),
    frequency_penalty=st.sampled_from([0.0, 0.7, -2.0]),
    presence_penalty=st.sampled_from([0.0, 1.1, -0.5]),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 3.0]),
    top_k=st.sampled_from([0, 1, 3, 39, 40, 99]),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 0.01]),
    min_p=st.sampled_from([0.0, 0.05, 0.5]),
    seed=st.integers(-(2**63), 2**63),
)
TOKENS = st.lists(st.integers(0, VOCAB - 1), max_size=60)


def adjusted(
    logits: NDArray[np.float32], params: SamplingParams, prompt: list[int], new: list[int], allowed: set[int]
) -> NDArray[np.float64]:
    """Steps 2 to 4 of docs/sampling.md."""
    values = logits.astype(np.float64)
    for token, bias in params.logit_bias:
        values[token] += bias
    for token in {*prompt, *new}:
        scale = params.repetition_penalty
        values[token] = values[token] / scale if values[token] > 0 else values[token] * scale
    for token, count in Counter(new).items():
        values[token] -= params.frequency_penalty * count + params.presence_penalty
    for token in range(VOCAB):
        if token not in allowed:
            values[token] = -np.inf
    return values


def distribution(values: NDArray[np.float64], params: SamplingParams) -> list[tuple[int, float]]:
    """Steps 5 to 8: the ids that are left with their probabilities, likeliest first. Skips cases on the edge."""
    order = sorted(range(VOCAB), key=lambda i: (-values[i], i))
    weights = np.exp((values[order] - values.max()) / params.temperature)
    kept = params.top_k if params.top_k > 0 else VOCAB
    order, weights = order[:kept], weights[:kept]
    before = np.concatenate(([0.0], np.cumsum(weights / weights.sum())[:-1]))
    assume(params.top_p == 1 or np.abs(before - params.top_p).min() > EDGE)
    kept = int((before < params.top_p).sum())
    order, weights = order[:kept], weights[:kept]
    assume(params.min_p == 0 or np.abs(weights - params.min_p).min() > EDGE)
    weights = np.where(weights >= params.min_p, weights, 0.0)
    return [(i, w) for i, w in zip(order, weights / weights.sum(), strict=True) if w > 0]


@settings(max_examples=300, deadline=None)
@given(PARAMS, TOKENS, TOKENS, st.integers(0, 2**32 - 1), st.sets(st.integers(0, VOCAB - 1), min_size=1) | st.none())
def test_the_sampler_does_what_the_definition_says(
    params: SamplingParams, prompt: list[int], new: list[int], noise: int, allowed: set[int] | None
) -> None:
    logits = np.random.default_rng(noise).normal(0, 4, VOCAB).astype(np.float32)
    values = adjusted(logits, params, prompt, new, allowed if allowed is not None else set(range(VOCAB)))
    mask = None
    if allowed is not None:
        bits = np.zeros(64, dtype=np.uint8)
        bits[list(allowed)] = 1
        mask = np.packbits(bits, bitorder="little").view(np.uint32)
    counter = counter_for(params, [TokenId(i) for i in prompt])
    seen = None if counter is None else counter.seen([TokenId(i) for i in (*prompt, *new)])
    slices = [SequenceSlice(RequestId("r"), 0, (TokenId(0),), p, (), True, params, mask, seen) for p in range(20)]
    drawn = sample(np.tile(logits, (20, 1)), slices).ids
    best = np.sort(values)[-2:]
    if params.temperature == 0:
        assume(best[1] - best[0] > 1e-4)
        assert drawn == [int(values.argmax())] * 20
        return
    left = distribution(values, params)
    in_order = sorted(left)
    for piece, token in zip(slices, drawn, strict=True):
        # Inverse of the distribution function over what is left, in the order of the ids.
        edges = np.cumsum([probability for _, probability in in_order])
        target = uniform(params.seed, piece.end)
        assert token in dict(left)
        if np.abs(edges - target).min() > 1e-4:
            assert token == in_order[min(int(np.searchsorted(edges, target, side="right")), len(left) - 1)][0]


@settings(max_examples=100, deadline=None)
@given(TOKENS.filter(bool), TOKENS, st.integers(0, 2**32 - 1), st.sampled_from([0.5, 1.0, 1.2, 3.0]))
def test_the_penalised_logits_are_those_of_transformers(
    prompt: list[int], new: list[int], noise: int, penalty: float
) -> None:
    """To the bit: the sampler changes the row in place."""
    logits = torch.from_numpy(np.random.default_rng(noise).normal(0, 4, (1, VOCAB)).astype(np.float32))
    wanted = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([[*prompt, *new]]), logits.clone())
    params = SamplingParams(repetition_penalty=penalty)
    counter = counter_for(params, [TokenId(i) for i in prompt])
    tokens = [TokenId(i) for i in (*prompt, *new)]
    seen = None if counter is None else counter.seen(tokens)
    row = logits.numpy().copy()
    sample(row, [SequenceSlice(RequestId("r"), 0, (TokenId(0),), 5, (), True, params, None, seen)])
    assert np.array_equal(row, wanted.numpy())


@pytest.mark.parametrize("cuts", [{"top_k": 7}, {"top_p": 0.8}, {"min_p": 0.08}, {"top_k": 20, "top_p": 0.9}])
@pytest.mark.parametrize("temperature", [0.6, 1.5])
def test_what_is_left_to_draw_from_is_what_transformers_leaves(cuts: dict[str, float], temperature: float) -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(5)) * 3
    warpers = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    kinds = {"top_k": TopKLogitsWarper, "top_p": TopPLogitsWarper, "min_p": MinPLogitsWarper}
    warpers += [kinds[name](value) for name, value in cuts.items()]
    wanted = torch.softmax(warpers(torch.zeros(1, 1, dtype=torch.long), logits.clone()), -1)[0]
    params = SamplingParams(temperature=temperature, seed=11, **cuts)  # type: ignore[arg-type]
    count = 6000
    slices = [SequenceSlice(RequestId("r"), 0, (TokenId(0),), p, (), True, params) for p in range(count)]
    drawn = (
        torch.bincount(torch.tensor(sample(np.tile(logits.numpy(), (count, 1)), slices).ids), minlength=VOCAB) / count
    )
    likely = wanted > 0.002
    assert set(drawn.nonzero().flatten().tolist()) <= set(wanted.nonzero().flatten().tolist())
    assert set(likely.nonzero().flatten().tolist()) <= set(drawn.nonzero().flatten().tolist())
    assert float((drawn - wanted).abs().max()) < 0.025


@settings(max_examples=60, deadline=None)
@given(TOKENS, st.lists(TOKENS.filter(bool), max_size=5), st.booleans())
def test_counting_as_they_come_equals_counting_from_the_start(
    prompt: list[int], pieces: list[list[int]], with_prompt: bool
) -> None:
    params = SamplingParams(repetition_penalty=1.1 if with_prompt else 1.0, presence_penalty=0.5)
    tokens = [TokenId(i) for i in prompt]
    counter = counter_for(params, tokens)
    assert counter is not None
    for piece in ([], *pieces):
        tokens += [TokenId(i) for i in piece]
        found = counter.seen(tokens)
        counts = Counter(tokens[len(prompt) :])
        wanted = dict.fromkeys(prompt if with_prompt else (), 0) | counts
        assert dict(zip(found.ids.tolist(), found.counts.tolist(), strict=True)) == wanted
        assert len(found.ids) == len(wanted)
        found.counts[:] = -1  # the arrays are ours


def test_nothing_is_counted_where_nothing_is_penalised() -> None:
    assert counter_for(SamplingParams(temperature=1.0, logit_bias=((TokenId(1), 2.0),)), [TokenId(3)]) is None
