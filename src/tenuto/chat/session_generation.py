"""One `generate` on a session that an agent works on directly."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import cast

from tenuto.chat.session_text import SessionTextReader
from tenuto.chat.spent import OnBrokenOff, Spent
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.engine import EngineClient, GenerateParams, SessionStats, TokenDelta
from tenuto.protocol.sessions import SessionEvent, SessionFinished


class SessionGeneration:
    """Streams the engine's ids through a reader; where a stop string comes, cuts the session to the text.

    Args:
        ids: to be added first.
    """

    def __init__(
        self,
        engine: EngineClient,
        session: SessionId,
        ids: tuple[TokenId, ...],
        params: GenerateParams,
        reader: SessionTextReader,
    ) -> None:
        self._engine = engine
        self._session = session
        self._ids = ids
        self._params = params
        self._reader = reader
        self._stream: AsyncGenerator[TokenDelta, None] | None = None
        self._spent = Spent()
        self._is_whole = False

    async def events(self, *, may_break_off: bool) -> AsyncGenerator[SessionEvent, None]:
        """All events; `stop` afterwards, whatever happened."""
        before = await self._engine.stats(self._session) if may_break_off else None
        deltas = self._engine.generate(self._session, self._ids, self._params)
        self._stream = cast("AsyncGenerator[TokenDelta, None]", deltas)
        reader = self._reader
        async for delta in self._stream:
            self._spent.add(delta)
            num_content = len(delta.ids) - (delta.finish == "stop")
            given = reader.push(delta.ids[:num_content], delta.logprobs[:num_content])
            if given is not None:
                yield given
            if reader.found is not None:
                assert before is not None, "only a stop string breaks a stream off"
                async for event in self._cut(before):
                    yield event
                return
            if delta.finish is not None:
                stop = delta.ids[num_content:]
                if (last := reader.finish(stop, delta.logprobs[num_content:])) is not None:
                    yield last
                assert delta.usage is not None
                self._is_whole = True
                yield SessionFinished(
                    reason=delta.finish,
                    stop=stop[0] if stop else None,
                    input_ids=self._ids,
                    usage=delta.usage,
                )

    def tell(self, on_broken_off: OnBrokenOff) -> None:
        """Unless its last event is out: what it cost."""
        if not self._is_whole:
            self._spent.tell(on_broken_off)

    async def stop(self) -> None:
        """Nothing runs on."""
        if self._stream is not None:
            await self._stream.aclose()

    async def _cut(self, before: SessionStats) -> AsyncGenerator[SessionEvent, None]:
        """Session and text end before the stop string."""
        await self.stop()
        num_prompt = before.num_tokens + len(self._ids)
        after = await self._engine.stats(self._session)
        num_gained = after.total_reused_tokens - before.total_reused_tokens
        usage = self._spent.broken_off(num_prompt, num_gained, before.num_computed)
        last, added = self._reader.cut()
        await self._engine.truncate(self._session, num_prompt + self._reader.num_given)
        if added:
            await self._engine.append(self._session, added)
        if last is not None:
            yield last
        self._is_whole = True
        yield SessionFinished(reason="stop", stop=self._reader.found, input_ids=self._ids, usage=usage)
