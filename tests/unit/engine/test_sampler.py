import numpy as np
import pytest
import torch

from tenuto.engine.batch import SequenceSlice
from tenuto.engine.sampler import sample, uniform
from tenuto.ids import RequestId, TokenId
from tenuto.protocol.engine import SamplingParams
from tenuto.protocol.grammar import TokenMask

VOCAB = 70  # not a multiple of 32


def piece(params: SamplingParams, position: int = 5, mask: TokenMask | None = None) -> SequenceSlice:
    return SequenceSlice(RequestId("r"), 0, (TokenId(0),), position - 1, (), True, params, mask)


def mask_of(*tokens: int) -> TokenMask:
    bits = np.zeros(96, dtype=np.uint8)
    bits[list(tokens)] = 1
    return np.packbits(bits, bitorder="little").view(np.uint32)


def logits(rows: int = 1, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def frequencies(row: torch.Tensor, params: dict[str, float], count: int = 4000) -> torch.Tensor:
    slices = [piece(SamplingParams(seed=7, **params), position) for position in range(count)]  # type: ignore[arg-type]
    drawn = sample(row.expand(count, -1).clone(), slices)
    return torch.bincount(torch.tensor(drawn), minlength=VOCAB) / count


def test_greedy_takes_the_largest() -> None:
    rows = logits(4)
    assert sample(rows.clone(), [piece(SamplingParams(top_k=3, seed=s)) for s in range(4)]) == rows.argmax(1).tolist()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_masks_allow_only_their_tokens(temperature: float) -> None:
    params = [piece(SamplingParams(temperature=temperature, seed=s), mask=mask_of(3, 69)) for s in range(50)]
    drawn = sample(logits(50), params)
    assert set(drawn) == {3, 69}
    only = sample(logits(2), [piece(SamplingParams(temperature=temperature), mask=mask_of(t)) for t in (0, 31)])
    assert only == [0, 31]


def test_draws_follow_the_distribution() -> None:
    row = logits()
    for temperature in (0.7, 1.0, 2.0):
        found = frequencies(row, {"temperature": temperature})
        wanted = torch.softmax(row[0] / temperature, -1)
        assert (found - wanted).abs().max() < 0.03


def test_top_k_and_top_p_cut_and_renormalise() -> None:
    row = logits()
    order = row[0].argsort(descending=True)
    weights = torch.softmax(row[0], -1)[order]
    found = frequencies(row, {"temperature": 1.0, "top_k": 4})
    assert set(found.nonzero().flatten().tolist()) == set(order[:4].tolist())
    assert (found[order[:4]] - weights[:4] / weights[:4].sum()).abs().max() < 0.03
    kept = int((weights.cumsum(0) < 0.6).sum()) + 1
    found = frequencies(row, {"temperature": 1.0, "top_p": 0.6})
    assert set(found.nonzero().flatten().tolist()) == set(order[:kept].tolist())
    assert (found[order[:kept]] - weights[:kept] / weights[:kept].sum()).abs().max() < 0.03


def test_a_tiny_top_p_or_temperature_is_greedy() -> None:
    rows = logits(20)
    best = rows.argmax(1).tolist()
    for params in ({"top_p": 1e-9}, {"top_k": 1}, {"temperature": 1e-6}):
        values = {"temperature": 1.0, **params}
        slices = [piece(SamplingParams(seed=s, **values)) for s in range(20)]  # type: ignore[arg-type]
        assert sample(rows.clone(), slices) == best


def test_a_row_does_not_depend_on_its_company() -> None:
    rows = logits(9, seed=3)
    kinds = [SamplingParams(), SamplingParams(temperature=0.8, top_p=0.9), SamplingParams(temperature=1.2, top_k=5)]
    slices = [piece(kinds[i % 3], position=i, mask=mask_of(*range(i, 60)) if i % 2 else None) for i in range(9)]
    together = sample(rows.clone(), slices)
    assert together == [sample(rows[i : i + 1].clone(), [slices[i]])[0] for i in range(9)]


def test_random_numbers_are_keyed_by_seed_and_position() -> None:
    assert uniform(1, 2) == uniform(1, 2)
    grid = [uniform(seed, position) for seed in range(-50, 50) for position in range(100)]
    assert len(set(grid)) == len(grid)
    assert all(0 <= u < 1 for u in grid)
    assert abs(sum(grid) / len(grid) - 0.5) < 0.01
    pairs = [(uniform(s, p), uniform(s, p + 1)) for s in range(100) for p in range(100)]
    assert abs(np.corrcoef(np.array(pairs).T)[0, 1]) < 0.03
