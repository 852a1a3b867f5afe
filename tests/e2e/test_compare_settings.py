"""`tenuto compare` on the real model: INT8 is near fp32, and the kernels are near their definition."""

from __future__ import annotations

import pytest

from tenuto.checkpoint import find_model
from tenuto.cli.comparison import Side, compare
from tenuto.compare.plan import Plan
from tenuto.compare.setting import parse_setting
from tenuto.compare.texts import shipped_texts

pytestmark = pytest.mark.model


class Unwatched:
    def begin(self, what: str, total: int) -> None: ...

    def advance(self) -> None: ...


def side(text: str) -> Side:
    setting = parse_setting(text)
    return Side(setting, setting.config(kv_tokens=4096), find_model("embedded"))


def test_int8_is_near_fp32_on_prose_and_code() -> None:
    plan = Plan(texts=shipped_texts(), parts=("accuracy", "layers"), max_tokens=192)
    found = compare(side("fp32"), side("int8/int8"), plan, Unwatched())
    for text in found.texts:
        assert 0 < text.mean_kl < 0.05 and abs(text.perplexity_change) < 0.05, text
        assert text.same_top > 0.85 and text.num_broken == 0
        assert 2 < text.perplexity_a < 120  # the model reads both texts well
    assert found.layers is not None and len(found.layers.errors) == 31
    assert found.layers.errors[0] == 0 and found.layers.errors[-1] < 0.2
    assert found.b.weight_bytes < found.a.weight_bytes / 2
    assert found.b.kv_bytes_per_token < 0.52 * found.a.kv_bytes_per_token / 2
