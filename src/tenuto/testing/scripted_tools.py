"""Tools whose results are written down beforehand, and that take scripted time on a clock."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tenuto.clock import Clock, RealClock
from tenuto.tools.schema import Tool, tool

Results: TypeAlias = "Sequence[Any] | Callable[[dict[str, Any]], Any]"


class ScriptedTools:
    """Makes tools and records what they were asked.

    A result that is an exception is raised. The last result of a list is given again and again.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock if clock is not None else RealClock()
        self.calls: list[tuple[str, dict[str, Any]]] = []  # in order of start
        self.cancelled: list[tuple[str, dict[str, Any]]] = []
        self.max_running = 0  # most calls at once
        self._num_running = 0

    def make(
        self,
        name: str,
        results: Results,
        *,
        parameters: Mapping[str, Any] | None = None,
        delay_s: float | Callable[[dict[str, Any]], float] = 0.0,
        deadline_s: float | None = None,
    ) -> Tool:
        """A tool of this name. `parameters` maps each argument to its type; by default one string `query`."""
        given = 0

        async def play(**arguments: Any) -> Any:
            nonlocal given
            self.calls.append((name, arguments))
            self._num_running += 1
            self.max_running = max(self.max_running, self._num_running)
            try:
                await self._clock.sleep(delay_s(arguments) if callable(delay_s) else delay_s)
                result = results(arguments) if callable(results) else results[min(given, len(results) - 1)]
                given += 1
            except asyncio.CancelledError:
                self.cancelled.append((name, arguments))
                raise
            finally:
                self._num_running -= 1
            if isinstance(result, BaseException):
                raise result
            return result

        hints = dict(parameters) if parameters is not None else {"query": str}
        play.__annotations__ = {**hints, "return": Any}
        keyword_only = inspect.Parameter.KEYWORD_ONLY
        signature = inspect.Signature([inspect.Parameter(each, keyword_only, annotation=hints[each]) for each in hints])
        play.__signature__ = signature  # type: ignore[attr-defined]
        return tool(name=name, description=f"Scripted tool {name}. 测试工具。", deadline_s=deadline_s)(play)
