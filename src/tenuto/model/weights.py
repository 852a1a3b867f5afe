"""The tensors of a model file, each handed out once, in the form its device wants."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tenuto.device.protocol import Device, LinearWeight
from tenuto.errors import ModelFileError
from tenuto.model.layers import Norm

_MAX_NAMED = 5


class WeightSource(Protocol):
    """The part of a checkpoint that weights are read from; see `checkpoint.Checkpoint`."""

    @property
    def path(self) -> Path: ...

    def tensor_names(self) -> list[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def read(self, name: str) -> npt.NDArray[np.float32]: ...


class Weights:
    """Hands out each tensor once; all names and shapes are checked before the first is read.

    Raises:
        ModelFileError: a tensor is missing, unexpected, of another shape or unreadable; names file and tensor.
    """

    def __init__(self, source: WeightSource, expected: Mapping[str, tuple[int, ...]], device: Device) -> None:
        self._source = source
        self._device = device
        if problems := tensor_problems(source, expected):
            raise ModelFileError.of(source.path, problems)
        self._left = set(expected)

    def take(self, name: str) -> npt.NDArray[np.float32]:
        self._left.remove(name)
        return self._source.read(name)

    def has(self, name: str) -> bool:
        return name in self._left

    def norm(self, name: str, eps: float) -> Norm:
        return Norm(self._device, self._device.upload_norm(self.take(f"{name}.weight")), eps)

    def linear(self, *names: str) -> LinearWeight:
        """One matrix, or several stacked, with their biases if the model has them."""
        matrices = [self.take(f"{name}.weight") for name in names]
        biases = [self.take(f"{name}.bias") for name in names if self.has(f"{name}.bias")]
        return self._device.prepare_linear(matrices, biases)

    def finish(self) -> None:
        assert not self._left, f"never used: {_some(sorted(self._left))}"


def tensor_problems(source: WeightSource, expected: Mapping[str, tuple[int, ...]]) -> list[str]:
    """What is missing, left over or of another shape; nothing is read."""
    stored, problems = set(source.tensor_names()), []
    if missing := [name for name in expected if name not in stored]:
        problems.append(f"{len(missing)} tensors are missing: {_some(missing)}")
    if unexpected := sorted(stored - set(expected)):
        problems.append(f"{len(unexpected)} tensors do not belong to the model: {_some(unexpected)}")
    for name, shape in expected.items():
        if name in stored and (found := source.shape(name)) != shape:
            problems.append(f"tensor {name} has shape {list(found)}, the config asks for {list(shape)}")
    return problems


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MAX_NAMED]) + (", ..." if len(names) > _MAX_NAMED else "")
