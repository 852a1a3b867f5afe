"""What the engine's process is told of the settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenuto.config import Config
from tenuto.wiring_process import settings_of


def test_settings_arrive_as_they_are_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config.load(
        model="模型.gguf",
        precision="int8",
        kv_type="int8",
        packed_cache=Path("off"),
        max_model_tokens=512,
        num_threads=None,
        check_memory=False,
        policy="fcfs",
    )
    crossed = json.loads(json.dumps(settings_of(config)))
    for name, value in {"MODEL": "another", "PRECISION": "bf16", "MAX_MODEL_TOKENS": "64", "POLICY": "agent"}.items():
        monkeypatch.setenv(f"TENUTO_{name}", value)
    monkeypatch.setenv("TENUTO_NUM_THREADS", "7")
    # None was meant by whoever started the server; the environment of the engine's process is the same.
    assert Config(**crossed) == config


def test_no_secret_is_among_them() -> None:
    config = Config.load(hf_token="hf_geheim")
    assert config.hf_token is not None
    crossed = settings_of(config)
    assert "hf_token" not in crossed and "geheim" not in repr(crossed)
    assert set(Config.model_fields) - set(crossed) <= {
        name for name, field in Config.model_fields.items() if "Secret" in str(field.annotation)
    }
