"""A model put together from its own files, or from what an earlier start has prepared of them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import tenuto
from tenuto.checkpoint.identity import files_identity
from tenuto.device.packing import PackingDevice
from tenuto.device.protocol import Device
from tenuto.model.packed_cache import PackedCache
from tenuto.model.packed_file import PackedFileError
from tenuto.model.weights import PackedWeights, ReadWeights, RecordedWeights, Weights, WeightSource

# Raise it when a checkpoint's tensors come to be read as other values: files kept before are then no longer found.
READING_VERSION = 1

T = TypeVar("T")


class NamedSource(WeightSource, Protocol):
    @property
    def name(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...


def with_weights(
    source: NamedSource,
    expected: Mapping[str, tuple[int, ...]],
    device: Device,
    cache: PackedCache | None,
    assemble: Callable[[Weights], T],
) -> T:
    """Call `assemble` with the weights, which must take each of them; returns what it returns.

    Args:
        expected: neutral name -> shape of every weight.
        cache: where prepared weights are looked for and kept, if the device can give them away; None: nowhere.

    Raises:
        ModelFileError: see `ReadWeights`.
    """
    read = ReadWeights(source, expected, device)
    if cache is None or not isinstance(device, PackingDevice):
        return _complete(assemble, read)
    key = cache_key(source, device, device.packed_format)
    if (file := cache.find(key)) is not None:
        try:
            return _complete(assemble, PackedWeights(file, expected, device))
        except PackedFileError as error:
            cache.reject(key, error)
    recorded = RecordedWeights(read, device)
    whole = _complete(assemble, recorded)
    cache.keep(key, f"{source.name} ({device.precision})", recorded.parts)
    return whole


def cache_key(source: NamedSource, device: Device, packed_format: str) -> str:
    """64 hex digits that differ whenever the prepared weights might."""
    parts = (
        source.fingerprint,
        files_identity(source.path),
        f"{tenuto.__version__} {READING_VERSION}",
        f"{device.name} {device.precision} {packed_format}",
        sys.byteorder,
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _complete(assemble: Callable[[Weights], T], weights: Weights) -> T:
    whole = assemble(weights)
    weights.finish()
    return whole
