"""Follows one stream of new ids, and becomes the record of its turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenuto.bench.records import TurnRecord
from tenuto.protocol.engine import GenerateUsage, TokenDelta


class TurnWatch:
    """Made when the request is made.

    Args:
        now: seconds since the run began.
    """

    def __init__(self, agent: int, turn: int, num_in: int, now: Callable[[], float]) -> None:
        self.agent = agent
        self._turn, self._num_in = turn, num_in
        self._now = now
        self._start_s = now()
        self._first_s: float | None = None
        self._end_s = self._start_s
        self._num_out = 0
        self._ids: list[int] = []
        self._num_steps = 0

    def saw(self, num_ids: int, *, is_step: bool = True) -> None:
        """Args:
        is_step: whether a step chose some of these ids; false if all are forced.
        """
        if num_ids:
            self._end_s = self._now()
            self._first_s = self._end_s if self._first_s is None else self._first_s
            self._num_out += num_ids
            self._num_steps += is_step

    def saw_ids(self, ids: Sequence[int], *, is_step: bool = True) -> None:
        self._ids += ids
        self.saw(len(ids), is_step=is_step)

    def saw_delta(self, delta: TokenDelta) -> None:
        """A delta of forced ids has no step, one whose id was guessed right is of the step of the one before."""
        self.saw_ids(delta.ids, is_step=len(delta.ids) > delta.num_forced and not delta.accepted)

    @property
    def num_out(self) -> int:
        return self._num_out

    def record(
        self,
        num_context: int,
        usage: GenerateUsage | None = None,
        num_in: int | None = None,
        *,
        tells_steps: bool = True,
    ) -> TurnRecord:
        """
        Args:
            num_in: where it is only known now.
            tells_steps: false where ids come as pieces of text, which are no steps.

        Raises:
            AssertionError: nothing was generated.
        """
        assert self._first_s is not None, f"agent {self.agent} got no token in turn {self._turn}"
        return TurnRecord(
            agent=self.agent,
            turn=self._turn,
            num_in=self._num_in if num_in is None else num_in,
            num_context=num_context,
            num_out=self._num_out,
            start_s=self._start_s,
            first_s=self._first_s,
            end_s=self._end_s,
            num_held=None if usage is None else usage.num_held,
            num_shared=None if usage is None else usage.num_shared,
            num_computed=None if usage is None else usage.num_computed,
            num_forced=None if usage is None else usage.num_forced,
            num_decode_steps=self._num_steps if usage is not None and tells_steps else None,
            ids=tuple(self._ids),
        )
