"""The clock tool: today's date, weekday and time, from the injected clock."""

from __future__ import annotations

from tenuto.clock import Clock
from tenuto.tools.builtin.dates import WEEKDAYS
from tenuto.tools.schema import Example, Tool, tool

_CHINESE_WEEKDAYS = "一二三四五六日"

# One line for both languages, since the tool cannot know the question's: the answer takes the half it needs.
_RESULT = "2026-03-02 09:15 UTC, Monday, 星期一"
_EXAMPLES = (
    Example("What date is it?", {}, _RESULT, "Monday, 2026-03-02 09:15 UTC."),
    Example("现在是几点几分？", {}, _RESULT, "2026-03-02 09:15 UTC，星期一。"),
)


def clock_tool(clock: Clock) -> Tool:
    """The tool `clock()`."""

    @tool(name="clock", deadline_s=5.0, examples=_EXAMPLES)
    async def tell() -> str:
        """the date and time now"""
        now = clock.today()
        weekdays = f"{WEEKDAYS[now.weekday()].title()}, 星期{_CHINESE_WEEKDAYS[now.weekday()]}"
        return f"{now:%Y-%m-%d %H:%M} {now.tzname() or 'local'}, {weekdays}"

    return tell
