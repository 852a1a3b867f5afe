"""The weather tool: the forecast for a city on a day, simulated unless a real source is configured.

Its result is one ready line in the language of the city, since the smallest models can repeat such a line truthfully
but cannot read JSON. The line shows the day as it was understood, so that a misread one is seen.
"""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable
from datetime import date
from typing import Annotated, Literal, Protocol
from urllib.parse import quote

import httpx
import pydantic

from tenuto.clock import Clock
from tenuto.errors import ConfigError, ToolError
from tenuto.tools.builtin.cities import english_name, known_city
from tenuto.tools.builtin.dates import DATE_PATTERN, DATE_WORDS, MONTHS, resolve_date, without_dates
from tenuto.tools.builtin.weather_examples import weather_examples
from tenuto.tools.schema import Copied, CopiedNewest, Tool, tool

Fetch = Callable[[str], Awaitable[str]]

_NO_CITY_PART = f"{DATE_WORDS}|[0-9你您我谁几]|什么|多少|等于|谢谢|再见"  # no city's name holds these

# Told to the grammar only: callers that have none may name a day in their own words, and are answered, not refused.
City = Annotated[Copied[str], pydantic.Field(json_schema_extra={"minLength": 2, "not": {"pattern": _NO_CITY_PART}})]
Day = Annotated[CopiedNewest[str], pydantic.Field(json_schema_extra={"pattern": DATE_PATTERN})]

_MAX_CITY_CHARS = 60
_MAX_REPORT_CHARS = 300
_MAX_BODY_BYTES = 64 * 1024
_FETCH_DEADLINE_S = 10.0
_CONDITIONS = (
    ("sunny", "晴"),
    ("cloudy", "多云"),
    ("overcast", "阴"),
    ("light rain", "小雨"),
    ("rain", "中雨"),
    ("thunderstorms", "雷阵雨"),
    ("windy", "大风"),
    ("fog", "雾"),
)
_COLD_CONDITIONS = (("snow", "大雪"), ("light snow", "小雪"))
_NO_CITY_WORDS = (
    "it me my there here where what's like city the weather forecast temperature rain umbrella what how is a in for "
    "of at on this that week weekend day please you your place town somewhere anywhere outside will show tell check"
)
_NO_CITY = frozenset(_NO_CITY_WORDS.split())
_NO_CHINESE_CITY = re.compile(
    "天气预报|天气|天氣|气温|温度|下雨|下雪|雨|雪|伞|城市|这里|這裡|那里|那裡|哪里|怎么样|如何|这儿|那儿|本地|当地|"
    "告诉|请问|我|你|的|吗|会|冷|热"
)
_EDGES = " \t\n\"'`.,;:!?()[]，。？！、；：“”‘’（）的"


class WeatherSource(Protocol):
    """Where forecasts come from."""

    is_simulated: bool  # then only known cities are answered, and the result says that it is simulated

    async def forecast(self, city: str, day: date) -> str:
        """One short line, in the language of the city's name. Raises ToolError."""
        ...


class SimulatedWeather:
    """Invents plausible weather from city and day: the same question always gets the same answer."""

    is_simulated = True

    async def forecast(self, city: str, day: date) -> str:
        chance = random.Random(f"{english_name(city)}|{day.isoformat()}")
        winter = abs(day.month - 7) / 6  # 0 in July, 1 in January
        degrees = round(28 - 22 * winter + chance.uniform(-8, 6))
        english, chinese = chance.choice(_CONDITIONS + (_COLD_CONDITIONS if degrees <= 3 else ()))
        return f"{chinese}，{degrees}°C" if _is_chinese(city) else f"{english}, {degrees}°C"


class HttpWeather:
    """Asks a web service; the beginning of its answer is handed on, as one line.

    Args:
        url_template: http(s) address with `{city}` and `{date}` in it, e.g. "https://host/v1?q={city}&day={date}".
        fetch: gets an address and returns the body's text; None uses httpx.
    """

    is_simulated = False

    def __init__(self, url_template: str, fetch: Fetch | None = None) -> None:
        if not re.match(r"https?://", url_template) or "{city}" not in url_template:
            raise ConfigError("weather URL template: it must start with http(s):// and contain {city} (and {date})")
        self._template = url_template
        self._fetch = fetch if fetch is not None else fetch_text

    async def forecast(self, city: str, day: date) -> str:
        url = self._template.replace("{city}", quote(city, safe="")).replace("{date}", day.isoformat())
        return " ".join((await self._fetch(url)).split())[:_MAX_REPORT_CHARS]


async def fetch_text(url: str) -> str:
    """The body of an address, at most 64 kB. Raises ToolError, whose message does not repeat the address: it may
    hold a key."""
    try:
        async with (
            httpx.AsyncClient(timeout=_FETCH_DEADLINE_S) as client,
            client.stream("GET", url) as response,
        ):
            if response.status_code != 200:
                raise ToolError(f"the weather service answered with status {response.status_code}")
            body = b""
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > _MAX_BODY_BYTES:
                    raise ToolError(f"the weather service sent more than {_MAX_BODY_BYTES} bytes")
            return body.decode("utf-8", "replace")
    except httpx.HTTPError as error:
        raise ToolError(f"the weather service cannot be reached ({type(error).__name__})") from None


def weather_tool(clock: Clock, source: WeatherSource | None = None) -> Tool:
    """The tool `weather(city, date)`; both are copied from the conversation, but for the usual day."""
    forecasts = source if source is not None else SimulatedWeather()

    @tool(deadline_s=15.0, examples=weather_examples(forecasts.is_simulated))
    async def weather(city: City, date: Day | Literal["today", "今天"]) -> str:
        """the weather of a city on a date"""
        named = known_city(without_dates(city)) if forecasts.is_simulated else plausible_city(city)
        if named is None:
            return unknown_city(city)
        today = clock.today().date()
        day = resolve_date(date, today)
        if day is None:
            return unknown_day(date, city)
        phrase = _in_language_of(named, date, is_today=day == today)
        return result_line(named, phrase, day, await forecasts.forecast(named, day), forecasts.is_simulated)

    return weather


def result_line(city: str, phrase: str, day: date, report: str, is_simulated: bool) -> str:
    """What the model reads, e.g. "Oslo, today (3 May): light rain, 8°C (simulated)"."""
    if _is_chinese(city):
        shown = f"{day.month}月{day.day}日"
        return f"{city}，{f'{phrase}（{shown}）' if phrase else shown}：{report}{'（模拟）' if is_simulated else ''}"
    shown = f"{day.day} {MONTHS[day.month - 1]}"
    return f"{city}, {f'{phrase} ({shown})' if phrase else shown}: {report}{' (simulated)' if is_simulated else ''}"


def _in_language_of(city: str, phrase: str, *, is_today: bool) -> str:
    """The phrase if it is in the city's language, else our own word for today, else nothing: the date says it."""
    if _is_chinese(city) == _is_chinese(phrase):
        return " ".join(phrase.split())
    if not is_today:
        return ""
    return "今天" if _is_chinese(city) else "today"


def unknown_city(text: str) -> str:
    """The result for a city that is none: first the question to ask, which is all that a small model repeats."""
    shown = " ".join(text.split())[:_MAX_CITY_CHARS]
    if _is_chinese(text):
        return f"您想查哪个城市？（未知城市：{shown}）"
    return f"Which city do you mean? (unknown city: {shown})"


def unknown_day(phrase: str, city: str) -> str:
    shown = " ".join(phrase.split())[:_MAX_CITY_CHARS]
    if _is_chinese(phrase + city):
        return f"您想查哪一天？（未知日期：{shown}）"
    return f"Which day do you mean? (unknown day: {shown})"


def plausible_city(text: str) -> str | None:
    """The city's name without day names and possessives; None if no name is left."""
    name = without_dates(text).strip(_EDGES)
    name = re.sub(r"['’]s?$", "", name).strip(_EDGES)
    name = re.sub(r"^(?:in|at|for|of|the weather in)\s+", "", name, flags=re.I)
    words = name.casefold().split()
    if (
        not any(char.isalpha() for char in name)
        or len(name) > _MAX_CITY_CHARS
        or all(word in _NO_CITY for word in words)
        or not _NO_CHINESE_CITY.sub("", name)
    ):
        return None
    return name


def _is_chinese(text: str) -> bool:
    return any("一" <= char <= "鿿" for char in text)
