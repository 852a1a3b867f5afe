"""An engine and its callers apart: in two processes, or in a test on two ends of anything that carries bytes."""

from tenuto.engine.boundary.host import EngineHost
from tenuto.engine.boundary.limits import BoundaryLimits
from tenuto.engine.boundary.link import Link
from tenuto.engine.boundary.remote import RemoteEngineClient

__all__ = ["BoundaryLimits", "EngineHost", "Link", "RemoteEngineClient"]
