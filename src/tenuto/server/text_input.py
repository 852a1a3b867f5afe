"""Texts as the older APIs take them: one, several, or token ids instead of text."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import WithJsonSchema

from tenuto.errors import InvalidRequest
from tenuto.ids import TokenId

_MAX_ID = 2**31 - 1
_IDS = {"type": "array", "items": {"type": "integer"}}

TextsOrIds = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}},
                _IDS,
                {"type": "array", "items": _IDS},
            ]
        }
    ),
]
"""Read it with `read_texts`, which names what is wrong."""


def read_texts(value: Any, field: str, max_texts: int) -> tuple[str | tuple[TokenId, ...], ...]:
    """A string, a list of strings, a list of ids or a list of such lists, as a series of texts.

    Raises InvalidRequest naming the field and, if one is wrong, the element.
    """
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not value:
        raise InvalidRequest(
            f"{field}: must be a string, a list of strings, a list of token ids, or a list of such lists; not empty",
            field,
        )
    if _is_id(value[0]):
        return (_ids(value, field),)
    if len(value) > max_texts:
        raise InvalidRequest(f"{field}: {len(value)} texts, {max_texts} at most", field)
    texts: list[str | tuple[TokenId, ...]] = []
    for index, one in enumerate(value):
        path = f"{field}[{index}]"
        if isinstance(one, str):
            texts.append(one)
        elif isinstance(one, list) and one:
            texts.append(_ids(one, path))
        else:
            raise InvalidRequest(f"{path}: must be a string, or a list of token ids that is not empty", path)
    return tuple(texts)


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _ids(values: list[Any], path: str) -> tuple[TokenId, ...]:
    for index, value in enumerate(values):
        if not _is_id(value) or not 0 <= value <= _MAX_ID:
            raise InvalidRequest(f"{path}[{index}]: must be a token id", f"{path}[{index}]")
    return tuple(map(TokenId, values))
