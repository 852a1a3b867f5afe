"""How far B's predictions are from A's, token by token: perplexity, KL divergence, the likeliest token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tenuto.compare.report import Bucket, LayerReport, TextReport
from tenuto.compare.steps import Head

SURE = 0.9  # probability of its likeliest token from which A counts as sure of it
PARTING_ERROR = 0.02  # relative error of the hidden states from which the sides have parted
BUCKET_STARTS = (0, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
ROWS = 128  # logits of so many tokens are in memory at once
_TINY = 1e-30


@dataclass(frozen=True)
class TokenScores:
    """Both sides on each predicted token: arrays [T]."""

    loss_a: npt.NDArray[np.float64]  # nats: minus the logarithm of what the next token was given
    loss_b: npt.NDArray[np.float64]
    kl: npt.NDArray[np.float64]  # nats
    same: npt.NDArray[np.bool_]
    sure: npt.NDArray[np.bool_]  # A is


@torch.inference_mode()
def token_scores(logits_a: Tensor, logits_b: Tensor, following: Tensor) -> TokenScores:
    """Args:
    logits_a: float32 [T, vocab], as `logits_b`.
    following: int64 [T], the tokens that do come next.
    """
    log_a, log_b = logits_a.log_softmax(-1), logits_b.log_softmax(-1)
    of_a = log_a.exp()
    terms = torch.where(of_a > 0, of_a * (log_a - log_b), torch.zeros(()))  # 0 log 0 is 0
    rows = following[:, None]
    best, place = log_a.max(-1)
    return TokenScores(
        loss_a=-log_a.gather(1, rows)[:, 0].double().numpy(),
        loss_b=-log_b.gather(1, rows)[:, 0].double().numpy(),
        # Each side's probabilities sum to 1 but for rounding, which may make the smallest divergences negative.
        kl=terms.sum(-1).clamp(min=0).double().numpy(),
        same=(place == log_b.argmax(-1)).numpy(),
        sure=(best.exp() >= SURE).numpy(),
    )


def text_scores(a: tuple[Head, Tensor], b: tuple[Head, Tensor], ids: Sequence[int]) -> Iterator[TokenScores]:
    """Scores of a text from the states both sides left of it, a few rows at a time.

    Args:
        a: a side's head and its states, float32 [T, hidden] for the T ids.
    """
    following = torch.tensor(ids[1:])
    for start in range(0, len(following), ROWS):
        rows = slice(start, min(start + ROWS, len(following)))
        yield token_scores(a[0].logits(a[1][rows]), b[0].logits(b[1][rows]), following[rows])


def text_report(name: str, parts: Sequence[TokenScores]) -> TextReport:
    loss_a, loss_b, kl = (np.concatenate([getattr(p, f) for p in parts]) for f in ("loss_a", "loss_b", "kl"))
    same, sure = (np.concatenate([getattr(p, f) for p in parts]) for f in ("same", "sure"))
    whole = np.isfinite(kl) & np.isfinite(loss_a) & np.isfinite(loss_b)
    perplexity_a, perplexity_b = float(np.exp(loss_a.mean())), float(np.exp(loss_b.mean()))
    return TextReport(
        text=name,
        num_tokens=len(kl),
        perplexity_a=perplexity_a,
        perplexity_b=perplexity_b,
        perplexity_change=perplexity_b / perplexity_a - 1,
        perplexity_change_error=_change_error(loss_a, loss_b),
        mean_kl=float(kl.mean()),
        p99_kl=float(np.quantile(kl, 0.99, method="higher")),
        same_top=float(same.mean()),
        num_sure=int(sure.sum()),
        num_sure_flips=int((sure & ~same).sum()),
        num_broken=int((~whole).sum()),
        buckets=_buckets(kl, same),
    )


def _change_error(loss_a: npt.NDArray[np.float64], loss_b: npt.NDArray[np.float64]) -> float:
    """The change is exp(mean of the differences) - 1; its error that of the mean, for tokens that differ by chance."""
    differences = loss_b - loss_a
    if len(differences) < 2 or not np.isfinite(differences).all():
        return float("nan")
    return float(np.exp(differences.mean()) * differences.std(ddof=1) / np.sqrt(len(differences)))


def _buckets(kl: npt.NDArray[np.float64], same: npt.NDArray[np.bool_]) -> tuple[Bucket, ...]:
    found = []
    for start, end in zip(BUCKET_STARTS, (*BUCKET_STARTS[1:], len(kl)), strict=True):
        if start < len(kl):
            rows = slice(start, min(end, len(kl)))
            found.append(
                Bucket(
                    start=start,
                    end=rows.stop,
                    num_tokens=rows.stop - start,
                    mean_kl=float(kl[rows].mean()),
                    same_top=float(same[rows].mean()),
                )
            )
    return tuple(found)


def layer_report(a: Sequence[Tensor], b: Sequence[Tensor], threshold: float = PARTING_ERROR) -> LayerReport | None:
    """Of each layer the median over tokens of |a - b| / |a|; None if the models have other layers.

    The median, because the first token of a text is far larger than the others in many models, and an average of
    squares would tell of that one alone.
    """
    if [s.shape for s in a] != [s.shape for s in b]:
        return None
    errors = tuple(map(_relative_error, a, b))
    first = next((i for i, error in enumerate(errors) if not error <= threshold), None)
    return LayerReport(num_tokens=len(a[0]), errors=errors, threshold=threshold, first=first)


def _relative_error(a: Tensor, b: Tensor) -> float:
    return float(((a - b).norm(dim=-1) / a.norm(dim=-1).clamp(min=_TINY)).median())
