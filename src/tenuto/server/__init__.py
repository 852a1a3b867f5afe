"""The OpenAI-compatible HTTP server over a `ModelClient`: routes, wire formats, errors, and how it listens.

body → wire → chat_request → ModelClient.stream → sse or reply
"""

from tenuto.server.app import create_app
from tenuto.server.bound import BoundAddress
from tenuto.server.limits import ServerLimits
from tenuto.server.listen import WebServer, serve
from tenuto.server.operations import Operations
from tenuto.server.service import OtherClients

__all__ = ["BoundAddress", "Operations", "OtherClients", "ServerLimits", "WebServer", "create_app", "serve"]
