"""What all request bodies have in common: strict fields, unions told apart by their JSON type, errors with a path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, FailFast, ValidationError
from pydantic_core import ErrorDetails

from tenuto.errors import InvalidRequest

_UNKNOWN = "extra_forbidden"  # the validator's name for a field that is not known
_NO_OBJECT = ("model_type", "dict_type")  # likewise, for what is not an object
_VALID = "Input should be a valid "
_UNION_TAGS = ((str, "text"), (list, "list"), (dict, "object"))


class Wire(BaseModel):
    """Strict: "5" is not a number. Unknown fields are ignored, as other servers do: clients send each other's
    extras. A body that no other server has says `extra="forbid"`."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class FirstErrorOnly(FailFast):
    """On a list that is a member of a union: its first wrong item is enough, however many there are."""

    def __hash__(self) -> int:  # unions hash their members
        return hash(self.fail_fast)


W = TypeVar("W", bound=Wire)


def _tag(value: Any) -> str | None:
    """Which member of a union a JSON value is meant for; None: none."""
    return next((tag for kind, tag in _UNION_TAGS if isinstance(value, kind)), None)


def either(what: str) -> Discriminator:
    """For unions of a string (tag `text`), a list (`list`) and an object (`object`); `what` is said where none fits."""
    return Discriminator(_tag, custom_error_type="either", custom_error_message=what)


def parse_body(body: dict[str, Any], kind: type[W], not_served: Mapping[str, tuple[Any, ...]]) -> W:
    """Checks the shape.

    Args:
        not_served: fields of OpenAI's API that are not served, and the values that ask for nothing.

    Raises InvalidRequest naming the field by its path, e.g. `messages[2].content`.
    """
    for name, neutral in not_served.items():
        if not _is_one_of(body.get(name), neutral):
            served = "".join(f" other than {json.dumps(value)}" for value in neutral[1:2])
            raise InvalidRequest(f"{name} is not served{served}; leave it out", name)
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        faults = [(_path(one, body), one) for one in error.errors()]
        path, worst = min(faults, key=lambda fault: (fault[1]["type"] != _UNKNOWN, -len(fault[0])))
        message = _message([fault for place, fault in faults if place == path], worst)
        raise InvalidRequest(f"{path}: {message}", path) from error


def _message(faults: list[ErrorDetails], worst: ErrorDetails) -> str:
    """What is wrong with a value, in words that are no Python.

    Args:
        faults: all there are at its place: a union has one of each member.
    """
    if worst["type"] == _UNKNOWN:
        return "there is no such field; leave it out"
    if worst["type"] in _NO_OBJECT:
        return "Input should be an object"
    kinds = [fault["msg"].removeprefix(_VALID) for fault in faults if fault["msg"].startswith(_VALID)]
    if len(kinds) == len(faults) > 1:
        return f"{_VALID}{', '.join(kinds[:-1])} or {kinds[-1]}"
    return worst["msg"]


def _is_one_of(value: Any, neutral: tuple[Any, ...]) -> bool:
    """Equal as JSON, where true is not 1."""
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in neutral)


def _path(error: ErrorDetails, body: dict[str, Any]) -> str:
    """The error's place in the body. The validator's own names for members of a union are not part of it."""
    path = ""
    value: Any = body
    for part in error["loc"]:
        if isinstance(part, int) and isinstance(value, list):
            path, value = f"{path}[{part}]", value[part]
        elif isinstance(value, dict) and part in value:
            path, value = f"{path}.{part}", value[part]
        elif isinstance(value, dict) and error["type"] == "missing" and part == error["loc"][-1]:
            path = f"{path}.{part}"
    return path.lstrip(".")
