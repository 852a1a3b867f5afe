"""The conversations whose sessions are held, and the bound on their number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
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
    is_changed: bool = False  # somebody else worked on the engine's session, if it has one: ask for its tokens
    is_foreign: bool = False  # somebody else opened the engine's session, and closes it
    is_busy: bool = False
    is_closed: bool = False  # by the caller: nothing may be done to the engine's session any more
    conversation: Conversation | None = None  # the last turn, with its reply
    replies: dict[bytes, Reply] = field(default_factory=dict)  # of ours, within that conversation
    lost: str | None = None  # why the tokens that the caller may expect here are gone

    def lose(self, why: str) -> None:
        """The engine's session is gone, or cannot be trusted."""
        self.ids, self.is_open, self.lost = (), False, why

    def adopt(self, ids: tuple[TokenId, ...]) -> None:
        """The engine has the session, with these tokens."""
        self.ids, self.is_open, self.is_changed, self.conversation = ids, True, False, None

    @property
    def may_be_open(self) -> bool:
        """The engine may have a session that goes with this conversation."""
        return self.is_open or self.is_unsure or self.is_changed


class HeldConversations:
    """Open conversations by session, the longest idle first.

    When one more than `max_sessions` is wanted, the longest idle makes room; if all are busy, QueueFull.
    """

    def __init__(self, max_sessions: int) -> None:
        assert max_sessions >= 1
        self._max_sessions = max_sessions
        self._held: OrderedDict[SessionId, HeldConversation] = OrderedDict()
        self._displaced: OrderedDict[SessionId, None] = OrderedDict()  # so that a miss can be explained
        self._lent: set[SessionId] = set()

    def claim(self, session: SessionId) -> tuple[HeldConversation, HeldConversation | None]:
        """The conversation, now busy; and the one that had to go for it, if any.

        Raises:
            SessionBusy: another turn runs on it, or it is lent.
            QueueFull: it is new, and all others are busy.
        """
        self._check_not_lent(session)
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
        if oldest.is_foreign:
            return self.drop(oldest.session)
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

    @contextmanager
    def lend(self, session: SessionId) -> Iterator[None]:
        """For the block somebody else works on the engine's session: no turn runs meanwhile, and none believes what was
        known of its tokens. Whether it is held here does not matter.

        Raises SessionBusy if a turn runs, or it is lent already.
        """
        held = self._held.get(session)
        if held is not None and held.is_busy:
            raise SessionBusy(f"session {session} is generating a turn of chat; await or cancel that one first")
        self._check_not_lent(session)
        self._lent.add(session)
        try:
            yield
        finally:
            self._lent.discard(session)
            self._displaced.pop(session, None)
            held = self._held.get(session)
            if held is not None:
                held.ids, held.lost = (), None
                held.is_open, held.is_unsure, held.is_changed = False, False, True

    def _check_not_lent(self, session: SessionId) -> None:
        if session in self._lent:
            raise SessionBusy(f"session {session} is working for another call; await or cancel that one first")

    def sessions(self) -> list[SessionId]:
        return list(self._held)
