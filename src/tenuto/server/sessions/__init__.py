"""Sessions over HTTP: names and their tenants, what may be asked, and how answers look."""

from tenuto.server.sessions.chat_session import chat_events
from tenuto.server.sessions.directory import SessionDirectory
from tenuto.server.sessions.names import check_name, session_of
from tenuto.server.sessions.routes import session_routes
from tenuto.server.sessions.wire import SESSION_BODIES

__all__ = ["SESSION_BODIES", "SessionDirectory", "chat_events", "check_name", "session_of", "session_routes"]
