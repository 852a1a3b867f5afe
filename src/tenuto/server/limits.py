"""What clients may ask of the server, so that no client can hurt another."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenuto.errors import InvalidRequest


@dataclass(frozen=True)
class StoreLimits:
    """Bounds of the responses that are kept. Past one of them the response that was used longest ago goes first, of the
    tenant who keeps the most bytes: nobody can push out another's by keeping more."""

    max_responses: int = 10_000
    max_bytes: int = 256 * 1024 * 1024  # of what they say, as JSON
    ttl_s: float = 86_400.0  # since a response was last used: shown, or gone on from


@dataclass(frozen=True)
class SessionLimits:
    """Bounds of the sessions that are kept between requests, chat's named ones among them."""

    idle_s: float = 3600.0  # a session that nobody used for so long is closed
    max_per_tenant: int = 1024  # one more: 429
    max_import_bytes: int = 1 << 32  # of an exported session; larger: 413
    import_deadline_s: float = 600.0  # for it to arrive: 408


@dataclass(frozen=True)
class ServerLimits:
    """Bounds on one request, and on all of them together."""

    max_body_bytes: int = 8 * 1024 * 1024  # larger: 413
    max_json_depth: int = 100  # objects and lists inside each other, in the body and in a call's arguments
    max_json_values: int = 100_000  # in all, members of objects and lists among them
    max_messages: int = 4096  # of one conversation: 400
    max_tools: int = 512  # declared with one request: 400
    max_output_tokens: int | None = None  # of one request; asking for more: 400. None: what the context has room for
    max_requests: int = 256  # being answered at once, those in the engine's queue among them; one more: 429
    max_tenant_requests: int = 256  # of these, of one tenant: 429
    max_connections: int = 1000  # open at once; one more is closed with a 503
    header_deadline_s: float = 10.0  # for a request's line and headers to arrive; past it the connection is closed
    body_deadline_s: float = 30.0  # for the body to arrive: 408
    send_deadline_s: float = 60.0  # for one piece of the answer to be taken; a client that reads nothing is gone
    cancel_deadline_s: float = 5.0  # for the model's stream to end once its client is gone; past it, we log and go on
    retry_after_s: int = 1  # what a client is told when the queue is full and nothing better is known
    stored_responses: StoreLimits = field(default_factory=StoreLimits)
    sessions: SessionLimits = field(default_factory=SessionLimits)

    def output_tokens(self, wanted: int | None) -> int | None:
        """How many tokens may be generated for who wants so many; None: as the context has room for.

        Raises InvalidRequest for more than are allowed.
        """
        most = self.max_output_tokens
        if most is not None and wanted is not None and wanted > most:
            raise InvalidRequest(f"max_tokens: this server generates {most} at most", "max_tokens")
        return most if wanted is None else wanted
