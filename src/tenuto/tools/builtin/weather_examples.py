"""Worked examples of the weather tool, for models too small to fill it without.

Measured on the embedded 135M model: a dozen calls in both languages, one like the other and with short results, get
city and date right nearly always; fewer, or ones that end in long answers or questions back, make it copy the last
answer instead of calling. So the calls come last and only the first of each language shows an answer. The results
hold what the simulation says on Monday 6 May 2024, in part, to save tokens. They do not depend on today's date, so
that every run's prompt starts with the same tokens.
"""

from __future__ import annotations

import json

from tenuto.tools.schema import Example


def _call(question: str, city: str, date: str, weather: str, answer: str | None = None) -> Example:
    result = json.dumps({"weather": weather}, ensure_ascii=False)
    return Example(question, {"city": city, "date": date}, result, answer)


WEATHER_EXAMPLES: tuple[Example, ...] = (
    Example("What's the weather like?", answer="Which city do you mean, and for which day?"),
    Example("天气怎么样？", answer="请问您想查询哪个城市、哪一天的天气？"),
    _call("What is the weather in Oslo today?", "Oslo", "today", "rain", "Oslo today: rain (simulated)."),
    _call("巴黎今天天气怎么样？", "巴黎", "今天", "阴", "巴黎今天：阴（模拟数据）。"),
    _call("Will it rain in Madrid tomorrow?", "Madrid", "tomorrow", "sunny"),
    _call("伦敦明天会下雨吗？", "伦敦", "明天", "雷阵雨"),
    _call("Check San Francisco's weather next Friday for me", "San Francisco", "next Friday", "rain"),
    _call("帮我看看广州下周三的天气", "广州", "下周三", "雨"),
    _call("Do I need an umbrella in Hong Kong this Sunday?", "Hong Kong", "this Sunday", "windy"),
    _call("后天去成都要带伞吗？", "成都", "后天", "雷阵雨"),
    _call("How cold will Toronto be next Tuesday?", "Toronto", "next Tuesday", "light rain"),
    _call("东京今天会很热吗？", "东京", "今天", "雨"),
    _call("Look up the weather in Los Angeles next Thursday", "Los Angeles", "next Thursday", "thunderstorms"),
    _call("查一下罗马周五的天气", "罗马", "周五", "多云"),
)
