"""The weights of a model, each handed out once, in the form its device wants."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from tenuto.device.packing import PackingDevice
from tenuto.device.protocol import Device, LinearWeight
from tenuto.errors import ModelFileError
from tenuto.model.packed_file import PackedFile, PackedFileError, Prepared

_MAX_NAMED = 5


class WeightSource(Protocol):
    """The part of a checkpoint that weights are read from; see `checkpoint.Checkpoint`."""

    @property
    def path(self) -> Path: ...

    def tensor_names(self) -> list[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def read(self, name: str) -> npt.NDArray[np.float32]: ...


class Weights(Protocol):
    """What a model is put together from. Names are neutral ones, see `checkpoint.families`."""

    def table(self, name: str) -> Tensor:
        """An embedding table, as `Device.upload` gives it."""
        ...

    def vector(self, name: str) -> Tensor:
        """Of a norm, as `Device.upload_norm` gives it."""
        ...

    def linear(self, *names: str, exact: bool = False) -> LinearWeight:
        """One matrix `<name>.weight`, or several stacked, with their biases `<name>.bias` if the model has them.

        Args:
            exact: see `Device.prepare_linear`.
        """
        ...

    def table_and_linear(self, name: str) -> tuple[Tensor, LinearWeight]:
        """`<name>.weight` in both forms: an embedding that is the output matrix too, which is `exact`."""
        ...

    def finish(self) -> None:
        """Everything must have been handed out."""
        ...


class ReadWeights:
    """From a model's own files; all names and shapes are checked before the first is read.

    Raises:
        ModelFileError: a tensor is missing, unexpected, of another shape or unreadable; names file and tensor.
    """

    def __init__(self, source: WeightSource, expected: Mapping[str, tuple[int, ...]], device: Device) -> None:
        self._source = source
        self._device = device
        if problems := tensor_problems(source, expected):
            raise ModelFileError.of(source.path, problems)
        self._left = set(expected)

    def table(self, name: str) -> Tensor:
        return self._device.upload(self._take(name))

    def vector(self, name: str) -> Tensor:
        return self._device.upload_norm(self._take(name))

    def linear(self, *names: str, exact: bool = False) -> LinearWeight:
        matrices = [self._take(f"{name}.weight") for name in names]
        biases = [self._take(f"{name}.bias") for name in names if f"{name}.bias" in self._left]
        return self._device.prepare_linear(matrices, biases, exact=exact)

    def table_and_linear(self, name: str) -> tuple[Tensor, LinearWeight]:
        matrix = self._take(f"{name}.weight")
        return self._device.upload(matrix), self._device.prepare_linear([matrix], exact=True)

    def finish(self) -> None:
        assert not self._left, f"never used: {_some(sorted(self._left))}"

    def _take(self, name: str) -> npt.NDArray[np.float32]:
        self._left.remove(name)
        return self._source.read(name)


class RecordedWeights:
    """Hands out another's, and keeps note of them."""

    def __init__(self, weights: Weights, device: PackingDevice) -> None:
        self._weights = weights
        self._device = device
        self.parts: dict[str, Prepared] = {}  # as `PackedWeights` names them

    def table(self, name: str) -> Tensor:
        return self._note(name, self._weights.table(name))

    def vector(self, name: str) -> Tensor:
        return self._note(name, self._weights.vector(name))

    def linear(self, *names: str, exact: bool = False) -> LinearWeight:
        return self._note_linear(_matrix_name(names), self._weights.linear(*names, exact=exact))

    def table_and_linear(self, name: str) -> tuple[Tensor, LinearWeight]:
        table, matrix = self._weights.table_and_linear(name)
        return self._note(f"{name}.weight", table), self._note_linear(_matrix_name((name,)), matrix)

    def finish(self) -> None:
        self._weights.finish()

    def _note(self, name: str, tensor: Tensor) -> Tensor:
        self.parts[name] = tensor
        return tensor

    def _note_linear(self, name: str, matrix: LinearWeight) -> LinearWeight:
        self.parts[name] = self._device.export_linear(matrix)
        return matrix


class PackedWeights:
    """From a file that `RecordedWeights` filled. Nothing is read: tensors are places in the mapped file.

    Raises:
        PackedFileError: something is missing, left over, or not what the model or the device expects.
    """

    def __init__(self, file: PackedFile, expected: Mapping[str, tuple[int, ...]], device: PackingDevice) -> None:
        self._file = file
        self._expected = expected
        self._device = device
        self._left = set(file.names)

    def table(self, name: str) -> Tensor:
        return self._whole(name)

    def vector(self, name: str) -> Tensor:
        return self._whole(name)

    def linear(self, *names: str, exact: bool = False) -> LinearWeight:
        whole = _matrix_name(names)
        packed = self._file.linear(whole)
        shapes = [self._expected[f"{name}.weight"] for name in names]
        has_bias = any(f"{name}.bias" in self._expected for name in names)
        found = (packed.out_features, packed.in_features, packed.bias is not None)
        if found != (sum(shape[0] for shape in shapes), shapes[0][1], has_bias):
            raise PackedFileError(f"{whole:.80} is of another shape")
        self._left.discard(whole)
        try:
            return self._device.import_linear(packed)
        except ValueError as error:
            raise PackedFileError(f"{whole:.80}: {error}") from error

    def table_and_linear(self, name: str) -> tuple[Tensor, LinearWeight]:
        return self.table(f"{name}.weight"), self.linear(name)

    def finish(self) -> None:
        if self._left:
            raise PackedFileError(f"it holds more than the model: {_some(sorted(self._left))}")

    def _whole(self, name: str) -> Tensor:
        tensor = self._file.table(name)
        if tuple(tensor.shape) != self._expected[name]:
            raise PackedFileError(f"{name:.80} is of another shape")
        self._left.discard(name)
        return tensor


def _matrix_name(names: tuple[str, ...]) -> str:
    """Tells a matrix from a table of the same weight, and a stack from its parts."""
    return f"linear:{'+'.join(names)}"


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
