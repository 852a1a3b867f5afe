"""Tells, once each, what of tools' schemas is not held, so that nobody finds out from a call."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from tenuto.protocol.grammar import Relaxation

_log = structlog.get_logger("tenuto.chat")
_MAX_TOLD = 1_000


class RelaxationLog:
    """A warning for each relaxation that it has not told of lately: agents send the same tools every turn."""

    def __init__(self) -> None:
        self._told: dict[Relaxation, None] = {}

    def tell(self, relaxed: Iterable[Relaxation]) -> None:
        for one in relaxed:
            if one in self._told:
                continue
            _log.warning("tool_schema_relaxed", path=one.path, reason=one.reason)
            self._told[one] = None
            if len(self._told) > _MAX_TOLD:
                del self._told[next(iter(self._told))]
