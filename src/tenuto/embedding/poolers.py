"""Where pooled hidden states come from: an encoder's batches, or an engine's steps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tenuto.embedding.text_queue import QueuedText, TextQueue
from tenuto.protocol.engine import EngineClient, PooledStates, Pooling
from tenuto.protocol.hints import RunHints
from tenuto.text.frame import FramedText


class Pooled(NamedTuple):
    vectors: NDArray[np.float32]  # [texts, hidden]
    num_shared: int = 0  # tokens whose KV was found in the prefix cache


class Pooler(Protocol):
    async def pool(self, texts: Sequence[FramedText], pooling: Pooling, hints: RunHints) -> Pooled:
        """One vector a text, in their order. Raises what its queue or engine raises; cancelling gives up the rest."""
        ...


class EncoderPooler:
    """Hints are not used: an encoder's queue takes every request in turn."""

    def __init__(self, queue: TextQueue) -> None:
        self._queue = queue

    async def pool(self, texts: Sequence[FramedText], pooling: Pooling, hints: RunHints) -> Pooled:
        return Pooled(await self._queue.run([QueuedText(text, pooling) for text in texts]))


class EnginePooler:
    """Every text is a request of the engine, in the steps of all others.

    Args:
        max_parallel: texts of all requests together that the engine sees at once, so that generation has room.
    """

    def __init__(self, engine: EngineClient, max_parallel: int = 32) -> None:
        self._engine = engine
        self._places = asyncio.Semaphore(max_parallel)

    async def pool(self, texts: Sequence[FramedText], pooling: Pooling, hints: RunHints) -> Pooled:
        async def one(text: FramedText) -> PooledStates:
            async with self._places:
                return await self._engine.embed(text.ids, pooling, hints)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(text)) for text in texts]
        except BaseExceptionGroup as errors:
            first = errors.exceptions[0]  # to fail; the others were cancelled for it
            raise first from first.__cause__
        pooled = [task.result() for task in tasks]
        return Pooled(np.stack([each.vector for each in pooled]), sum(each.usage.num_shared for each in pooled))
