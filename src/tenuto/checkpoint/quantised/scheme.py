"""What a scheme of quantisation is, and how the parts of matrices are found among a checkpoint's tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from tenuto.checkpoint.blocks import Floats
from tenuto.checkpoint.weight_file import WHOLE_TYPES, StoredTensor, TensorSource
from tenuto.errors import ModelFileError

_FLOATS = ("F32", "F16", "BF16")

Parts: TypeAlias = Mapping[str, StoredTensor]  # by the last part of their names


class Scheme(Protocol):
    """One way to store a quantised matrix."""

    @property
    def parts(self) -> frozenset[str]:
        """Last parts of the names of all tensors a matrix may be made of."""
        ...

    @property
    def ignored(self) -> frozenset[str]:
        """Last parts of names of tensors that say nothing about weights."""
        ...

    def holds(self, parts: Parts) -> bool:
        """Whether these tensors of one module are a quantised matrix."""
        ...

    def matrix(self, parts: Parts) -> TensorSource:
        """The matrix [out, in] they make.

        Raises:
            ModelFileError: a part is missing or does not fit the others; names it.
        """
        ...


@dataclass(frozen=True)
class QuantisedMatrix:
    """A matrix that is computed from a few stored tensors."""

    stored: tuple[StoredTensor, ...]  # the first is the one that errors name
    shape: tuple[int, ...]  # [out, in]
    type_name: str
    compute: Callable[[], Floats]

    @property
    def num_bytes(self) -> int:
        return sum(tensor.num_bytes for tensor in self.stored)

    def read(self) -> Floats:
        values = self.compute()
        with np.errstate(invalid="ignore", over="ignore"):
            suspect = not np.isfinite(values.sum())
        if suspect and not np.isfinite(values).all():
            raise self.stored[0].not_finite()
        return values

    def sample(self) -> bytes:
        return b"".join(tensor.sample() for tensor in self.stored)


def gather(scheme: Scheme, tensors: Iterable[StoredTensor]) -> dict[str, TensorSource]:
    """The weights by stored name: those of a quantised module under the name an unquantised one would have.

    Raises:
        ModelFileError: a quantised matrix lacks a part, or is there unquantised as well.
    """
    modules: dict[str, dict[str, StoredTensor]] = {}
    found: dict[str, TensorSource] = {}
    for tensor in tensors:
        module, _, part = tensor.name.rpartition(".")
        if part in scheme.ignored:
            continue
        if part in scheme.parts:
            modules.setdefault(module, {})[part] = tensor
        else:
            found[tensor.name] = tensor
    for module, parts in modules.items():
        if not scheme.holds(parts):
            found |= {tensor.name: tensor for tensor in parts.values()}
            continue
        name = f"{module}.weight"
        if name in found:
            raise ModelFileError(f"{next(iter(parts.values())).label} belongs to {name:.80}, which is there as well")
        found[name] = scheme.matrix(parts)
    return found


def whole_part(parts: Parts, part: str, *types: str) -> StoredTensor:
    """A part of whole numbers of one of these types. Raises ModelFileError if it is missing or of another type."""
    tensor = _part(parts, part)
    assert set(types) <= set(WHOLE_TYPES)
    if tensor.type_name not in types:
        raise ModelFileError(f"{tensor.label} has type {tensor.type_name}, expected {' or '.join(types)}")
    return tensor


def float_part(parts: Parts, part: str) -> StoredTensor:
    """A part of numbers. Raises ModelFileError if it is missing or of another type."""
    tensor = _part(parts, part)
    if tensor.type_name not in _FLOATS:
        raise ModelFileError(f"{tensor.label} has type {tensor.type_name}, expected {' or '.join(_FLOATS)}")
    return tensor


def expect_shape(tensor: StoredTensor, *shapes: tuple[int, ...]) -> None:
    """Raise ModelFileError for a part that does not fit the others."""
    if tensor.shape not in shapes:
        expected = " or ".join(str(list(shape)) for shape in shapes)
        raise ModelFileError(f"{tensor.label} has shape {list(tensor.shape)}, its matrix asks for {expected}")


def _part(parts: Parts, part: str) -> StoredTensor:
    if part not in parts:
        other = next(iter(parts.values()))
        raise ModelFileError(f"{other.label} has no {part} beside it; the quantised matrix cannot be read")
    return parts[part]
