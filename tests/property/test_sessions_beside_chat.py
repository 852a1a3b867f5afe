"""Chat and session calls at once on one session, over an engine whose every call takes a while: one of them works, the
others are told, and chat never goes on from ids that the session does not hold."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from chat_harness import END, TOKENIZER, Chat, assistant, user
from tenuto.chat import LocalSessionClient
from tenuto.errors import Cancelled, SessionBusy, SessionExists, SessionNotFound, TenutoError
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.chat import ChatRequest, ReplyFinished
from tenuto.protocol.hints import ExpectedWait
from tenuto.protocol.sessions import SessionFinished, SessionGenerate, SessionText

S, FORK = SessionId("s"), SessionId("f")
REFUSED = (SessionBusy, SessionExists, SessionNotFound, Cancelled)
WORDS = [TOKENIZER.encode(word)[0] for word in ("好", "天", "hello", " world", "。", "é")]


def next_token(tokens: Any) -> TokenId:
    """A reply that depends on all tokens, so that a wrong one shows; about six tokens long."""
    digest = hash(tuple(tokens)) % 997
    return END if digest % 6 == 0 else WORDS[digest % len(WORDS)]


class Slow:
    """An engine in another process: between a call and its answer others may come."""

    def __init__(self, engine: Any, rng: random.Random) -> None:
        self._engine = engine
        self._rng = rng

    async def _pause(self) -> None:
        for _ in range(self._rng.randrange(4)):
            await asyncio.sleep(0)

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._engine, name)
        if name in ("generate", "export"):

            async def stream(*args: Any, **options: Any) -> AsyncGenerator[Any, None]:
                await self._pause()
                async with aclosing(inner(*args, **options)) as items:
                    async for item in items:
                        yield item
                        await self._pause()

            return stream

        async def call(*args: Any, **options: Any) -> Any:
            await self._pause()
            answer = await inner(*args, **options)
            await self._pause()
            return answer

        return call


class Rig:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.chat = Chat(next_token, max_model_tokens=4096)
        slow = Slow(self.chat.engine, self.rng)
        self.chat.client._engine = slow
        self.sessions = LocalSessionClient(slow, TOKENIZER, self.chat.client)  # type: ignore[arg-type]
        self.num_done = 0

    async def work(self, count: int) -> None:
        """Some calls, one after the other; what is refused is only told."""
        for _ in range(count):
            kind = self.rng.choice(("turn", "turn", "append", "say", "truncate", "fork", "close", "move", "leave"))
            try:
                await getattr(self, kind)()
                self.num_done += 1
            except REFUSED:
                pass
            except TenutoError as error:
                assert "cannot keep" in str(error), error

    async def ask(self, *history: Any) -> ReplyFinished:
        stream = self.chat.client.stream(ChatRequest(messages=history, session=S, max_tokens=30))
        last = [event async for event in stream][-1]
        assert isinstance(last, ReplyFinished)
        return last

    async def history(self) -> list[Any]:
        history = [user("你好")]
        for _ in range(self.rng.randrange(2)):
            history += [assistant("好"), user("然后呢？")]
        return history

    async def turn(self) -> None:
        await self.ask(*await self.history())

    async def leave(self) -> None:
        """A turn whose caller goes in the middle."""
        stream: Any = self.chat.client.stream(
            ChatRequest(messages=tuple(await self.history()), session=S, max_tokens=30)
        )
        async with aclosing(stream):
            async for _ in stream:
                if self.rng.random() < 0.5:
                    return

    async def append(self) -> None:
        await self.sessions.append(S, SessionText(text="天气", control=True))

    async def say(self) -> None:
        asked = SessionGenerate(input=(WORDS[0],), max_tokens=5, stop=("world",))
        events = [event async for event in self.sessions.generate(S, asked)]
        assert isinstance(events[-1], SessionFinished)

    async def truncate(self) -> None:
        await self.sessions.truncate(S, self.rng.randrange(20))
        await self.sessions.suspend(S, ExpectedWait(seconds=1.0))

    async def fork(self) -> None:
        await self.sessions.open(FORK, parent=S)
        await self.sessions.close(FORK)

    async def close(self) -> None:
        await self.sessions.close(S)
        if self.rng.random() < 0.5:
            await self.sessions.open(S)
            await self.sessions.append(S, tuple(WORDS))

    async def move(self) -> None:
        pieces = [piece async for piece in self.sessions.export(S)]
        await self.sessions.close(S)

        async def sent() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        await self.sessions.import_(S, sent())

    async def check(self) -> None:
        """A last turn, alone: the session holds what it was told and what it says to that, and nothing else."""
        history = await self.history()
        last = await self.ask(*history)
        tokens = list(self.chat.tokens(S))
        said, num_prompt = list(last.token_ids), last.usage.num_prompt
        assert TOKENIZER.decode(tokens[:num_prompt]) == TOKENIZER.decode(self.chat.rendered(*history))
        assert tokens[num_prompt : num_prompt + len(said)] == said
        assert tokens[num_prompt + len(said) :] in ([], [END])
        for place in range(num_prompt, len(tokens)):
            assert tokens[place] == next_token(tokens[:place]), "the reply was computed from other tokens"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_whoever_works_on_a_session_has_it_alone(seed: int, num_workers: int) -> None:
    async def main() -> None:
        rig = Rig(seed)
        await asyncio.gather(*(rig.work(8) for _ in range(num_workers)))
        await rig.check()
        await rig.sessions.close(S)
        await rig.chat.client.aclose()
        assert not rig.chat.engine.sessions, "a session was left behind"

    asyncio.run(main())
