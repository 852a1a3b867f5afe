"""The conversations whose sessions are held, and the bound on their number."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from tenuto.chat.conversation import Conversation, Reply
from tenuto.errors import QueueFull, SessionBusy
from tenuto.ids import SessionId, TokenId


@dataclass
class HeldConversation:
    """What we know about one engine session. Between turns `ids` are exactly its tokens."""

    session: SessionId
    ids: tuple[TokenId, ...] = ()
    is_temporary: bool = False  # for one request: closed at its end, whatever happens
    is_open: bool = False  # the engine has the session, and it holds `ids`
    is_unsure: bool = False  # the engine may have a session of that name, with tokens unknown: close it first
    is_busy: bool = False
    is_closed: bool = False  # by the caller: nothing may be done to the engine's session any more
    conversation: Conversation | None = None  # the last turn, with its reply
    replies: dict[bytes, Reply] = field(default_factory=dict)  # of ours, within that conversation
    lost: str | None = None  # why the tokens that the caller may expect here are gone

    def lose(self, why: str) -> None:
        """The engine's session is gone, or cannot be trusted."""
        self.ids, self.is_open, self.lost = (), False, why


class HeldConversations:
    """Open conversations by session, the longest idle first.

    When one more than `max_sessions` is wanted, the longest idle makes room; if all are busy, QueueFull.
    """

    def __init__(self, max_sessions: int) -> None:
        assert max_sessions >= 1
        self._max_sessions = max_sessions
        self._held: OrderedDict[SessionId, HeldConversation] = OrderedDict()
        self._displaced: OrderedDict[SessionId, None] = OrderedDict()  # so that a miss can be explained

    def claim(self, session: SessionId) -> tuple[HeldConversation, HeldConversation | None]:
        """The conversation, now busy; and the one that had to go for it, if any.

        Raises:
            SessionBusy: another turn runs on it.
            QueueFull: it is new, and all others are busy.
        """
        held = self._held.get(session)
        if held is not None:
            if held.is_busy:
                raise SessionBusy(f"session {session} is generating another turn; await or cancel that one first")
            self._held.move_to_end(session)
            held.is_busy = True
            return held, None
        displaced = self._make_room()
        held = HeldConversation(session, is_busy=True)
        if session in self._displaced:
            del self._displaced[session]
            held.lost = "session was closed to make room for others"
            held.is_unsure = True  # its closing may still be under way
        self._held[session] = held
        return held, displaced

    def _make_room(self) -> HeldConversation | None:
        if len(self._held) < self._max_sessions:
            return None
        oldest = next((held for held in self._held.values() if not held.is_busy), None)
        if oldest is None:
            raise QueueFull(f"all {self._max_sessions} conversations are generating; try again later")
        self._displaced[oldest.session] = None
        if len(self._displaced) > self._max_sessions:
            self._displaced.popitem(last=False)
        return self.drop(oldest.session)

    def find(self, session: SessionId) -> HeldConversation | None:
        return self._held.get(session)

    def drop(self, session: SessionId) -> HeldConversation | None:
        """Forget a conversation; its engine session is the caller's to close."""
        held = self._held.pop(session, None)
        if held is not None:
            held.is_closed = True
        return held

    def sessions(self) -> list[SessionId]:
        return list(self._held)
