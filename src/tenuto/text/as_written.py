"""Arguments of a call in history that are no JSON object, e.g. since the token limit cut the call off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from tenuto.text.formats.json_text import dumps

_ALL = "arguments"  # the only member where no others can be read


class AsWritten(dict[str, Any]):
    """The text as it stands, for whatever writes arguments as JSON; for what goes through their members, those that can
    be read, the last of them perhaps cut.

    Args:
        members: None: read from the text.
    """

    def __init__(self, text: str, members: Mapping[str, Any] | None = None) -> None:
        super().__init__(_members(text) if members is None else members)
        self._text = text

    @property
    def text(self) -> str:
        return self._text


def _members(text: str) -> dict[str, Any]:
    try:
        found = from_json(text, allow_inf_nan=False, allow_partial="trailing-strings")
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {_ALL: text}


def json_of(arguments: Mapping[str, Any]) -> str:
    """Arguments as JSON text, or as what stands for it."""
    return arguments.text if isinstance(arguments, AsWritten) else dumps(arguments)
