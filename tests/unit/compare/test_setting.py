"""What A and B may look like, and what they must not."""

from __future__ import annotations

import pytest

from tenuto.compare.setting import parse_setting
from tenuto.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fp32", {"precision": "fp32", "kv_type": "float"}),
        ("int8/int8", {"precision": "int8", "kv_type": "int8"}),
        (" int8/float ", {"precision": "int8", "kv_type": "float"}),
        ("precision=int8,kv_type=int8", {"precision": "int8", "kv_type": "int8"}),
        ("int8/int8,threads=3", {"precision": "int8", "kv_type": "int8", "num_threads": 3}),
        ("model=/模型/a,b.gguf,precision=bf16", {"model": "/模型/a,b.gguf", "precision": "bf16"}),
        ("model=hf:org/name=x", {"model": "hf:org/name=x"}),
        ("prefix_cache=false", {"prefix_cache": False}),
    ],
)
def test_settings_are_read(text: str, expected: dict[str, object]) -> None:
    config = parse_setting(text).config()
    assert {name: getattr(config, name) for name in expected} == expected


def test_a_precision_brings_its_own_type_of_kv(monkeypatch: pytest.MonkeyPatch) -> None:
    """`compare fp32 int8/int8` must mean the same whatever the environment says."""
    monkeypatch.setenv("TENUTO_PRECISION", "int8")
    monkeypatch.setenv("TENUTO_KV_TYPE", "int8")
    assert parse_setting("fp32").config().kv_type == "float"
    assert parse_setting("model=x").config().kv_type == "int8"


def test_what_is_typed_wins_over_what_both_share() -> None:
    setting = parse_setting("fp32,model=mine")
    assert setting.config(model="shared", num_threads=2).model == "mine"
    assert setting.config(model="shared", num_threads=2).num_threads == 2


def test_the_device_may_be_the_one_that_defines_the_precision() -> None:
    assert parse_setting("int8/int8,device=reference").device == "reference"
    assert parse_setting("int8").device == parse_setting("int8,device=best").device == "best"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no precision"),
        ("int3", "'int3' is no precision"),
        ("int8/fp64", "is no precision"),
        ("int8/", "is no precision"),
        ("fp32,bf16", "'fp32,bf16' is no precision"),
        ("speed=9", "'speed=9' is no setting"),
        ("精度=int8", "is no setting"),
        ("=int8", "is no setting"),
        ("fp32,precision=int8", "precision is given twice"),
        ("device=npu", "'npu' is neither best nor reference"),
    ],
)
def test_others_are_refused_with_the_part_that_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_setting(text)


def test_a_value_out_of_range_is_named() -> None:
    with pytest.raises(ConfigError, match="setting num_threads"):
        parse_setting("int8,threads=0").config()
