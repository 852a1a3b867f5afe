"""Several choices of one prompt: it is computed once, and their sessions share its KV."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import anyio
import msgspec

from tenuto.chat.generation import Generation
from tenuto.chat.held import HeldConversation
from tenuto.chat.turn import Turn
from tenuto.ids import TokenId
from tenuto.protocol.chat import ChatUsage
from tenuto.protocol.engine import EngineClient, GenerateParams

T = TypeVar("T")


@dataclass
class Choice:
    """One reply in the making."""

    index: int
    held: HeldConversation
    turn: Turn
    generation: Generation | None = None
    is_released: bool = False  # its session was given back, or closed
    num_shared: int | None = None  # tokens of the prompt found in the prefix cache; None: it did not share its prompt

    def usage(self, usage: ChatUsage) -> ChatUsage:
        """What its stream used, with the prompt counted once for all choices."""
        return usage_of_choice(usage, self.index, self.num_shared)


def usage_of_choice(usage: ChatUsage, index: int, num_shared: int | None) -> ChatUsage:
    """What a choice's stream used, with the prompt counted once, with the first choice.

    Args:
        num_shared: tokens of the prompt found in the prefix cache when it was computed for several choices; None: it
            was computed for this stream alone.
    """
    if index == 0 and num_shared is None:
        return usage
    counts = {"num_prompt": 0, "num_held": 0, "num_shared": 0, "num_computed": 0}
    again = usage.num_computed
    if index == 0 and num_shared is not None:
        counts = {"num_prompt": usage.num_prompt, "num_held": 0, "num_shared": num_shared}
        counts["num_computed"] = usage.num_prompt - num_shared
        again -= 1  # its last token is computed for the first time
    return msgspec.structs.replace(usage, num_recomputed=usage.num_recomputed + again, **counts)


def turn_of_choice(turn: Turn, index: int) -> Turn:
    """The same turn with a seed of its own; the first choice has the request's, so it equals the only one of n = 1."""
    return replace(turn, params=params_of_choice(turn.params, index))


def params_of_choice(params: GenerateParams, index: int) -> GenerateParams:
    """The same but for the seed, except for the first choice."""
    if index == 0:
        return params
    digest = hashlib.blake2b(f"{params.sampling.seed} {index}".encode(), digest_size=8).digest()
    own = msgspec.structs.replace(params.sampling, seed=int.from_bytes(digest, "big") % 2**63)
    return msgspec.structs.replace(params, sampling=own)


async def share_prompt(engine: EngineClient, choices: Sequence[Choice], prompt: Sequence[TokenId]) -> None:
    """Compute all but the last id of a prompt in the session of the first choice, and fork the others from it.

    The last id is left to each, since its logits are wanted. All sessions are new and temporary; what became of them
    is known at every await, so that they can be closed if this breaks off.
    """
    first, hints = choices[0].held, choices[0].turn.params.hints
    known = tuple(prompt[:-1])
    for choice in choices:
        held = choice.held
        held.is_unsure = True  # should we be cancelled in the middle
        await engine.open(held.session, parent=None if held is first else first.session, hints=hints)
        held.is_unsure, held.is_open = False, True
        if held is first and known:
            await engine.append(held.session, known, hints)
        held.ids = known
    choices[0].num_shared = (await engine.stats(first.session)).total_reused_tokens


async def merge(streams: Sequence[AsyncGenerator[T, None]], cleanup_s: float) -> AsyncGenerator[T, None]:
    """What the streams give, as it comes; of what comes at once, the earlier stream's first.

    The first error ends it. However it ends, all streams are closed then.

    Args:
        cleanup_s: longest wait for them to close.
    """
    pending = {asyncio.create_task(_next(stream)): stream for stream in streams}
    try:
        while pending:
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in pending if task.done()]:
                found = task.result()
                stream = pending.pop(task)
                if found is not None:
                    pending[asyncio.create_task(_next(stream))] = stream
                    yield found[0]
    finally:
        await _to_the_end(_close(pending, streams), cleanup_s)


async def _close(pending: Iterable[asyncio.Task[Any]], streams: Sequence[AsyncGenerator[T, None]]) -> None:
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    errors: list[BaseException] = []
    for stream in streams:
        try:
            await stream.aclose()
        except BaseException as error:  # noqa: BLE001 - raised once the others are closed too
            errors.append(error)
    if errors:
        raise errors[0]


async def _to_the_end(work: Coroutine[Any, Any, None], limit_s: float) -> None:
    """Do the work whoever cancels us meanwhile: a client may leave while its streams are being closed already."""
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    end_s = loop.time() + limit_s
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done() and loop.time() < end_s:
            try:
                await asyncio.wait((task,), timeout=end_s - loop.time())
            except asyncio.CancelledError as error:
                cancelled = error
    if not task.done():
        task.cancel()
    if cancelled is not None:
        raise cancelled
    if task.done():
        task.result()


async def _next(stream: AsyncGenerator[T, None]) -> tuple[T] | None:
    """None at the end."""
    async for item in stream:
        return (item,)
    return None
