"""OpenAI's older completions API over a `CompletionClient`: text in as it stands, text out."""

from tenuto.server.completions.routes import completion_routes
from tenuto.server.completions.wire import CompletionBody

__all__ = ["CompletionBody", "completion_routes"]
