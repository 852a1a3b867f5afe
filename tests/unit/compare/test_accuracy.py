"""Perplexity, KL divergence and agreement against their textbook forms, and what becomes of odd logits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tenuto.compare.accuracy import SURE, layer_report, text_report, token_scores

VOCAB = 31


def logits(seed: int, rows: int = 40, size: float = 3.0) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * size


FOLLOWING = torch.randint(0, VOCAB, (40,), generator=torch.Generator().manual_seed(9))


def test_scores_are_torchs_cross_entropy_and_divergence() -> None:
    a, b = logits(1), logits(1) + logits(2, size=0.3)
    scores = token_scores(a, b, FOLLOWING)
    for found, of in ((scores.loss_a, a), (scores.loss_b, b)):
        assert np.allclose(found, torch.nn.functional.cross_entropy(of, FOLLOWING, reduction="none"), atol=1e-5)
    divergence = torch.nn.functional.kl_div(b.log_softmax(-1), a.log_softmax(-1), reduction="none", log_target=True)
    assert np.allclose(scores.kl, divergence.sum(-1), atol=1e-5)
    assert (scores.same == (a.argmax(-1) == b.argmax(-1)).numpy()).all()
    assert (scores.sure == (a.softmax(-1).amax(-1) >= SURE).numpy()).all()


def test_divergence_is_from_a_to_b() -> None:
    a, b = torch.tensor([[5.0, 0.0]]), torch.tensor([[0.0, 0.0]])
    there, back = (token_scores(x, y, torch.tensor([0])).kl[0] for x, y in ((a, b), (b, a)))
    p = 1 / (1 + math.exp(-5))
    assert there == pytest.approx(p * math.log(2 * p) + (1 - p) * math.log(2 * (1 - p)), abs=1e-6)
    assert back > there


def test_a_report_sums_up_its_parts_wherever_they_are_cut() -> None:
    a, b = logits(1), logits(1) + logits(2, size=0.3)
    whole = text_report("文", [token_scores(a, b, FOLLOWING)])
    cut = text_report("文", [token_scores(a[r], b[r], FOLLOWING[r]) for r in (slice(0, 7), slice(7, 40))])
    assert cut == whole
    assert whole.perplexity_a == pytest.approx(float(torch.nn.functional.cross_entropy(a, FOLLOWING).exp()), rel=1e-5)
    assert whole.perplexity_change == pytest.approx(whole.perplexity_b / whole.perplexity_a - 1)
    scores = token_scores(a, b, FOLLOWING)
    differences = scores.loss_b - scores.loss_a
    expected = (1 + whole.perplexity_change) * differences.std(ddof=1) / 40**0.5
    assert whole.perplexity_change_error == pytest.approx(expected, rel=1e-6)
    assert whole.num_tokens == 40 and whole.num_broken == 0 and whole.mean_kl <= whole.p99_kl


def test_a_side_against_itself_differs_in_nothing() -> None:
    same = text_report("t", [token_scores(logits(1), logits(1), FOLLOWING)])
    assert (same.mean_kl, same.p99_kl, same.perplexity_change, same.same_top) == (0, 0, 0, 1)
    assert same.num_sure_flips == 0


def test_a_flip_counts_only_where_a_is_sure() -> None:
    sure, unsure = torch.tensor([9.0, 0.0, 0.0]), torch.tensor([1.0, 0.9, 0.0])
    other = torch.tensor([[0.0, 9.0, 0.0]] * 3)
    report = text_report("t", [token_scores(torch.stack([sure, unsure, sure]), other, torch.tensor([0, 0, 0]))])
    assert (report.num_sure, report.num_sure_flips, report.same_top) == (2, 2, 0)


def test_positions_fall_into_buckets() -> None:
    rows = 1000
    a = logits(3, rows)
    b = a.clone()
    b[600] = -a[600]  # one token that B has wrong
    report = text_report("t", [token_scores(a, b, torch.zeros(rows, dtype=torch.int64))])
    assert [(p.start, p.end, p.num_tokens) for p in report.buckets] == [
        (0, 256, 256),
        (256, 512, 256),
        (512, 1000, 488),
    ]
    assert [p.mean_kl > 0 for p in report.buckets] == [False, False, True]
    assert sum(p.mean_kl * p.num_tokens for p in report.buckets) == pytest.approx(report.mean_kl * rows)
    assert report.buckets[2].same_top == pytest.approx(487 / 488)


def test_words_that_a_never_says_cost_nothing_and_those_that_b_cannot_say_are_told() -> None:
    never = torch.tensor([[0.0, -torch.inf, 1.0]])
    assert token_scores(never, never, torch.tensor([0])).kl[0] == 0
    report = text_report("t", [token_scores(torch.zeros(1, 3), never, torch.tensor([0]))])
    assert report.mean_kl == math.inf and report.num_broken == 1


def test_numbers_that_are_none_are_counted() -> None:
    b = logits(1)
    b[3, 5] = torch.nan
    report = text_report("t", [token_scores(logits(1), b, FOLLOWING)])
    assert report.num_broken == 1 and math.isnan(report.mean_kl)


def test_layers_part_at_the_first_above_the_threshold() -> None:
    a = [torch.ones(5, 4), torch.ones(5, 4), torch.ones(5, 4)]
    b = [a[0], a[1] * 1.01, a[2] * 1.10]
    report = layer_report(a, b, threshold=0.05)
    assert report is not None
    assert report.errors == pytest.approx([0, 0.01, 0.10], abs=1e-6) and report.first == 2
    assert (nowhere := layer_report(a, b, threshold=0.2)) is not None and nowhere.first is None
    b[1] = a[1] * torch.nan
    assert (broken := layer_report(a, b)) is not None and broken.first == 1


def test_one_large_token_does_not_hide_the_others() -> None:
    a = torch.ones(5, 4)
    a[0] = 1e6
    b = a.clone()
    b[1:] *= 1.1
    report = layer_report([a], [b])
    assert report is not None and report.errors[0] == pytest.approx(0.1, abs=1e-6)


def test_other_layers_are_not_compared() -> None:
    assert layer_report([torch.ones(5, 4)] * 2, [torch.ones(5, 4)] * 3) is None
    assert layer_report([torch.ones(5, 4)], [torch.ones(5, 8)]) is None
