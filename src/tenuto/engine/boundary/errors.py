"""Errors as data: what was raised on one side of the boundary is raised on the other with class, message and fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from tenuto.errors import StepFailed, TenutoError

MAX_TEXT = 64 * 1024  # characters of one text
MAX_ITEMS = 1000  # of one list

Plain: TypeAlias = str | int | float | bool | None


class ErrorMessage(msgspec.Struct, frozen=True, array_like=True):
    """One error of the tree in `tenuto.errors`."""

    kinds: tuple[str, ...]  # its class and those above it, for a receiver that does not know the first
    message: str
    fields: dict[str, Plain | tuple[Plain, ...]] = {}  # attributes of the error that are plain values
    cause: str = ""  # what it was raised from, in words; for logs


def pack_error(error: TenutoError) -> ErrorMessage:
    """Long texts are cut: an error is never what breaks the boundary."""
    fields = {name: _plain(value) for name, value in vars(error).items() if not name.startswith("_")}
    cause = error.__cause__
    return ErrorMessage(
        kinds=tuple(c.__name__ for c in type(error).__mro__ if issubclass(c, TenutoError)),
        message=_cut(str(error)),
        fields=fields,
        cause="" if cause is None else _cut(f"{type(cause).__name__}: {cause}"),
    )


def unpack_error(packed: ErrorMessage) -> TenutoError:
    """The same error again; its cause, which stays on the other side, is told in a note."""
    known = {c.__name__: c for c in _tree(TenutoError)}
    kind = next((known[name] for name in packed.kinds if name in known), TenutoError)
    error = kind.__new__(kind, packed.message)  # without __init__: its parameters are not those of the message
    error.__dict__.update(packed.fields)
    if packed.cause:
        error.add_note(f"caused in the engine's process by {packed.cause}")
    return error


def internal_error(error: BaseException) -> StepFailed:
    """What a caller is told of an exception that nobody expected."""
    failed = StepFailed("the engine failed on this call because of an internal error; its log says more")
    failed.__cause__ = error
    return failed


def _tree(root: type[TenutoError]) -> Iterator[type[TenutoError]]:
    yield root
    for child in root.__subclasses__():
        yield from _tree(child)


def _plain(value: object) -> Plain | tuple[Plain, ...]:
    if isinstance(value, list | tuple):
        return tuple(_scalar(item) for item in value[:MAX_ITEMS])
    return _scalar(value)


def _scalar(value: object) -> Plain:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    return _cut(value if isinstance(value, str) else str(value))


def _cut(text: str) -> str:
    text = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} ..."
    return text.encode("utf-8", "replace").decode()  # a lone half of a character cannot cross
