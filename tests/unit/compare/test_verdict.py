"""The rules by which a setting is unsafe or too far away, and what a script may demand."""

from __future__ import annotations

import math
import re

import msgspec
import pytest

from tenuto.compare.plan import PARTS, Plan, read_parts
from tenuto.compare.report import (
    Bucket,
    CallReport,
    Comparison,
    CopyReport,
    LostCopy,
    SideReport,
    TextReport,
    Verdict,
)
from tenuto.compare.requirements import Requirements, unmet
from tenuto.compare.verdict import judge
from tenuto.errors import ConfigError

TEXT = TextReport(
    text="散文 <prose>",
    num_tokens=5000,
    perplexity_a=10.0,
    perplexity_b=10.05,
    perplexity_change=0.005,
    perplexity_change_error=0.002,
    mean_kl=0.009,
    p99_kl=0.05,
    same_top=0.94,
    num_sure=1000,
    num_sure_flips=1,
    num_broken=0,
    buckets=(
        Bucket(start=0, end=256, num_tokens=256, mean_kl=0.008, same_top=0.9),
        Bucket(start=256, end=512, num_tokens=256, mean_kl=0.01, same_top=0.9),
    ),
)
LOST = LostCopy(text="order 12", wrote="order 13")
COPIES = (CopyReport(kind="numbers", num_lines=60, num_exact_a=50, num_exact_b=50, lost=(LOST,)),)
CALLS = CallReport(num_prompts=100, num_right_a=90, num_right_b=91, num_same=98, different=())


def with_text(**changes: object) -> tuple[TextReport, ...]:
    return (msgspec.structs.replace(TEXT, **changes),)


def test_at_every_threshold_a_setting_is_still_safe_and_close() -> None:
    assert judge((TEXT,), COPIES, CALLS, all_measured=True) == Verdict(
        is_safe_for_exact=True, is_close=True, reasons=()
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mean_kl": 0.0101}, "mean KL 0.0101 is above 0.01"),
        ({"mean_kl": math.nan}, "mean KL nan"),
        ({"perplexity_change": 0.0076}, r"perplexity changes by \+0.76%"),
        ({"perplexity_change": -0.0076}, "perplexity changes by -0.76%"),
    ],
)
def test_beyond_a_threshold_it_is_another_model(changes: dict[str, float], reason: str) -> None:
    verdict = judge(with_text(**changes), COPIES, CALLS, all_measured=True)
    assert verdict.is_close is False and verdict.is_safe_for_exact is True
    assert len(verdict.reasons) == 1 and re.search(reason, verdict.reasons[0])


def test_what_breaks_numbers_and_code_is_told_each_for_itself() -> None:
    flips = judge(with_text(num_sure_flips=2), COPIES, CALLS, all_measured=True)
    lost = judge((TEXT,), (msgspec.structs.replace(COPIES[0], lost=(LOST, LOST)),), CALLS, all_measured=True)
    calls = judge((TEXT,), COPIES, msgspec.structs.replace(CALLS, num_same=97), all_measured=True)
    for verdict, reason in ((flips, "chooses another for 2"), (lost, "gets 2 wrong"), (calls, "97.0% are the same")):
        assert verdict.is_safe_for_exact is False and verdict.is_close is True
        assert len(verdict.reasons) == 1 and reason in verdict.reasons[0]


def test_numbers_that_are_none_are_neither_safe_nor_close() -> None:
    verdict = judge(with_text(num_broken=3), COPIES, CALLS, all_measured=True)
    assert verdict.is_safe_for_exact is False and verdict.is_close is False
    assert verdict.reasons == ("散文 <prose>: 3 tokens have no finite probabilities",)


def test_a_part_that_was_left_out_leaves_the_question_open() -> None:
    assert judge((TEXT,), (), None, all_measured=False).is_safe_for_exact is None
    assert judge((), (), CALLS, all_measured=False).is_close is None
    assert judge(with_text(num_sure_flips=9), (), None, all_measured=False).is_safe_for_exact is False


def side(setting: str) -> SideReport:
    return SideReport(
        setting=setting,
        model="m",
        device="cpu",
        precision="int8",
        kv_type="int8",
        weight_bytes=10,
        kv_bytes_per_token=4,
        loaded_bytes=None,
    )


def comparison(**changes: object) -> Comparison:
    found = Comparison(
        a=side("fp32"),
        b=side("model=<b> & co"),
        texts=(TEXT,),
        copies=COPIES,
        calls=CALLS,
        verdict=judge((TEXT,), COPIES, CALLS, all_measured=True),
    )
    return msgspec.structs.replace(found, **changes)


def test_demands_are_met_up_to_their_number() -> None:
    demands = Requirements(max_kl=0.009, max_ppl=0.5, min_calls=98, exact=True)
    assert unmet(demands, comparison()) == []
    assert unmet(Requirements(), comparison(texts=with_text(mean_kl=9.0, num_broken=5))) == []


def test_what_is_not_met_is_named_with_its_number() -> None:
    assert "mean KL 0.009 is above 0.0089" in unmet(Requirements(max_kl=0.0089), comparison())[0]
    assert "mean KL nan" in unmet(Requirements(max_kl=1), comparison(texts=with_text(mean_kl=math.nan)))[0]
    assert "+0.500 %, more than 0.4 %" in unmet(Requirements(max_ppl=0.4), comparison())[0]
    assert "98.0 % are the same, fewer than 99 %" in unmet(Requirements(min_calls=99), comparison())[0]
    assert unmet(Requirements(min_calls=1), comparison(calls=None)) == ["tool calls could not be compared"]
    unknown = Verdict(is_safe_for_exact=None, is_close=True, reasons=())
    assert "not all was measured" in unmet(Requirements(exact=True), comparison(verdict=unknown))[0]


@pytest.mark.parametrize(
    ("demands", "parts", "message"),
    [
        (Requirements(max_kl=1), ("calls",), "--max-kl needs the part accuracy"),
        (Requirements(max_ppl=1), ("speed",), "--max-ppl needs the part accuracy"),
        (Requirements(min_calls=1), ("accuracy",), "--min-calls needs the part calls"),
        (Requirements(exact=True), ("accuracy", "calls"), "--exact needs the part copies"),
    ],
)
def test_what_is_not_measured_cannot_be_demanded(demands: Requirements, parts: tuple, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        demands.check(Plan(texts=(), parts=parts))
    demands.check(Plan(texts=()))


def test_parts_are_read_in_their_own_order() -> None:
    assert read_parts(None) == PARTS
    assert read_parts("speed, accuracy") == ("accuracy", "speed")
    for wrong in ("acuracy", "accuracy,x", "", ","):
        with pytest.raises(ConfigError, match="--only"):
            read_parts(wrong)


def test_json_has_no_numbers_that_json_lacks() -> None:
    text = msgspec.json.encode(comparison(texts=with_text(mean_kl=math.inf, p99_kl=math.nan))).decode()
    assert '"mean_kl":null' in text and "Infinity" not in text and "NaN" not in text
