from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

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

    async def main() -> str:
        await clock.sleep(3600 * 3)
        return await tell()

    assert run_virtual(main()) == "2026-01-06 00:30 CST, Tuesday, 星期二"


def test_descriptions_are_one_short_line_and_arguments_have_none(tmp_path):
    for each in builtin_tools(VirtualClock(), search_root=tmp_path):
        assert "\n" not in each.description and len(each.description) < 40
        assert all("description" not in schema for schema in each.parameters["properties"].values())


def test_worked_examples_speak_both_languages_and_of_none_of_the_measured_cities(tmp_path):
    examples = [e for each in builtin_tools(VirtualClock(), search_root=tmp_path) for e in each.examples]
    text = " ".join(f"{e.question} {e.result} {e.answer}" for e in examples)
    assert not re.search("Beijing|Shanghai|New York|北京|上海|纽约", text)
    chinese = [e for e in examples if re.search("[一-鿿]", e.question)]
    assert 7 <= len(chinese) <= len(examples) - 7


def test_worked_examples_show_what_the_tools_say(tmp_path):
    (tmp_path / "log.md").write_text("\n\n日志写到标准输出。\n", "utf-8")
    (tmp_path / "batch.md").write_text("\n" * 6 + "The batch size is set in the config.\n", "utf-8")
    clock = VirtualClock(datetime(2026, 3, 2, 9, 15, tzinfo=UTC))

    async def main() -> None:
        for each in builtin_tools(clock, search_root=tmp_path):
            if each.name == "weather":  # its weather is invented anew for every day
                continue
            for example in each.examples:
                if example.arguments is not None:
                    result = each(**each.check(example.arguments))
                    said = await result if each.is_async else result
                    assert said.splitlines()[0] == example.result, example.question

    run_virtual(main())
