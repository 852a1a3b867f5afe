from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, date, datetime

import httpx
import pytest

from tenuto.clock import VirtualClock, run_virtual
from tenuto.errors import ConfigError, InvalidArguments, ToolError
from tenuto.protocol.messages import COPIED
from tenuto.tools.builtin.weather import HttpWeather, SimulatedWeather, fetch_text, plausible_city, weather_tool
from tenuto.tools.builtin.weather_examples import WEATHER_EXAMPLES
from tenuto.tools.schema import Tool

MONDAY = datetime(2024, 5, 6, 9, tzinfo=UTC)


def ask(tool: Tool, city: str, day: str) -> dict:
    async def main() -> dict:
        return await tool(**tool.check({"city": city, "date": day}))

    return run_virtual(main())


def test_the_parameters_are_city_and_date_both_copied():
    tool = weather_tool(VirtualClock())
    assert tool.name == "weather"
    assert tool.parameters["required"] == ["city", "date"]
    assert all(each[COPIED] for each in tool.parameters["properties"].values())


@pytest.mark.parametrize(
    ("city", "day", "named", "iso"),
    [
        ("Beijing", "today", "Beijing", "2024-05-06"),
        ("New York's", "next Monday", "New York", "2024-05-13"),
        ("上海", "明天", "上海", "2024-05-07"),
        ("纽约的", "下周一", "纽约", "2024-05-13"),
        ("“广州”", "后天？", "广州", "2024-05-08"),
        ("in Rome", "2024-06-01", "Rome", "2024-06-01"),
        ("Beijing today", "today", "Beijing", "2024-05-06"),
        ("São Paulo", "Friday", "São Paulo", "2024-05-10"),
    ],
)
def test_the_answer_names_the_city_the_day_and_that_it_is_simulated(city, day, named, iso):
    answer = ask(weather_tool(VirtualClock(MONDAY)), city, day)
    assert (answer["city"], answer["date"], answer["source"]) == (named, iso, "simulation")
    assert answer["low_c"] < answer["high_c"]
    assert ask(weather_tool(VirtualClock(MONDAY)), city, day) == answer


def test_simulated_weather_depends_on_city_and_day():
    async def main() -> set[str]:
        days = [date(2026, 7, n) for n in range(1, 15)]
        return {str(await SimulatedWeather().forecast(city, day)) for city in ("北京", "Oslo") for day in days}

    assert len(asyncio.run(main())) > 20


@pytest.mark.parametrize(
    "city",
    [
        "",
        "  ",
        "today",
        "今天",
        "weather",
        "the weather",
        "What's the weather like",
        "今天天气如何",
        "it",
        "天气",
        "这里",
        "?",
        "12",
        "x" * 80,
    ],
)
def test_what_is_no_city_is_asked_back(city):
    with pytest.raises(InvalidArguments, match=r"argument 'city'.*ask the user which city"):
        ask(weather_tool(VirtualClock(MONDAY)), city, "today")


def test_a_city_whose_name_begins_like_a_common_word_stays():
    assert [plausible_city(c) for c in ("Here East", "Atlanta", "Inverness", "Thereza", "天津")] == [
        "Here East", "Atlanta", "Inverness", "Thereza", "天津",
    ]  # fmt: skip


@pytest.mark.parametrize("day", ["", "soon", "next week", "下周", "Beijing"])
def test_what_names_no_day_is_asked_back(day):
    with pytest.raises(InvalidArguments, match=r"argument 'date'.*ask the user for the day"):
        ask(weather_tool(VirtualClock(MONDAY)), "Beijing", day)


def test_the_worked_examples_are_what_the_tool_does():
    tool = weather_tool(VirtualClock(MONDAY))
    calls = [e for e in WEATHER_EXAMPLES if e.arguments is not None]
    assert len(calls) >= 12
    for example in calls:
        answer = ask(tool, example.arguments["city"], example.arguments["date"])
        assert answer["city"] == example.arguments["city"]
        assert json.loads(example.result).items() <= answer.items(), example.question
        assert example.answer is None or answer["weather"] in example.answer


def test_the_worked_examples_speak_both_languages_and_of_none_of_the_measured_cities():
    text = json.dumps([e.question for e in WEATHER_EXAMPLES], ensure_ascii=False)
    assert len(WEATHER_EXAMPLES) >= 12
    assert not re.search("Beijing|Shanghai|New York|北京|上海|纽约", text)
    chinese = [e for e in WEATHER_EXAMPLES if re.search("[一-鿿]", e.question)]
    assert 4 <= len(chinese) <= len(WEATHER_EXAMPLES) - 4


def test_a_configured_service_is_asked_and_its_answer_handed_on():
    asked: list[str] = []

    async def fetch(url: str) -> str:
        asked.append(url)
        return "晴，20 度"

    tool = weather_tool(VirtualClock(MONDAY), HttpWeather("https://w.example/v1?q={city}&day={date}&key=K", fetch))
    answer = ask(tool, "圣保罗/&x", "tomorrow")
    assert answer == {"city": "圣保罗/&x", "date": "2024-05-07", "report": "晴，20 度", "source": "web"}
    assert asked == ["https://w.example/v1?q=%E5%9C%A3%E4%BF%9D%E7%BD%97%2F%26x&day=2024-05-07&key=K"]


@pytest.mark.parametrize("template", ["", "ftp://h/{city}", "https://h/weather", "file:///etc/{city}"])
def test_a_template_that_cannot_work_is_refused(template):
    with pytest.raises(ConfigError, match="template"):
        HttpWeather(template)


async def serve(body: bytes, status: str = "200 OK") -> tuple[asyncio.Server, str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/?key=CANARY"


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [("晴".encode(), "200 OK", None), (b"x" * 100_000, "200 OK", "more than 65536"), (b"", "404 Not Found", "404")],
)
def test_fetching_is_bounded_and_errors_do_not_repeat_the_address(body, status, told):
    async def main() -> None:
        server, url = await serve(body, status)
        async with server:
            if told is None:
                assert await fetch_text(url) == body.decode()
                return
            with pytest.raises(ToolError, match=told) as raised:
                await fetch_text(url)
            assert "CANARY" not in str(raised.value)

    asyncio.run(main())


def test_a_service_that_cannot_be_reached_is_a_tool_error():
    async def main() -> None:
        server, url = await serve(b"")
        server.close()
        await server.wait_closed()
        with pytest.raises(ToolError, match="cannot be reached") as raised:
            await fetch_text(url)
        assert "CANARY" not in str(raised.value)
        assert not isinstance(raised.value.__cause__, httpx.HTTPError)  # whose text holds the address

    asyncio.run(main())
