"""The part of the composition root that keeps prepared weights."""

from __future__ import annotations

import time

from tenuto.config import Config
from tenuto.model import PackedCache, PackedCacheLimits
from tenuto.wiring_hub import packed_folder


def packed_cache(config: Config) -> PackedCache | None:
    """The cache of prepared weights as configured; None if it is off."""
    folder = packed_folder(config)
    return None if folder is None else PackedCache(folder, PackedCacheLimits(config.max_packed_cache_bytes), time.time)
