"""Runs one tool call to its outcome. Whatever the tool does, the outcome is text for the model, in bounded time."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from tenuto.clock import Clock
from tenuto.errors import TenutoError, ToolError, ToolTimeout
from tenuto.protocol.messages import ToolCall
from tenuto.tools.registry import ToolRegistry
from tenuto.tools.result_text import capped, error_text, result_text
from tenuto.tools.schema import Tool
from tenuto.tools.threads import WorkerThreads

_log = logging.getLogger(__name__)
_CANCEL_GRACE_S = 1.0  # how long a cancelled async tool may take to clean up


class ToolOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a call. `text` is never empty and goes to the model."""

    call: ToolCall
    text: str
    is_error: bool = False
    error_code: str | None = None  # stable name of the error's kind, e.g. "tool_timeout"
    duration_s: float = 0.0


class ToolRuntime:
    """Runs calls of the registered tools, any number at once.

    Args:
        tools: the tools that may be called.
        clock: measures durations.
        threads: where sync tools run.
        deadline_s: for tools that set none of their own.
        max_result_chars: longer results are cut, with a notice.
    """

    def __init__(
        self,
        tools: ToolRegistry,
        clock: Clock,
        *,
        threads: WorkerThreads | None = None,
        deadline_s: float = 30.0,
        max_result_chars: int = 16_000,
    ) -> None:
        self._tools = tools
        self._clock = clock
        self._threads = threads if threads is not None else WorkerThreads()
        self._deadline_s = deadline_s
        self._max_result_chars = max_result_chars

    async def run(self, call: ToolCall, *, max_wait_s: float | None = None) -> ToolOutcome:
        """The outcome; every failure of the call or the tool is an error outcome. Cancelling cancels the tool.

        `max_wait_s` shortens the tool's own deadline, e.g. to what is left of the run's.
        """
        start = self._clock.now()
        try:
            tool = self._tools.get(call.name)
            arguments = tool.check(call.arguments)
            deadline_s = tool.deadline_s if tool.deadline_s is not None else self._deadline_s
            value = await self._finish_in(
                deadline_s if max_wait_s is None else min(deadline_s, max_wait_s), tool, arguments
            )
            text = result_text(value)
        except Exception as error:  # noqa: BLE001
            # The one place where a tool's exception ends: as the result that the model reads.
            _log.info("tool %s failed", call.name, exc_info=error)
            return ToolOutcome(
                call=call,
                text=f"Error: {error_text(error)}",
                is_error=True,
                error_code=error.code if isinstance(error, TenutoError) else "tool_failed",
                duration_s=self._clock.now() - start,
            )
        return ToolOutcome(call=call, text=capped(text, self._max_result_chars), duration_s=self._clock.now() - start)

    async def _finish_in(self, deadline_s: float, tool: Tool, arguments: dict[str, Any]) -> Any:
        task = asyncio.create_task(self._invoke(tool, arguments), name=f"tool-{tool.name}")
        in_time = False
        try:
            in_time = bool((await asyncio.wait({task}, timeout=deadline_s))[0])
        finally:
            if not in_time:
                await _cancel(task, tool.name)
        if not in_time:
            raise ToolTimeout(f"{tool.name} did not answer within {deadline_s:g} s; whether it took effect is unknown")
        if task.cancelled():
            raise ToolError(f"{tool.name} cancelled itself")
        return task.result()

    async def _invoke(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        try:
            if tool.is_async:
                return await tool.function(**arguments)
            return await self._threads.run(tool.name, lambda: tool.function(**arguments))
        except SystemExit as error:
            raise ToolError(f"the tool tried to end the program (exit code {error.code})") from error


async def _cancel(task: asyncio.Task[Any], name: str) -> None:
    """Cancels and lets the tool clean up, but not for long: a tool that ignores it is left behind, with a note."""
    task.cancel()
    task.add_done_callback(_forget)
    await asyncio.wait({task}, timeout=_CANCEL_GRACE_S)
    if not task.done():
        _log.warning("tool %s ignores its cancellation; its result will be dropped", name)


def _forget(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not report it as lost
