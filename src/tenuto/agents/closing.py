"""Closes an async iterator at the end of a block, if it can be closed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def closing(iterator: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Like contextlib.aclosing, for iterators that need not be generators. Without it a generator that is left early
    runs its clean-up only when it is collected, so a cancelled turn would go on computing."""
    try:
        yield iterator
    finally:
        aclose = getattr(iterator, "aclose", None)
        if aclose is not None:
            await aclose()
