"""How a server is run, apart from what it serves."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenuto.server.access import AccessRules
from tenuto.server.limits import ServerLimits
from tenuto.telemetry import Telemetry


@dataclass(frozen=True)
class Operations:
    """Limits, who is let in, and where news goes."""

    limits: ServerLimits = field(default_factory=ServerLimits)
    rules: AccessRules = field(default_factory=AccessRules)
    telemetry: Telemetry | None = None  # None: metrics of its own, no traces
    cors_origins: tuple[str, ...] = ()  # sites whose pages may call from a browser; `*`: all
