"""What a tool returned, or raised, as the text that the model reads."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
from pydantic_core import PydanticSerializationError, to_json

from tenuto.errors import ToolError

_MAX_MESSAGE_CHARS = 500
_SECRETS = (
    re.compile(
        r"(?i)((?:api[_-]?key|access[_-]?key|token|secret|passw(?:or)?d|authorization)[\"']?\s*[=:]\s*[\"']?)"
        r"(?:bearer\s+)?[^\s\"'&,;]+"
    ),
    re.compile(r"(?i)(bearer\s+)\S+"),
    re.compile(r"(://)[^/\s@]+(?=@)"),
    re.compile(r"()\bsk-[A-Za-z0-9_-]{8,}"),
)


def result_text(value: Any) -> str:
    """Text as it is, everything else as JSON (UTF-8, unescaped; NaN and infinities as strings; bytes as text).

    Raises ToolError for a value that has no such form, e.g. one that contains itself.
    """
    if isinstance(value, bytes | bytearray):
        value = _bytes_text(bytes(value))
    if value is None or value == "":
        return "(the tool returned nothing)"
    if isinstance(value, str):
        return _encodable(value)
    return json.dumps(json.loads(_json(value)), ensure_ascii=False)  # with spaces, as models write it


def error_text(error: BaseException) -> str:
    """Class and short message, never empty, no trace, secrets masked: `ValueError: no such city`."""
    message = " ".join(str(error).split()) or "no message was given"
    if len(message) > _MAX_MESSAGE_CHARS:
        message = message[:_MAX_MESSAGE_CHARS] + "..."
    return _encodable(f"{type(error).__name__}: {mask_secrets(message)}")


def mask_secrets(text: str) -> str:
    """Masks what looks like a key, token, password or the user part of a URL."""
    for pattern in _SECRETS:
        text = pattern.sub(r"\1***", text)
    return text


def capped(text: str, max_chars: int) -> str:
    """The text's first `max_chars` characters, with a notice if that is not all."""
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}\n[cut: the result has {len(text)} characters, only the first {max_chars} are shown]"


def _json(value: Any) -> bytes:
    try:
        try:
            return to_json(value, bytes_mode="utf8", inf_nan_mode="strings", fallback=_fallback)
        except (PydanticSerializationError, UnicodeDecodeError):  # bytes that are no text
            return to_json(value, bytes_mode="base64", inf_nan_mode="strings", fallback=_fallback)
    except Exception as error:
        raise ToolError(f"the tool's result ({type(value).__name__}) cannot be written as JSON: {error}") from error


def _fallback(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    return str(value)


def _bytes_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"({len(value)} bytes of binary data)"


def _encodable(text: str) -> str:
    """Half surrogate pairs cannot be written as UTF-8; they become question marks."""
    return text.encode("utf-8", "replace").decode()
