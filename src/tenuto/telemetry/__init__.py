"""What the server tells about itself: metrics, traces and logs. Sees protocols and errors, never who runs them.

`Telemetry` is handed to the server, which opens one `RequestRecord` for each request; `ObservedModel` and its like
stand in front of the model and fill it in. Nothing here holds content, unless a trace was asked to.
"""

from tenuto.telemetry.logs import LogFormat, configure_logs
from tenuto.telemetry.metrics import ServerMetrics
from tenuto.telemetry.observed_completion import ObservedCompletion
from tenuto.telemetry.observed_model import ObservedModel
from tenuto.telemetry.observed_sessions import ObservedSessions
from tenuto.telemetry.observed_vectors import ObservedEmbedder, ObservedReranker
from tenuto.telemetry.record import RequestRecord, Work, current_record
from tenuto.telemetry.telemetry import Telemetry

__all__ = [
    "LogFormat",
    "ObservedCompletion",
    "ObservedEmbedder",
    "ObservedModel",
    "ObservedReranker",
    "ObservedSessions",
    "RequestRecord",
    "ServerMetrics",
    "Telemetry",
    "Work",
    "configure_logs",
    "current_record",
]
