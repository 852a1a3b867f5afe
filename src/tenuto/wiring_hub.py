"""The part of the composition root that needs no torch: the caches' places and the hubs, from the settings."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tenuto.config import Config
from tenuto.hub import HubSettings, ModelStore, default_cache_folder, open_store


def model_store(config: Config) -> ModelStore:
    """The cache of models and the hubs, as configured. Close it, or use it in a `with`."""
    folder = config.model_cache or default_cache_folder(os.environ, sys.platform, Path.home())
    return open_store(
        HubSettings(
            cache=folder.expanduser(),
            hf_endpoint=config.hf_endpoint,
            ms_endpoint=config.ms_endpoint,
            hf_token=config.hf_token.get_secret_value() if config.hf_token else None,
            offline=config.offline,
        )
    )


def packed_folder(config: Config) -> Path | None:
    """Where prepared weights are kept; None: nowhere."""
    if config.packed_cache == Path("off"):
        return None
    folder = config.packed_cache or default_cache_folder(os.environ, sys.platform, Path.home()).with_name("packed")
    return folder.expanduser()
