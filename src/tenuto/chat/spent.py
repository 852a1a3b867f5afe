"""What one stream of an engine's deltas costs, also if it is broken off before it says so itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from tenuto.protocol.engine import FinishReason, GenerateUsage, TokenDelta

OnBrokenOff: TypeAlias = Callable[[GenerateUsage], None]
"""Told of a stream that ended before its reply was whole, in the task that worked for it: what was generated so far."""


def nobody(_: GenerateUsage) -> None:
    """An `OnBrokenOff` that keeps nothing."""


class Spent:
    """Adds up the deltas of one `generate` call.

    Attributes:
        num_generated: ids.
        finish: why the stream ended; None: it goes on, or was broken off.
        usage: of the whole call, once it is known.
    """

    def __init__(self) -> None:
        self.num_generated = 0
        self.finish: FinishReason | None = None
        self.usage: GenerateUsage | None = None
        self._num_forced = self._num_accepted = self._num_steps = 0

    def add(self, delta: TokenDelta) -> None:
        self.num_generated += len(delta.ids)
        self._num_forced += delta.num_forced
        self._num_accepted += delta.accepted
        self._num_steps += not delta.accepted
        self.finish, self.usage = delta.finish, delta.usage

    def tell(self, on_broken_off: OnBrokenOff) -> None:
        """The stream is given up, and its reply with it. Of the prompt nothing is told: it takes the engine to know
        where its KV came from, and that may be gone."""
        if self.num_generated:
            on_broken_off(self.usage or self._generated())

    def broken_off(self, num_prompt: int, num_gained: int, num_computed_before: int) -> GenerateUsage:
        """The usage of a stream that was broken off, which gives none.

        Args:
            num_gained: by how much the session's total of reused tokens has grown.
            num_computed_before: tokens with KV when the call began.
        """
        num_reused = min(num_prompt, num_gained)
        num_held = min(num_computed_before, num_reused)
        self.usage = msgspec.structs.replace(
            self._generated(),
            num_prompt=num_prompt,
            num_held=num_held,
            num_shared=num_reused - num_held,
            num_computed=num_prompt - num_reused,
        )
        return self.usage

    def _generated(self) -> GenerateUsage:
        return GenerateUsage(
            num_generated=self.num_generated,
            num_forced=self._num_forced,
            num_accepted=self._num_accepted,
            num_steps=self._num_steps,
        )
