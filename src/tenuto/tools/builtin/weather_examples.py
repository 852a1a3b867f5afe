"""Worked examples of the weather tool. Small models need about a dozen, in both languages, to fill it right.

The results are those of the simulation on Monday 6 May 2024; a test holds them to that. They do not
depend on today's date, so that every run's prompt starts with the same tokens.
"""

from __future__ import annotations

from tenuto.tools.schema import Example


def _call(question: str, city: str, date: str) -> Example:
    return Example(question, {"city": city, "date": date})


WEATHER_EXAMPLES: tuple[Example, ...] = (
    _call("What is the weather in Oslo today?", "Oslo", "today"),
    _call("巴黎今天天气怎么样？", "巴黎", "今天"),
    _call("Will it rain in Madrid tomorrow?", "Madrid", "tomorrow"),
    _call("伦敦明天会下雨吗？", "伦敦", "明天"),
    _call("Check San Francisco's weather next Friday for me", "San Francisco", "next Friday"),
    _call("帮我看看广州下周三的天气", "广州", "下周三"),
    _call("Do I need an umbrella in Hong Kong this Sunday?", "Hong Kong", "this Sunday"),
    _call("后天去成都要带伞吗？", "成都", "后天"),
    _call("How cold will Toronto be the day after tomorrow?", "Toronto", "the day after tomorrow"),
    Example(
        "What is the weather in Vienna tomorrow?",
        {"city": "Vienna", "date": "tomorrow"},
        '{"city": "Vienna", "date": "2024-05-07", "weather": "fog", "high_c": 16, "low_c": 8, "source": "simulation"}',
        "Tomorrow (2024-05-07) in Vienna: fog, 8 to 16 °C (simulated).",
    ),
    Example(
        "东京今天天气怎么样？",
        {"city": "东京", "date": "今天"},
        '{"city": "东京", "date": "2024-05-06", "weather": "雨", "high_c": 25, "low_c": 18, "source": "simulation"}',
        "东京今天（2024-05-06）有雨，18 到 25 °C（模拟数据）。",
    ),
    Example("What's the weather like?", answer="Which city do you mean, and for which day?"),
    Example("天气怎么样？", answer="请问您想查询哪个城市、哪一天的天气？"),
)
