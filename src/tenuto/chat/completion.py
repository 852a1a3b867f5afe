"""Plain prompts over an engine: a `CompletionClient`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import cast

import anyio
import msgspec

from tenuto.chat.choices import merge, params_of_choice, usage_of_choice
from tenuto.chat.generation import close_session
from tenuto.chat.local import ChatLimits
from tenuto.chat.plain_text import PlainTextReader
from tenuto.chat.spent import OnBrokenOff, Spent, nobody
from tenuto.clock import Clock
from tenuto.errors import ContextLengthError, InvalidRequest
from tenuto.ids import IdSource, SessionId, TokenId
from tenuto.offload import Preparation
from tenuto.protocol.chat import ChatUsage, TextDelta
from tenuto.protocol.completion import (
    MAX_COMPLETIONS,
    CompletionEvent,
    CompletionFinished,
    CompletionRequest,
)
from tenuto.protocol.engine import (
    EngineClient,
    EngineInfo,
    GenerateParams,
    GenerateUsage,
    TokenDelta,
)
from tenuto.protocol.hints import RunHints
from tenuto.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class _Prompt:
    """One prompt, read."""

    ids: tuple[TokenId, ...]
    text: str  # to be echoed
    first_choice: int


@dataclass(frozen=True)
class _Completion:
    """One choice to generate."""

    index: int  # among those of its prompt
    prompt: _Prompt
    session: SessionId
    params: GenerateParams
    num_shared: int | None  # see usage_of_choice
    start_s: float

    @property
    def choice(self) -> int:
        return self.prompt.first_choice + self.index


class LocalCompletionClient:
    """Every choice is generated in a session of its own, closed at the end whatever happens.

    The choices of one prompt share its KV; equal beginnings of prompts are found in the engine's prefix cache.
    """

    def __init__(
        self,
        engine: EngineClient,
        tokenizer: Tokenizer,
        *,
        ids: IdSource,
        clock: Clock,
        limits: ChatLimits = ChatLimits(),
        on_broken_off: OnBrokenOff = nobody,
    ) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._ids = ids
        self._clock = clock
        self._limits = limits
        self._on_broken_off = on_broken_off
        self._preparing = Preparation("tenuto-complete", limits.prepare_threads, limits.prepare_s)

    async def complete(self, request: CompletionRequest) -> AsyncIterator[CompletionEvent]:
        """See `CompletionClient.complete`.

        Raises:
            InvalidRequest: names the field.
            ContextLengthError: a prompt and its completion do not fit, with the numbers.
            QueueFull, NeverFits, EngineClosed: the engine's.
        """
        start_s = self._clock.now()
        _check(request)
        engine = await self._engine.info()
        prompts = await self._prepare(request, engine)
        streams = [self._of_prompt(prompt, request, start_s) for prompt in prompts]
        async with aclosing(self._merged(streams)) as events:
            async for event in events:
                yield event

    async def _prepare(self, request: CompletionRequest, engine: EngineInfo) -> list[_Prompt]:
        def work() -> list[_Prompt]:
            return [self._read(request, place, engine.max_model_tokens) for place in range(len(request.prompts))]

        too_slow = "the prompts took longer than {limit} to encode; send fewer or shorter ones"
        return await self._preparing.run(work, too_slow, "prompt")

    def _read(self, request: CompletionRequest, place: int, max_tokens: int) -> _Prompt:
        """Raises InvalidRequest, ContextLengthError."""
        prompt, tokenizer = request.prompts[place], self._tokenizer
        what, fix = f"prompt {place} with its completion", "shorten the prompt or lower max_tokens"
        least = len(prompt) if not isinstance(prompt, str) else -(-len(prompt) // tokenizer.max_token_bytes)
        room = max_tokens - (request.max_tokens or 1)
        if least > room:  # however it is encoded: encoding megabytes takes seconds
            raise ContextLengthError(least + max_tokens - room, max_tokens, what, fix)
        ids = self._encode(prompt) if isinstance(prompt, str) else prompt
        for token in ids:
            if not 0 <= token < tokenizer.vocab_size:
                raise InvalidRequest(
                    f"prompt {place}: token id {token} is out of range: the vocabulary has {tokenizer.vocab_size}",
                    "prompt",
                )
        if not ids:
            raise InvalidRequest(f"prompt {place} has no tokens", "prompt")
        if len(ids) > room:
            raise ContextLengthError(len(ids) + max_tokens - room, max_tokens, what, fix)
        echoed = (prompt if isinstance(prompt, str) else tokenizer.decode(ids)) if request.echo else ""
        return _Prompt(tuple(ids), echoed, place * request.n)

    def _encode(self, text: str) -> tuple[TokenId, ...]:
        return self._tokenizer.opened(self._tokenizer.encode_with_control(text))

    async def _of_prompt(
        self, prompt: _Prompt, request: CompletionRequest, start_s: float
    ) -> AsyncGenerator[CompletionEvent, None]:
        """The events of one prompt's choices, interleaved."""
        params = GenerateParams(
            max_tokens=request.max_tokens,
            sampling=request.sampling,
            stop_ids=frozenset() if request.ignore_eos else self._tokenizer.eos_ids,
            logprobs=request.logprobs,
            hints=request.hints,
        )
        hints = request.hints
        async with AsyncExitStack() as stack:
            sessions = [await stack.enter_async_context(self._session(hints))]
            num_shared: int | None = None
            if request.n > 1:
                if prompt.ids[1:]:  # the last id is left to each choice, since its logits are wanted
                    await self._engine.append(sessions[0], prompt.ids[:-1], hints)
                num_shared = (await self._engine.stats(sessions[0])).total_reused_tokens
            while len(sessions) < request.n:
                sessions.append(await stack.enter_async_context(self._session(hints, sessions[0])))
            streams = []
            for index, session in enumerate(sessions):
                own = params_of_choice(params, index)
                one = _Completion(index, prompt, session, own, num_shared, start_s)
                streams.append(self._generate(one, PlainTextReader(self._tokenizer, request.stop, one.choice)))
            async with aclosing(self._merged(streams)) as events:
                async for event in events:
                    yield event

    def _merged(self, streams: list[AsyncGenerator[CompletionEvent, None]]) -> AsyncGenerator[CompletionEvent, None]:
        return streams[0] if len(streams) == 1 else merge(streams, 3 * self._limits.cleanup_s)

    @asynccontextmanager
    async def _session(self, hints: RunHints, parent: SessionId | None = None) -> AsyncIterator[SessionId]:
        """A session for the block."""
        session = self._ids.session()
        try:
            await self._engine.open(session, parent=parent, hints=hints)
            yield session
        finally:
            with anyio.move_on_after(self._limits.cleanup_s, shield=True):
                await close_session(self._engine, session)

    async def _generate(self, one: _Completion, reader: PlainTextReader) -> AsyncGenerator[CompletionEvent, None]:
        """The events of one choice."""
        known = 0 if one.num_shared is None else len(one.prompt.ids) - 1
        echoed = one.prompt.text
        spent = Spent()
        ttft_s = 0.0
        deltas = self._engine.generate(one.session, one.prompt.ids[known:], one.params)
        try:
            async with aclosing(cast("AsyncGenerator[TokenDelta, None]", deltas)) as stream:
                async for delta in stream:
                    spent.add(delta)
                    ttft_s = ttft_s or self._clock.now() - one.start_s
                    if echoed:  # not before the engine has taken the request: until then an error has its own status
                        yield TextDelta(text=echoed, choice=one.choice)
                        echoed = ""
                    ends = delta.finish == "stop"
                    for event in reader.push_all(
                        delta.ids[:-1] if ends else delta.ids, delta.logprobs[:-1] if ends else delta.logprobs
                    ):
                        yield event
                    if reader.stopped:
                        break
            if not reader.stopped:
                for event in reader.finish():
                    yield event
            usage = spent.usage or await self._broken_off(one, spent)
        except BaseException:  # its client may have left
            spent.tell(self._on_broken_off)
            raise
        times = {"ttft_s": ttft_s, "total_s": self._clock.now() - one.start_s}
        chat_usage = ChatUsage(**(msgspec.structs.asdict(usage) | times))
        yield CompletionFinished(
            reason="length" if spent.finish == "length" and not reader.stopped else "stop",
            usage=usage_of_choice(chat_usage, one.index, one.num_shared),
            choice=one.choice,
        )

    async def _broken_off(self, one: _Completion, spent: Spent) -> GenerateUsage:
        stats = await self._engine.stats(one.session)
        before = (one.num_shared or 0) if one.index == 0 else 0  # when the prompt was computed for all choices
        return spent.broken_off(len(one.prompt.ids), stats.total_reused_tokens - before, 0)


def _check(request: CompletionRequest) -> None:
    """Raises InvalidRequest."""
    if request.max_tokens is not None and request.max_tokens < 1:
        raise InvalidRequest(f"max_tokens is {request.max_tokens}; it must be at least 1", "max_tokens")
    if request.n < 1 or not 1 <= len(request.prompts) * request.n <= MAX_COMPLETIONS:
        raise InvalidRequest(
            f"{len(request.prompts)} prompts with {request.n} choices each; 1 to {MAX_COMPLETIONS} completions are "
            "served at once",
            "prompt",
        )
    if not all(request.stop):
        raise InvalidRequest("stop holds an empty string, which would end every completion", "stop")
