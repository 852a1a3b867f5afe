"""One turn on one engine session: bring the session to the prompt, generate, then keep the turn or take it back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple, cast

import anyio
import msgspec

from tenuto.chat.conversation import Reply, explain_break, splice
from tenuto.chat.encoder import Encoded
from tenuto.chat.held import HeldConversation
from tenuto.chat.seen import Expectation
from tenuto.chat.spent import OnBrokenOff, Spent
from tenuto.chat.turn import Turn
from tenuto.errors import Cancelled, EngineClosed, SessionExists, SessionNotFound, TenutoError
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.chat import ChatUsage
from tenuto.protocol.engine import (
    EngineClient,
    FinishReason,
    SessionStats,
    TokenDelta,
    TokenLogprob,
)
from tenuto.protocol.messages import Message

GONE = "session was gone"
OTHER_TOKENS = "session holds other tokens than the conversation"
NOT_RESTORED = "session could not be restored after an interrupted turn"


async def close_session(engine: EngineClient, session: SessionId) -> None:
    """Close a session of ours; one that is gone is closed already, and an engine that has stopped holds none."""
    try:
        await engine.close(session)
    except (SessionNotFound, EngineClosed):
        return


class NewTokens(NamedTuple):
    """Of one step, without the one that ends the turn."""

    ids: tuple[TokenId, ...]
    logprobs: tuple[TokenLogprob, ...]  # one for each, if they were asked for


class Generation:
    """What is known of the session is kept in `held` and true at every await, so that a turn can break off anywhere.

    `next` until None (or until enough is known), then `keep`; whatever happened, `end` last.

    Args:
        encoded: the conversation in ids.
        expected: what of it earlier turns have computed.
        cleanup_s: longest wait for the engine in `end`.
    """

    def __init__(
        self,
        engine: EngineClient,
        held: HeldConversation,
        turn: Turn,
        encoded: Encoded,
        expected: Expectation,
        cleanup_s: float,
    ) -> None:
        self._engine = engine
        self._held = held
        self._turn = turn
        self._encoded = encoded
        self._expected = expected
        self._cleanup_s = cleanup_s
        self._stream: AsyncGenerator[TokenDelta, None] | None = None
        self._is_kept = False
        self._before: SessionStats | None = None  # asked only where a stop string may break the stream off
        self._end: tuple[TokenId, ...] = ()  # the id that ended the turn, if it was sampled
        self._spent = Spent()
        self.reuse_break: str | None = None

    @property
    def finish(self) -> FinishReason | None:
        """Why the engine's stream ended; None: it goes on, or was broken off."""
        return self._spent.finish

    async def next(self) -> NewTokens | None:
        """The next ids; None after the last.

        Raises:
            Cancelled: the conversation was closed.
            CapacityError, EngineClosed, SessionBusy, SessionExists: the engine's.
        """
        if self.finish is not None:
            return None
        delta = await self._begin() if self._stream is None else await anext(self._stream, None)
        assert delta is not None, "an engine's stream ends with a delta that says why"
        self._spent.add(delta)
        if delta.finish != "stop":
            return NewTokens(delta.ids, delta.logprobs)
        self._end = delta.ids[-1:]
        return NewTokens(delta.ids[:-1], delta.logprobs[:-1])

    async def _begin(self) -> TokenDelta | None:
        """Start generating; a session that the engine has lost is opened and computed anew, once."""
        try:
            return await self._try_begin()
        except SessionNotFound as error:
            if self._held.is_closed:
                raise Cancelled("the conversation was closed while it was generating") from error
            self._held.lose(GONE)
        return await self._try_begin()

    async def _try_begin(self) -> TokenDelta | None:
        held = self._held
        if held.is_temporary and not held.is_open and not self._turn.stop:
            return await self._open_and_begin()
        await self._open()
        self._check_held()
        change = splice(held.ids, self._encoded.ids)
        if change.num_kept < len(held.ids):
            self._note_break(change.num_kept)
            held.ids = held.ids[: change.num_kept]
            await self._engine.truncate(held.session, change.num_kept)
        if self._turn.stop:
            self._before = await self._engine.stats(held.session)
        self._check_held()
        deltas = self._engine.generate(held.session, change.append, self._turn.params)
        self._stream = cast("AsyncGenerator[TokenDelta, None]", deltas)
        return await anext(self._stream, None)

    async def _open_and_begin(self) -> TokenDelta | None:
        """A new session, whose name nobody else knows: one call, since each goes to another process and back."""
        held, params = self._held, self._turn.params
        held.is_unsure = True  # until there is news
        deltas = self._engine.generate(held.session, self._encoded.ids, params, opening=params.hints)
        self._stream = cast("AsyncGenerator[TokenDelta, None]", deltas)
        first = await anext(self._stream, None)
        held.is_unsure, held.is_open = False, True
        return first

    def _check_held(self) -> None:
        """Closed while we waited: the engine's session of that name, if there is one, is another by now."""
        if self._held.is_closed:
            raise Cancelled("the conversation was closed while it was generating")

    async def _open(self) -> None:
        held = self._held
        if held.is_unsure:
            await close_session(self._engine, held.session)
            held.is_unsure = False
        if held.is_changed and await self._adopt():
            return
        if held.is_open:
            return
        held.is_unsure = True  # should we be cancelled in the middle
        try:
            await self._engine.open(held.session, hints=self._turn.params.hints)
        except SessionExists:
            held.is_unsure, held.is_changed, held.is_foreign = False, True, True
            if await self._adopt():
                return
            raise  # it was closed a moment ago
        except TenutoError:
            held.is_unsure = False  # a call that raises has changed nothing
            raise
        held.is_unsure, held.is_open = False, True
        if held.is_closed:
            await close_session(self._engine, held.session)
            raise Cancelled("the conversation was closed while it was generating")

    async def _adopt(self) -> bool:
        """Take over the engine's session as somebody else left it; False if there is none."""
        held = self._held
        try:
            held.adopt(await self._engine.tokens(held.session))
        except SessionNotFound:
            held.is_changed = False
            return False
        return True

    def _note_break(self, num_kept: int) -> None:
        """Say why held tokens go. A last turn that ended with another id than the template's needs no word: that id
        has no KV yet."""
        held = self._held
        dropped = held.ids[num_kept:]
        if len(dropped) == 1 and dropped[0] in self._turn.params.stop_ids:
            return
        if held.lost is None and held.conversation is not None:
            held.lost = explain_break(held.conversation, self._encoded.conversation, self._encoded.rewritten)
        elif held.lost is None:
            held.lost = OTHER_TOKENS

    async def keep(self, kept: Sequence[TokenId], added: Sequence[TokenId], message: Message) -> tuple[bytes, Reply]:
        """Make the turn part of the conversation: the session holds the prompt and the ids kept.

        Args:
            kept: the first so many of the ids that `next` gave.
            added: ids that belong to the reply after those; the session gets them with the next turn.

        Returns:
            The reply, and the key under which it is looked for.
        """
        held = self._held
        is_whole = self.finish is not None and len(kept) == self._spent.num_generated - len(self._end)
        ids = (*self._encoded.ids, *kept, *(self._end if is_whole else ()))
        assert self._stream is not None, "a turn that is kept has begun"
        await self._stream.aclose()
        if self._spent.usage is None:
            await self._reckon_usage()
        try:
            if not is_whole and not held.is_temporary:
                await self._engine.truncate(held.session, len(ids))
            held.ids = ids
        except SessionNotFound:  # after its work was done: the reply stands
            held.lose(GONE)
        self.reuse_break = self._explain()
        key, reply = self._encoded.reply(message, (*kept, *added), max(0, len(kept) - 1))
        held.conversation = self._encoded.conversation.with_reply(message)
        held.replies = {**self._encoded.replies, key: reply}
        held.lost = None if held.is_open else held.lost
        self._is_kept = True
        return key, reply

    def _explain(self) -> str | None:
        """Why tokens that the caller may have expected to be held or shared had to be computed."""
        if self._held.lost is not None or self._held.conversation is not None:
            return self._held.lost
        usage = self._spent.usage
        assert usage is not None
        return self._expected.explain(usage.num_held + usage.num_shared)

    async def _reckon_usage(self) -> None:
        assert self._before is not None, "only a stop string ends a turn early"
        after = await self._engine.stats(self._held.session)
        num_gained = after.total_reused_tokens - self._before.total_reused_tokens
        self._spent.broken_off(len(self._encoded.ids), num_gained, self._before.num_computed)

    def tell(self, on_broken_off: OnBrokenOff) -> None:
        """Unless the turn was kept: what it cost."""
        if not self._is_kept:
            self._spent.tell(on_broken_off)

    async def end(self) -> None:
        """Leave nothing running. Unless the turn was kept, cut the session back to what it held of the prompt before.

        Where even that fails the session is marked, and the next turn opens it anew: errors of the engine are not
        raised here, since the one that broke the turn is on its way.
        """
        held, ids, lost = self._held, self._held.ids, self._held.lost
        must_restore = not (self._is_kept or held.is_closed or held.is_temporary) and held.is_open
        if must_restore:
            held.lose(NOT_RESTORED)
            held.is_unsure = True
        with anyio.move_on_after(self._cleanup_s, shield=True):
            if self._stream is not None:
                await self._stream.aclose()
            if not must_restore:
                return
            try:
                await self._engine.truncate(held.session, len(ids))
                held.ids, held.lost, held.is_open = ids, lost, True
            except SessionNotFound:
                held.lost = GONE
            except TenutoError:
                return
            held.is_unsure = False

    def usage(self, ttft_s: float, total_s: float, num_reasoning: int) -> ChatUsage:
        """Once kept.

        Args:
            ttft_s, total_s: of the turn, rendering and tokenising included.
            num_reasoning: ids of the reasoning.
        """
        assert self._spent.usage is not None and self._is_kept
        counts = msgspec.structs.asdict(self._spent.usage) | {"ttft_s": ttft_s, "total_s": total_s}
        return ChatUsage(**counts, num_reasoning=num_reasoning, reuse_break=self.reuse_break)
