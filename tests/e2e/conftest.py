"""Tests of the real process and the real small model. The model is loaded once; each test starts its own engine.

In INT8, which computes several times as fast as fp32; the processes that tests start with no precision have fp32."""

from __future__ import annotations

import pytest

from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.wiring import LoadedModel, load


@pytest.fixture(scope="session")
def config() -> Config:
    return Config.load(kv_tokens=8192, precision="int8")


@pytest.fixture(scope="session")
def loaded(config: Config) -> LoadedModel:
    return load(config, RealClock())
