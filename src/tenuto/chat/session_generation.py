"""One `generate` on a session that an agent works on directly."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import cast

from tenuto.chat.session_text import SessionTextReader
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.engine import EngineClient, GenerateParams, GenerateUsage, SessionStats, TokenDelta
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
        self._num_generated = self._num_forced = self._num_accepted = self._num_steps = 0

    async def events(self, *, may_break_off: bool) -> AsyncGenerator[SessionEvent, None]:
        """All events; `stop` afterwards, whatever happened."""
        before = await self._engine.stats(self._session) if may_break_off else None
        deltas = self._engine.generate(self._session, self._ids, self._params)
        self._stream = cast("AsyncGenerator[TokenDelta, None]", deltas)
        reader = self._reader
        async for delta in self._stream:
            self._count(delta)
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
                yield SessionFinished(
                    reason=delta.finish,
                    stop=stop[0] if stop else None,
                    input_ids=self._ids,
                    usage=delta.usage,
                )

    async def stop(self) -> None:
        """Nothing runs on."""
        if self._stream is not None:
            await self._stream.aclose()

    def _count(self, delta: TokenDelta) -> None:
        self._num_generated += len(delta.ids)
        self._num_forced += delta.num_forced
        self._num_accepted += delta.accepted
        self._num_steps += not delta.accepted

    async def _cut(self, before: SessionStats) -> AsyncGenerator[SessionEvent, None]:
        """Session and text end before the stop string."""
        await self.stop()
        usage = self._usage(before, await self._engine.stats(self._session))
        last, added = self._reader.cut()
        num_tokens = before.num_tokens + len(self._ids) + self._reader.num_given
        await self._engine.truncate(self._session, num_tokens)
        if added:
            await self._engine.append(self._session, added)
        if last is not None:
            yield last
        yield SessionFinished(reason="stop", stop=self._reader.found, input_ids=self._ids, usage=usage)

    def _usage(self, before: SessionStats, after: SessionStats) -> GenerateUsage:
        """A stream that was broken off gives no usage: take it from what the session's counters gained."""
        num_prompt = before.num_tokens + len(self._ids)
        num_reused = min(num_prompt, after.total_reused_tokens - before.total_reused_tokens)
        num_held = min(before.num_computed, num_reused)
        return GenerateUsage(
            num_prompt=num_prompt,
            num_held=num_held,
            num_shared=num_reused - num_held,
            num_computed=num_prompt - num_reused,
            num_generated=self._num_generated,
            num_forced=self._num_forced,
            num_accepted=self._num_accepted,
            num_steps=self._num_steps,
        )
