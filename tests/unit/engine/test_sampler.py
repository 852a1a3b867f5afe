from typing import Any

import numpy as np
import pytest
import torch

from tenuto.engine.batch import SeenTokens, SequenceSlice
from tenuto.engine.sampler import Sampled, sample, uniform
from tenuto.ids import RequestId, TokenId
from tenuto.protocol.engine import SamplingParams
from tenuto.protocol.grammar import TokenMask

VOCAB = 70  # not a multiple of 32


def piece(params: SamplingParams, position: int = 5, mask: TokenMask | None = None, **more: Any) -> SequenceSlice:
    return SequenceSlice(RequestId("r"), 0, (TokenId(0),), position - 1, (), True, params, mask, **more)


def mask_of(*tokens: int) -> TokenMask:
    bits = np.zeros(96, dtype=np.uint8)
    bits[list(tokens)] = 1
    return np.packbits(bits, bitorder="little").view(np.uint32)


def seen(**counts: int) -> SeenTokens:
    """`seen(t3=2, t5=0)`: id 3 was generated twice, id 5 stands in the prompt."""
    ids = [int(name[1:]) for name in counts]
    return SeenTokens(np.array(ids, dtype=np.int64), np.array(list(counts.values()), dtype=np.int64))


def logits(rows: int = 1, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def choose(rows: torch.Tensor, slices: list[SequenceSlice]) -> Sampled:
    return sample(rows.numpy().copy(), slices)


def frequencies(row: torch.Tensor, params: dict[str, Any], count: int = 4000) -> torch.Tensor:
    slices = [piece(SamplingParams(seed=7, **params), position) for position in range(count)]
    drawn = choose(row.expand(count, -1), slices).ids
    return torch.bincount(torch.tensor(drawn), minlength=VOCAB) / count


def chi_square(found: torch.Tensor, wanted: torch.Tensor, count: int = 4000) -> tuple[float, float]:
    """The statistic, and the bound it stays under in all but 1 of 10,000 cases (Wilson and Hilferty 1931).

    Tokens expected less than five times are taken together.
    """
    usual = wanted * count >= 5
    seen_counts = torch.cat((found[usual], found[~usual].sum()[None])) * count
    expected = torch.cat((wanted[usual], wanted[~usual].sum()[None])) * count
    kept = expected > 0
    assert not bool(seen_counts[~kept].any()), "what has no probability was drawn"
    statistic = float(((seen_counts - expected)[kept] ** 2 / expected[kept]).sum())
    degrees = int(kept.sum()) - 1
    bound = degrees * (1 - 2 / (9 * degrees) + 3.719 * (2 / (9 * degrees)) ** 0.5) ** 3
    return statistic, bound


def test_greedy_takes_the_largest() -> None:
    rows = logits(4)
    slices = [piece(SamplingParams(top_k=3, min_p=0.5, seed=s)) for s in range(4)]
    assert choose(rows, slices).ids == rows.argmax(1).tolist()


def test_greedy_alone_looks_at_the_batch_once() -> None:
    passes: list[str] = []

    class Watched(np.ndarray[Any, Any]):
        def argmax(self, *args: Any, **kwargs: Any) -> Any:
            passes.append("argmax")
            return np.asarray(self).argmax(*args, **kwargs)

        def __getitem__(self, key: Any) -> Any:
            return np.asarray(self)[key]

        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
            passes.append(ufunc.__name__)
            return getattr(ufunc, method)(*map(np.asarray, inputs), **kwargs)

        def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            passes.append(func.__name__)
            return func(*map(np.asarray, args), **kwargs)

    rows = logits(8)
    chosen = sample(rows.numpy().view(Watched), [piece(SamplingParams(seed=s)) for s in range(8)])
    assert passes == ["argmax"]
    assert chosen.ids == rows.argmax(1).tolist() and chosen.logprobs == [()] * 8


def test_of_equals_the_lowest_id_wins() -> None:
    row = torch.zeros(1, VOCAB)
    row[0, [9, 30, 31]] = 2.0
    assert choose(row, [piece(SamplingParams())]).ids == [9]
    for params, wanted in (({"top_k": 2}, {9, 30}), ({"top_p": 0.1}, set(range(7)))):
        values = row if params == {"top_k": 2} else torch.zeros(1, VOCAB)
        slices = [piece(SamplingParams(temperature=1, **params), p) for p in range(99)]  # type: ignore[arg-type]
        assert set(choose(values.expand(99, -1), slices).ids) == wanted


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_masks_allow_only_their_tokens(temperature: float) -> None:
    params = [piece(SamplingParams(temperature=temperature, seed=s), mask=mask_of(3, 69)) for s in range(50)]
    drawn = choose(logits(50), params).ids
    assert set(drawn) == {3, 69}
    only = choose(logits(2), [piece(SamplingParams(temperature=temperature), mask=mask_of(t)) for t in (0, 31)])
    assert only.ids == [0, 31]


@pytest.mark.parametrize("temperature", [0.7, 1.0, 2.0])
def test_draws_follow_the_distribution(temperature: float) -> None:
    row = logits()
    found = frequencies(row, {"temperature": temperature})
    statistic, bound = chi_square(found, torch.softmax(row[0] / temperature, -1))
    assert statistic < bound
    # The test can fail: another temperature is told apart.
    assert chi_square(found, torch.softmax(row[0] / temperature / 1.15, -1))[0] > bound


def test_cuts_renormalise() -> None:
    row = logits()
    order = row[0].argsort(descending=True)
    weights = torch.softmax(row[0], -1)[order]
    num_top_p = int((weights.cumsum(0) < 0.6).sum()) + 1
    num_min_p = int((weights >= 0.1 * weights[0]).sum())
    assert num_min_p > 4
    for params, kept in (({"top_k": 4}, 4), ({"top_p": 0.6}, num_top_p), ({"min_p": 0.1}, num_min_p)):
        wanted = torch.zeros(VOCAB)
        wanted[order[:kept]] = weights[:kept] / weights[:kept].sum()
        statistic, bound = chi_square(frequencies(row, {"temperature": 1.0, **params}), wanted)
        assert statistic < bound, params


def test_top_p_of_a_flat_distribution() -> None:
    rows = torch.linspace(0, 1, 3000).expand(300, -1)
    for top_p, least in ((0.05, 2800), (0.5, 1200), (0.999, 0)):
        slices = [piece(SamplingParams(temperature=1.0, top_p=top_p, seed=s)) for s in range(300)]
        drawn = [token for token in choose(rows, slices).ids if token is not None]
        weights = torch.softmax(rows[0].double(), -1)
        kept = 3000 - int((weights.flip(0).cumsum(0) < top_p).sum()) - 1
        assert min(drawn) >= kept >= least and min(drawn) < kept + 200


def test_a_tiny_top_p_or_temperature_is_greedy() -> None:
    rows = logits(20)
    best = rows.argmax(1).tolist()
    for params in ({"top_p": 1e-9}, {"top_k": 1}, {"temperature": 1e-6}, {"temperature": 5e-324}, {"min_p": 1.0}):
        values = {"temperature": 1.0, **params}
        slices = [piece(SamplingParams(seed=s, **values)) for s in range(20)]  # type: ignore[arg-type]
        assert choose(rows, slices).ids == best


def test_bias_and_penalties_turn_the_choice() -> None:
    row = torch.full((1, VOCAB), -5.0)
    row[0, 3], row[0, 5], row[0, 7] = 4.0, 3.0, -1.0
    cases = [
        (SamplingParams(), None, 3),
        (SamplingParams(logit_bias=((TokenId(7), 5.5),)), None, 7),
        (SamplingParams(logit_bias=((TokenId(3), -100.0), (TokenId(5), -100.0))), None, 7),
        (SamplingParams(repetition_penalty=1.5), seen(t3=0), 5),
        (SamplingParams(repetition_penalty=1.5), seen(t3=0, t5=2), 3),
        (SamplingParams(presence_penalty=1.5), seen(t3=1), 5),
        (SamplingParams(presence_penalty=1.5), seen(t3=0, t5=1), 3),  # the prompt does not count
        (SamplingParams(frequency_penalty=0.6), seen(t3=1), 3),
        (SamplingParams(frequency_penalty=0.6), seen(t3=2), 5),
        (SamplingParams(frequency_penalty=-2.0), seen(t7=3), 7),  # 5.0, after -1
        (SamplingParams(repetition_penalty=1.5), seen(), 3),
    ]
    for params, counts, wanted in cases:
        assert choose(row, [piece(params, seen=counts)]).ids == [wanted], params


def test_log_probabilities_are_of_the_raw_logits() -> None:
    row = logits()
    params = SamplingParams(temperature=2.0, logit_bias=((TokenId(8), 100.0),), repetition_penalty=2.0)
    chosen = choose(row, [piece(params, seen=seen(t1=1), mask=mask_of(8), logprobs=3)])
    scores = torch.log_softmax(row[0].double(), -1)
    ((one,),) = chosen.logprobs
    assert chosen.ids == [8] and one is not None and not one.forced
    assert one.logprob == pytest.approx(float(scores[8]), abs=1e-5)
    best = scores.argsort(descending=True)[:3]
    assert [token for token, _ in one.top] == best.tolist()
    assert [score for _, score in one.top] == pytest.approx(scores[best].tolist(), abs=1e-5)


def test_only_those_who_ask_get_log_probabilities() -> None:
    chosen = choose(logits(3), [piece(SamplingParams(), logprobs=n) for n in (None, 0, 20)])
    assert [[len(one.top) for one in scores] for scores in chosen.logprobs] == [[], [0], [20]]
    everything = choose(logits(), [piece(SamplingParams(), logprobs=VOCAB)]).logprobs[0][0]
    assert everything is not None and sum(np.exp([s for _, s in everything.top])) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_rows_without_finite_numbers_choose_nothing_and_harm_nobody(bad: float) -> None:
    rows = logits(3)
    rows[1, 4] = bad
    for params in (SamplingParams(), SamplingParams(temperature=1.0, top_p=0.5)):
        chosen = choose(rows, [piece(params, logprobs=1) for _ in range(3)])
        assert chosen.ids[1] is None and chosen.logprobs[1] == ()
        assert chosen.ids[0] is not None and chosen.ids[2] is not None


def test_a_mask_that_leaves_only_impossible_tokens_chooses_nothing() -> None:
    row = logits()
    row[0, 3] = -torch.inf
    for temperature in (0.0, 1.0):
        chosen = choose(row, [piece(SamplingParams(temperature=temperature), mask=mask_of(3))])
        assert chosen.ids == [None]


def test_a_row_does_not_depend_on_its_company() -> None:
    rows = logits(12, seed=3)
    kinds = [
        SamplingParams(),
        SamplingParams(temperature=0.8, top_p=0.9),
        SamplingParams(temperature=1.2, top_k=5),
        SamplingParams(temperature=0.9, min_p=0.1, repetition_penalty=1.3, frequency_penalty=0.5),
    ]
    slices = [
        piece(
            kinds[i % 4],
            position=i,
            mask=mask_of(*range(i, 60)) if i % 2 else None,
            seen=seen(t1=1, t40=0, t9=i) if kinds[i % 4].has_penalties else None,
            logprobs=i if i % 3 else None,
        )
        for i in range(12)
    ]
    together = choose(rows, slices)
    alone = [choose(rows[i : i + 1], [slices[i]]) for i in range(12)]
    assert together.ids == [one.ids[0] for one in alone]
    assert together.logprobs == [one.logprobs[0] for one in alone]


def test_random_numbers_are_keyed_by_seed_and_position() -> None:
    assert uniform(1, 2) == uniform(1, 2)
    grid = [uniform(seed, position) for seed in range(-50, 50) for position in range(100)]
    assert len(set(grid)) == len(grid)
    assert all(0 <= u < 1 for u in grid)
    assert abs(sum(grid) / len(grid) - 0.5) < 0.01
    pairs = [(uniform(s, p), uniform(s, p + 1)) for s in range(100) for p in range(100)]
    assert abs(np.corrcoef(np.array(pairs).T)[0, 1]) < 0.03


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["plain", "penalised", "masked", "biased", "scored", "everything"])
def test_drafts_are_verified_as_tokens_are_chosen_one_by_one(kind: str, temperature: float) -> None:
    """Whatever is asked for: position, counts and mask are those of the row."""
    every = kind == "everything"
    penalties = {"presence_penalty": 1.5, "repetition_penalty": 1.3} if every or kind == "penalised" else {}
    bias = ((TokenId(4), 3.0),) if every or kind == "biased" else ()
    params = SamplingParams(temperature=temperature, seed=4, logit_bias=bias, **penalties)  # type: ignore[arg-type]
    masks = [mask_of(*range(n, 70, 2)) for n in range(6)] if every or kind == "masked" else None
    logprobs = 3 if every or kind == "scored" else None
    counts = seen(t4=1, t9=0) if penalties else None
    rows = logits(6, seed=8)
    one_by_one: list[TokenId] = []
    scores = []
    for row in range(6):
        counted = None if counts is None else counts.after(one_by_one)
        mask = None if masks is None else masks[row]
        alone = choose(rows[row : row + 1], [piece(params, 20 + row, mask, seen=counted, logprobs=logprobs)])
        one_by_one.append(TokenId(alone.ids[0] or 0))
        scores += alone.logprobs[0]
    for num_right in range(6):
        drafts = [*one_by_one[:num_right], *(TokenId((t + 1) % VOCAB) for t in one_by_one[num_right:5])]
        one = SequenceSlice(
            RequestId("r"),
            0,
            (TokenId(0), *drafts),
            19,
            (),
            True,
            params,
            None if masks is None else masks[0],
            counts,
            logprobs,
            num_drafts=5,
            draft_masks=() if masks is None else tuple(masks[1:]),
        )
        other = piece(SamplingParams())  # its row comes after
        found = choose(torch.cat((rows, logits(seed=1))), [one, other])
        assert found.num_accepted == [num_right, 0]
        assert found.ids == [one_by_one[num_right], int(logits(seed=1).argmax())]
        assert found.logprobs == [tuple(scores[: num_right + 1]) if logprobs is not None else (), ()]


def test_seen_tokens_after_more() -> None:
    after = seen(t3=2, t5=0).after([TokenId(5), TokenId(8), TokenId(5)])
    assert dict(zip(after.ids.tolist(), after.counts.tolist(), strict=True)) == {3: 2, 5: 2, 8: 1}
    same = seen(t3=2)
    assert same.after(()) is same


def test_a_masked_row_whose_likeliest_id_is_allowed_is_left_as_it_is() -> None:
    rows = logits().numpy().copy()
    best = int(rows.argmax())
    before = rows.copy()
    assert sample(rows, [piece(SamplingParams(), mask=mask_of(best, 3))]).ids == [best]
    assert (rows == before).all()
    assert sample(rows, [piece(SamplingParams(), mask=mask_of(*{3, 69} - {best}))]).ids[0] in {3, 69}
