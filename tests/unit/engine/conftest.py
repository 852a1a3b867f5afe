from __future__ import annotations

from collections.abc import Callable

import pytest

from tenuto.engine import EngineConfig
from tenuto.testing.engine_driver import EngineDriver


@pytest.fixture
def make_driver() -> Callable[..., EngineDriver]:
    """Builds an engine over a fake executor: blocks of 4 tokens, 50 ids, no surprises."""

    def make(**changes: object) -> EngineDriver:
        values: dict[str, object] = {
            "num_blocks": 64,
            "block_size": 4,
            "vocab_size": 50,
            "max_model_tokens": 400,
            "max_batch_tokens": 64,
            "max_chunk_tokens": 32,
            "max_running": 16,
            "max_waiting": 64,
        }
        return EngineDriver(EngineConfig(**{**values, **changes}))  # type: ignore[arg-type]

    return make
