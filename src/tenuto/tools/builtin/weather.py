"""The weather tool: the forecast for a city on a day, simulated unless a real source is configured."""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Awaitable, Callable
from datetime import date
from typing import Any, Protocol
from urllib.parse import quote

import httpx

from tenuto.clock import Clock
from tenuto.errors import ConfigError, InvalidArguments, ToolError
from tenuto.tools.builtin.dates import resolve_date, without_dates
from tenuto.tools.builtin.weather_examples import WEATHER_EXAMPLES
from tenuto.tools.schema import Copied, Tool, tool

Fetch = Callable[[str], Awaitable[str]]

_MAX_CITY_CHARS = 60
_MAX_BODY_BYTES = 64 * 1024
_FETCH_DEADLINE_S = 10.0
_CONDITIONS = (
    ("sunny", "晴"),
    ("cloudy", "多云"),
    ("overcast", "阴"),
    ("light rain", "小雨"),
    ("rain", "雨"),
    ("thunderstorms", "雷阵雨"),
    ("windy", "大风"),
    ("fog", "雾"),
)
_COLD_CONDITIONS = (("snow", "雪"), ("light snow", "小雪"))
_NO_CITY_WORDS = (
    "it me my there here where what's like city the weather forecast temperature rain umbrella what how is a in for "
    "of at on this that week weekend day please you your place town somewhere anywhere outside"
)
_NO_CITY = frozenset(_NO_CITY_WORDS.split())
_NO_CHINESE_CITY = re.compile(
    "天气预报|天气|天氣|气温|温度|下雨|雨|伞|城市|这里|這裡|那里|那裡|哪里|怎么样|如何|这儿|那儿|本地|当地|我|你|的|吗|会"
)
_EDGES = " \t\n\"'`.,;:!?()[]，。？！、；：“”‘’（）的"


class WeatherSource(Protocol):
    """Where forecasts come from. Raises ToolError."""

    async def forecast(self, city: str, day: date) -> dict[str, Any]: ...


class SimulatedWeather:
    """Invents plausible weather from city and day: the same question always gets the same answer, and it says so."""

    async def forecast(self, city: str, day: date) -> dict[str, Any]:
        chance = random.Random(f"{unicodedata.normalize('NFKC', city).casefold()}|{day.isoformat()}")
        winter = abs(day.month - 7) / 6  # 0 in July, 1 in January
        high = round(28 - 22 * winter + chance.uniform(-6, 6))
        low = high - chance.randint(5, 11)
        choices = _CONDITIONS + (_COLD_CONDITIONS if high <= 3 else ())
        english, chinese = chance.choice(choices)
        condition = chinese if _is_chinese(city) else english
        return {"weather": condition, "high_c": high, "low_c": low, "source": "simulation"}


class HttpWeather:
    """Asks a web service; its answer is handed on as it is.

    Args:
        url_template: http(s) address with `{city}` and `{date}` in it, e.g. "https://host/v1?q={city}&day={date}".
        fetch: gets an address and returns the body's text; None uses httpx.
    """

    def __init__(self, url_template: str, fetch: Fetch | None = None) -> None:
        if not re.match(r"https?://", url_template) or "{city}" not in url_template:
            raise ConfigError("weather URL template: it must start with http(s):// and contain {city} (and {date})")
        self._template = url_template
        self._fetch = fetch if fetch is not None else fetch_text

    async def forecast(self, city: str, day: date) -> dict[str, Any]:
        url = self._template.replace("{city}", quote(city, safe="")).replace("{date}", day.isoformat())
        return {"report": await self._fetch(url), "source": "web"}


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
    """The tool `weather(city, date)`; both are copied from the conversation."""
    forecasts = source if source is not None else SimulatedWeather()

    @tool(deadline_s=15.0, examples=WEATHER_EXAMPLES)
    async def weather(city: Copied[str], date: Copied[str]) -> dict[str, Any]:
        """Weather of a city on a day. 查天气。

        Args:
            city: as the user wrote it
            date: as the user wrote it, e.g. next Monday, 明天
        """
        named = plausible_city(city)
        day = resolve_date(date, clock.today().date())
        if day is None:
            raise InvalidArguments(
                f"argument 'date': {date[:40]!r} names no day; "
                "ask the user for the day (e.g. today, tomorrow, next Monday, 2026-12-03)"
            )
        return {"city": named, "date": day.isoformat(), **await forecasts.forecast(named, day)}

    return weather


def plausible_city(text: str) -> str:
    """The city's name without day names and possessives. Raises InvalidArguments if no name is left."""
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
        raise InvalidArguments(f"argument 'city': {text[:40]!r} is not a city; ask the user which city they mean")
    return name


def _is_chinese(text: str) -> bool:
    return any("一" <= char <= "鿿" for char in text)
