"""OpenAI's Responses API over a `ModelClient`.

wire → items → request → ModelClient.stream → writer → store
"""

from tenuto.server.responses.routes import response_routes
from tenuto.server.responses.store import ResponseStore
from tenuto.server.responses.wire import ResponseCreateBody

__all__ = ["ResponseCreateBody", "ResponseStore", "response_routes"]
