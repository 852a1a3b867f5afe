"""Typed look-ups in the settings of a model file, for both formats; what is refused is collected and raised at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenuto.errors import ModelFileError, UnsupportedModel

_REQUIRED: Any = object()


class Values:
    """Settings by name. An absent one and null are the same.

    Raises:
        ModelFileError: by the getters, for a value that is missing or of another type; names file and key.
    """

    def __init__(self, path: Path, values: Mapping[str, Any], prefix: str = "") -> None:
        self.path = path
        self.prefix = prefix  # written before every key
        self._values = values
        self._problems: list[str] = []

    def get(self, key: str) -> Any:
        return self._values.get(self.prefix + key)

    def names(self) -> list[str]:
        """All names, without the prefix."""
        return [key.removeprefix(self.prefix) for key in self._values if key.startswith(self.prefix)]

    def has(self, key: str) -> bool:
        return self.get(key) is not None

    def integer(self, key: str, default: int | None = _REQUIRED) -> int:
        value = self._present(key, default)
        if isinstance(value, list) and value and all(type(v) is int and v == value[0] for v in value):
            value = value[0]  # some converters name every layer, be they all alike
        if isinstance(value, list):
            raise UnsupportedModel(f"{self.path}: {self.prefix}{key} differs by layer, which is not supported")
        if type(value) is not int:
            raise self._wrong(key, value, "a whole number")
        return value

    def number(self, key: str, default: float | None = _REQUIRED) -> float:
        value = self._present(key, default)
        if type(value) not in (int, float):
            raise self._wrong(key, value, "a number")
        try:
            return float(value)
        except OverflowError as error:
            raise self._wrong(key, value, "a number") from error

    def flag(self, key: str, default: bool) -> bool:
        value = self._present(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def text(self, key: str, default: str | None = _REQUIRED) -> str:
        value = self._present(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, "text")
        return value

    def items(self, key: str, default: list[Any] | None = _REQUIRED) -> list[Any]:
        value = self._present(key, default)
        if not isinstance(value, list):
            raise self._wrong(key, value, "a list")
        return value

    def refuse(self, problem: str) -> None:
        """Note something the file asks for that we do not do."""
        self._problems.append(problem)

    def only(self, key: str, *neutral: object) -> None:
        """Refuse any value but those under which the key changes nothing."""
        value = self.get(key)
        if value is not None and value not in neutral:
            self.refuse(f"{self.prefix}{key} = {value!r:.80} is not supported")

    def finish(self) -> None:
        """Raises UnsupportedModel naming everything that was refused."""
        if self._problems:
            raise UnsupportedModel.of(self.path, list(dict.fromkeys(self._problems)))

    def _present(self, key: str, default: Any) -> Any:
        value = self.get(key)
        if value is None:
            value = default
        if value is _REQUIRED:
            raise ModelFileError(f"{self.path}: {self.prefix}{key} is missing")
        return value

    def _wrong(self, key: str, value: object, expected: str) -> ModelFileError:
        return ModelFileError(f"{self.path}: {self.prefix}{key} is {value!r:.80}, expected {expected}")
