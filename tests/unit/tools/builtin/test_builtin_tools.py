from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from tenuto.clock import VirtualClock, run_virtual
from tenuto.errors import ConfigError
from tenuto.tools import ToolRegistry
from tenuto.tools.builtin import builtin_tools


def test_the_set_depends_on_what_is_configured(tmp_path):
    clock = VirtualClock()
    assert ToolRegistry(builtin=builtin_tools(clock)).names == ("clock", "calculator", "weather")
    assert ToolRegistry(builtin=builtin_tools(clock, search_root=tmp_path)).names[0] == "search"
    with pytest.raises(ConfigError):
        builtin_tools(clock, weather_url="nonsense")


def test_the_clock_tells_date_weekday_time_and_zone():
    zone = timezone(timedelta(hours=8), "CST")
    clock = VirtualClock(datetime(2026, 1, 5, 21, 30, tzinfo=zone))
    (tell,) = [t for t in builtin_tools(clock) if t.name == "clock"]

    async def main() -> dict[str, str]:
        await clock.sleep(3600 * 3)
        return await tell()

    assert run_virtual(main()) == {"date": "2026-01-06", "weekday": "Tuesday 星期二", "time": "00:30", "zone": "CST"}
