"""The part of the composition root that knows where prepared weights are kept."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tenuto.config import Config
from tenuto.hub import default_cache_folder
from tenuto.model import PackedCache, PackedCacheLimits


def packed_cache(config: Config) -> PackedCache | None:
    """The cache of prepared weights as configured; None if it is off."""
    if config.packed_cache == Path("off"):
        return None
    folder = config.packed_cache or default_cache_folder(os.environ, sys.platform, Path.home()).with_name("packed")
    return PackedCache(folder.expanduser(), PackedCacheLimits(config.max_packed_cache_bytes), time.time)
