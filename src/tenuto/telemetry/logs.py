"""One log for everything: structlog's and the standard library's lines in one form, without keys or line breaks."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, MutableMapping
from typing import Any, Literal, TextIO, TypeAlias

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

LogFormat: TypeAlias = Literal["text", "json"]

_HIDDEN = "[hidden]"
_KEY = re.compile(r"tenuto-([a-z2-7]{8})-[a-z2-7]{32}|((?i:\bbearer)\s+)[^\s\"',;]+")
# What ends a line or commands a terminal; the renderers escape the plain line feed themselves.
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_MAX_DEPTH = 8


def configure_logs(stream: TextIO, form: LogFormat, *, secrets: Collection[str] = ()) -> None:
    """Sends every log line of this process to the stream.

    Args:
        form: `text` is logfmt, `json` one object a line.
        secrets: never written, wherever they stand; keys and bearer tokens are hidden without being named here.
    """
    hide = hide_secrets(secrets)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: Processor = (
        structlog.processors.JSONRenderer(ensure_ascii=False, default=str)
        if form == "json"
        else structlog.processors.LogfmtRenderer(
            key_order=["timestamp", "level", "event"], drop_missing=True, bool_as_flag=False
        )
    )
    structlog.configure(
        processors=[*shared, hide, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, hide, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # what libraries tell of themselves; ours begins at INFO
    logging.getLogger("tenuto").setLevel(logging.INFO)


def hide_secrets(secrets: Collection[str]) -> Callable[[WrappedLogger, str, EventDict], EventDict]:
    """A processor that replaces secrets and control characters in every text of an event, nested ones too."""
    known = sorted((secret for secret in secrets if secret), key=len, reverse=True)

    def hide_text(text: str) -> str:
        for secret in known:
            text = text.replace(secret, _HIDDEN)
        text = _KEY.sub(lambda m: f"tenuto-{m[1]}-{_HIDDEN}" if m[1] else f"{m[2]}{_HIDDEN}", text)
        return _CONTROL.sub(lambda m: f"\\u{ord(m[0]):04x}", text)

    def hide(value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return hide_text(value)
        if depth >= _MAX_DEPTH:
            return _HIDDEN
        if isinstance(value, MutableMapping):
            return {hide(key, depth + 1): hide(one, depth + 1) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [hide(one, depth + 1) for one in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        return hide_text(str(value))

    def process(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        return {name: hide(value, 1) for name, value in event.items()}

    return process
