"""The clock tool: today's date, weekday and time, from the injected clock."""

from __future__ import annotations

from tenuto.clock import Clock
from tenuto.tools.schema import Example, Tool, tool

_WEEKDAYS = (
    ("Monday", "星期一"),
    ("Tuesday", "星期二"),
    ("Wednesday", "星期三"),
    ("Thursday", "星期四"),
    ("Friday", "星期五"),
    ("Saturday", "星期六"),
    ("Sunday", "星期日"),
)

_EXAMPLES = (Example("What time is it?", {}, '{"time": "09:00", "zone": "UTC"}', "It is 09:00."),)


def clock_tool(clock: Clock) -> Tool:
    """The tool `clock()`."""

    @tool(name="clock", deadline_s=5.0, examples=_EXAMPLES)
    async def tell() -> dict[str, str]:
        """Date, weekday and time now. 现在时间。"""
        now = clock.today()
        english, chinese = _WEEKDAYS[now.weekday()]
        return {
            "date": now.date().isoformat(),
            "weekday": f"{english} {chinese}",
            "time": now.strftime("%H:%M"),
            "zone": now.tzname() or "local",
        }

    return tell
