"""What the composition root makes of the settings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tenuto.config import Config
from tenuto.wiring import engine_config


def loaded(*, row_invariant: bool) -> Any:
    device = SimpleNamespace(block_size=16, row_invariant=row_invariant)
    sizes = SimpleNamespace(max_model_tokens=2048, vocab_size=100)
    return SimpleNamespace(decoder=SimpleNamespace(device=device, config=sizes, kv_bytes_per_token=lambda: 1))


@pytest.mark.parametrize(
    ("setting", "row_invariant", "wanted"),
    [("suffix", True, "suffix"), ("suffix", False, "off"), ("off", True, "off"), (None, True, "suffix")],
)
def test_drafts_are_made_where_they_change_nothing(setting: str | None, row_invariant: bool, wanted: str) -> None:
    config = Config.load(speculation=setting, max_draft_tokens=5)
    sizes = engine_config(loaded(row_invariant=row_invariant), config)
    assert (sizes.speculation, sizes.max_draft_tokens) == (wanted, 5)
