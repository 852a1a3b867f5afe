"""KV that a caller says will not be wanted again."""

from __future__ import annotations

from typing import Protocol

import msgspec

from tenuto.protocol.chat import ChatRequest
from tenuto.protocol.hints import RunHints


class KeptPart(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of a conversation whose KV is still wanted."""

    num_messages: int  # its first ones
    num_tools: int | None = None  # its first ones; None: all


class ReleaseClient(Protocol):
    """Gives up KV before the pool takes it back by itself. Best effort: what a session or a request holds stays, and so
    does what other conversations go on from; what is given up and wanted after all is computed again.
    """

    async def release_conversation(self, request: ChatRequest, kept: KeptPart) -> int:
        """KV of a conversation, as it would be asked for, after its first messages and tools; with that of the replies
        to it. The request's hints say whose it is. How many blocks are free by it.

        Raises:
            InvalidRequest, ContextLengthError, TemplateError: this is no conversation that could be asked for.
        """
        ...

    async def release_run(self, hints: RunHints) -> int:
        """Everything that was computed for the hints' run and is remembered. How many blocks are free by it."""
        ...
