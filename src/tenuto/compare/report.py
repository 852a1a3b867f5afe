"""What a comparison found. Every value is of B against A: A is what B is measured by."""

from __future__ import annotations

import msgspec


class SideReport(msgspec.Struct, frozen=True, kw_only=True):
    """One side, and what it takes."""

    setting: str  # as it was given
    model: str
    device: str
    precision: str
    kv_type: str
    weight_bytes: int
    kv_bytes_per_token: int
    loaded_bytes: int | None  # by which the process grew as the model was loaded; None: the system does not say


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens at some positions of a text."""

    start: int
    end: int  # exclusive
    num_tokens: int
    mean_kl: float
    same_top: float


class TextReport(msgspec.Struct, frozen=True, kw_only=True):
    """How far the predictions on one text differ."""

    text: str
    num_tokens: int  # predicted
    perplexity_a: float
    perplexity_b: float
    perplexity_change: float  # b / a - 1
    perplexity_change_error: float  # its standard error: what other texts of this length and kind may differ by
    mean_kl: float  # of A's distribution from B's, in nats a token
    p99_kl: float
    same_top: float  # part of the tokens where both find the same token likeliest
    num_sure: int  # tokens of which A is sure (compare.accuracy.SURE)
    num_sure_flips: int  # of these, where B finds another token likelier
    num_broken: int  # tokens of which either side has no finite number to tell
    buckets: tuple[Bucket, ...]


class LayerReport(msgspec.Struct, frozen=True, kw_only=True):
    """Where the sides part: relative error of the hidden states after the embedding and after each layer."""

    num_tokens: int
    errors: tuple[float, ...]  # [0]: the embedding; [i]: after layer i, counted from 1
    threshold: float
    first: int | None  # the first above the threshold; None: none


class LostCopy(msgspec.Struct, frozen=True, kw_only=True):
    """What A copies exactly and B does not."""

    text: str
    wrote: str  # B, up to and with its first wrong token


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    """Lines copied from the prompt by greedy decoding."""

    kind: str
    num_lines: int
    num_exact_a: int
    num_exact_b: int
    lost: tuple[LostCopy, ...]


class DifferentCall(msgspec.Struct, frozen=True, kw_only=True):
    prompt: str
    a: str
    b: str


class CallReport(msgspec.Struct, frozen=True, kw_only=True):
    """First turns of prompts that want a tool."""

    num_prompts: int
    num_right_a: int  # the one call that answers the question, and nothing else
    num_right_b: int
    num_same: int  # same tool and same parsed arguments, or no call on either side
    different: tuple[DifferentCall, ...]

    @property
    def agreement(self) -> float:
        return self.num_same / self.num_prompts


class SpeedReport(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of step, timed on both sides."""

    what: str
    num_tokens: int  # of a step
    a_s: float  # the fastest round
    b_s: float
    ratio: float  # how many times as fast B is: the median over the rounds if interleaved
    is_interleaved: bool  # False: both models had no room at once, so A was timed first and B later


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What it means; the rules are in compare.verdict. None: what was measured does not tell."""

    is_safe_for_exact: bool | None  # numbers and code that must be right to the last character
    is_close: bool | None
    reasons: tuple[str, ...]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    a: SideReport
    b: SideReport
    texts: tuple[TextReport, ...] = ()
    layers: LayerReport | None = None
    copies: tuple[CopyReport, ...] = ()
    calls: CallReport | None = None
    speeds: tuple[SpeedReport, ...] = ()
    skipped: tuple[str, ...] = ()  # what was wanted and could not be measured, and why
    verdict: Verdict
