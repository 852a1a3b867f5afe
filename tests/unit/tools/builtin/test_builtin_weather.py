from __future__ import annotations

import asyncio
import re
from datetime import UTC, date, datetime

import httpx
import pytest

from tenuto.clock import VirtualClock, run_virtual
from tenuto.errors import ConfigError, ToolError
from tenuto.protocol.messages import COPIED
from tenuto.tools.builtin.weather import HttpWeather, SimulatedWeather, fetch_text, plausible_city, weather_tool
from tenuto.tools.builtin.weather_examples import weather_examples
from tenuto.tools.schema import Tool

MONDAY = datetime(2024, 5, 6, 9, tzinfo=UTC)


def ask(tool: Tool, city: str, day: str) -> str:
    async def main() -> str:
        return await tool(**tool.check({"city": city, "date": day}))

    return run_virtual(main())


def simulated(city: str, day: str) -> str:
    return ask(weather_tool(VirtualClock(MONDAY)), city, day)


def test_the_parameters_are_city_and_date_both_copied():
    tool = weather_tool(VirtualClock())
    assert tool.name == "weather"
    assert list(tool.parameters["properties"]) == tool.parameters["required"] == ["city", "date"]
    city, day = tool.parameters["properties"].values()
    assert city[COPIED] and city["minLength"] == 2
    (phrase, default) = day["anyOf"]
    assert phrase[COPIED] and phrase["pattern"] and default["enum"] == ["today", "今天"]


@pytest.mark.parametrize(
    ("city", "day", "begins"),
    [
        ("Beijing", "today", "Beijing, today (6 May): "),
        ("New York's", "next Monday", "New York, next Monday (13 May): "),
        ("上海", "明天", "上海，明天（5月7日）："),
        ("纽约的", "下周一", "纽约，下周一（5月13日）："),
        ("“广州”", "后天？", "广州，后天？（5月8日）："),
        ("in Rome", "2024-06-01", "Rome, 2024-06-01 (1 June): "),
        ("Beijing today", "today", "Beijing, today (6 May): "),
        ("São Paulo", "Friday", "Sao Paulo, Friday (10 May): "),
        ("查一下拉萨", "下周二", "拉萨，下周二（5月14日）："),
        ("昆明明", "明天", "昆明，明天（5月7日）："),
        ("青岛", "today", "青岛，今天（5月6日）："),
        ("Oslo", "今天", "Oslo, today (6 May): "),
        ("Oslo", "明天", "Oslo, 7 May: "),
    ],
)
def test_the_result_is_one_line_with_the_city_the_day_and_that_it_is_simulated(city, day, begins):
    line = simulated(city, day)
    assert line.startswith(begins)
    assert re.fullmatch(r"[a-z ]+, -?\d+°C \(simulated\)|[一-鿿]+，-?\d+°C（模拟）", line.removeprefix(begins))
    assert simulated(city, day) == line


def test_both_names_of_a_city_have_the_same_weather():
    degrees = [re.search(r"-?\d+°C", simulated(city, day)) for city, day in (("Beijing", "tomorrow"), ("北京", "明天"))]
    assert degrees[0] and degrees[1] and degrees[0].group() == degrees[1].group()


def test_simulated_weather_depends_on_city_and_day():
    async def main() -> set[str]:
        days = [date(2026, 7, n) for n in range(1, 15)]
        return {await SimulatedWeather().forecast(city, day) for city in ("北京", "Oslo") for day in days}

    assert len(asyncio.run(main())) > 15


@pytest.mark.parametrize("city", ["Will", "What's the weather", "it", "?", "12", "x" * 80, "Xyzzy"])
def test_what_is_no_city_is_asked_back(city):
    assert simulated(city, "today") == f"Which city do you mean? (unknown city: {city[:60]})"


@pytest.mark.parametrize("city", ["气怎么样", "雨吗", "告诉", "阿巴"])
def test_what_is_no_city_is_asked_back_in_chinese(city):
    assert simulated(city, "今天") == f"您想查哪个城市？（未知城市：{city}）"


@pytest.mark.parametrize(("city", "day"), [("Oslo", "soon"), ("Oslo", "30 February"), ("Oslo", "")])
def test_what_names_no_day_is_asked_back(city, day):
    assert simulated(city, day) == f"Which day do you mean? (unknown day: {day})"


def test_what_names_no_day_is_asked_back_in_chinese():
    assert simulated("成都", "2月30日") == "您想查哪一天？（未知日期：2月30日）"


def test_the_worked_examples_have_the_form_of_the_results():
    for is_simulated in (True, False):
        for example in weather_examples(is_simulated):
            city, day = example.arguments["city"], example.arguments["date"]
            if city in ("Xyzzy", "阿巴"):
                assert example.result == simulated(city, day)
                assert example.answer in example.result
                continue
            begins = simulated(city, day).split("(")[0].split("（")[0]
            assert example.result.startswith(begins)
            assert ("simulated" in example.result or "模拟" in example.result) == is_simulated
            report = re.split("[:：] ?", example.result)[1]
            assert report in example.answer


def test_a_configured_service_is_asked_and_its_answer_handed_on_for_any_city():
    asked: list[str] = []

    async def fetch(url: str) -> str:
        asked.append(url)
        return "晴，\n20 度" + "。" * 1000

    tool = weather_tool(VirtualClock(MONDAY), HttpWeather("https://w.example/v1?q={city}&day={date}&key=K", fetch))
    answer = ask(tool, "圣保罗/&x", "明天")
    assert answer.startswith("圣保罗/&x，明天（5月7日）：晴， 20 度") and len(answer) < 350
    assert "模拟" not in answer + "".join(str(e.result) for e in tool.examples)
    assert asked == ["https://w.example/v1?q=%E5%9C%A3%E4%BF%9D%E7%BD%97%2F%26x&day=2024-05-07&key=K"]
    assert ask(tool, "What's the weather", "today").startswith("Which city")
    assert len(asked) == 1


@pytest.mark.parametrize(
    "city", ["", "today", "今天", "the weather", "What's the weather like", "今天天气如何", "这里", "12", "x" * 80]
)
def test_a_real_service_is_not_asked_for_what_is_no_city(city):
    assert plausible_city(city) is None


def test_a_city_whose_name_begins_like_a_common_word_stays():
    assert [plausible_city(c) for c in ("Here East", "Atlanta", "Inverness", "Thereza", "天津")] == [
        "Here East", "Atlanta", "Inverness", "Thereza", "天津",
    ]  # fmt: skip


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
