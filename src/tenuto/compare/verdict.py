"""What a comparison means: the rules, with their thresholds, by which a setting is called unsafe or another model."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.compare.accuracy import SURE
from tenuto.compare.report import CallReport, CopyReport, TextReport, Verdict

MAX_LOST_COPIES = 0.02  # of the lines that A copies exactly, those that B does not
MAX_SURE_FLIPS = 0.001  # of the tokens that A is sure of: of lines and calls of 30 tokens, 3 % would break
MIN_SAME_CALLS = 0.98  # of tool calls
MAX_MEAN_KL = 0.01  # nats a token, on each text
MAX_PERPLEXITY_CHANGE = 0.0075  # either way, on each text


def judge(
    texts: Sequence[TextReport], copies: Sequence[CopyReport], calls: CallReport | None, *, all_measured: bool
) -> Verdict:
    """Unsafe for exact numbers and code: lost copies, flips where A is sure, other tool calls, numbers that are none.

    Args:
        all_measured: whether texts, copies and calls were all asked for: "safe" needs all, "unsafe" only one.
    """
    broken = [f"{t.text}: {t.num_broken} tokens have no finite probabilities" for t in texts if t.num_broken]
    exact = [*broken, *_flips(texts), *_lost(copies), *_calls(calls)]
    close = [*broken, *_distance(texts)]
    return Verdict(
        is_safe_for_exact=False if exact else (True if all_measured else None),
        is_close=None if not texts else not close,
        reasons=tuple(dict.fromkeys((*exact, *close))),
    )


def _flips(texts: Sequence[TextReport]) -> list[str]:
    return [
        f"{t.text}: of {t.num_sure} tokens that A is at least {SURE:.0%} sure of, B chooses another for "
        f"{t.num_sure_flips}, more than {MAX_SURE_FLIPS:.1%}"
        for t in texts
        if t.num_sure_flips > MAX_SURE_FLIPS * t.num_sure
    ]


def _lost(copies: Sequence[CopyReport]) -> list[str]:
    num_exact, num_lost = sum(c.num_exact_a for c in copies), sum(len(c.lost) for c in copies)
    if num_lost <= MAX_LOST_COPIES * num_exact:
        return []
    return [
        f"copies: of {num_exact} lines that A copies exactly, B gets {num_lost} wrong, more than {MAX_LOST_COPIES:.0%}"
    ]


def _calls(calls: CallReport | None) -> list[str]:
    if calls is None or calls.agreement >= MIN_SAME_CALLS:
        return []
    return [f"tool calls: {calls.agreement:.1%} are the same, fewer than {MIN_SAME_CALLS:.0%}"]


def _distance(texts: Sequence[TextReport]) -> list[str]:
    far = [f"{t.text}: mean KL {t.mean_kl:.4f} is above {MAX_MEAN_KL}" for t in texts if not t.mean_kl <= MAX_MEAN_KL]
    return far + [
        f"{t.text}: perplexity changes by {t.perplexity_change:+.2%}, more than {MAX_PERPLEXITY_CHANGE:.2%}"
        for t in texts
        if not abs(t.perplexity_change) <= MAX_PERPLEXITY_CHANGE
    ]
