"""Worked examples of the weather tool, for models too small to fill it without.

Chosen by runs on the embedded 135M model. What mattered: many shapes of a question, in both languages; the city before
the date; results and answers of one short line; two invented cities that show how a missing city is asked back; and
easy questions in the common shapes last, since a small model follows what it has read last. Nothing here depends on
today's date, so that every run's prompt starts with the same tokens.
"""

from __future__ import annotations

from tenuto.tools.schema import Example


def weather_examples(is_simulated: bool) -> tuple[Example, ...]:
    """The examples; the results of simulated weather say that it is, as the tool's own do."""
    english, chinese = (" (simulated)", "（模拟）") if is_simulated else ("", "")

    def en(question: str, city: str, phrase: str, day: str, report: str) -> Example:
        result, answer = f"{city}, {phrase} ({day}): {report}{english}", f"{city}, {phrase}: {report}{english}."
        return Example(question, {"city": city, "date": phrase}, result, answer)

    def zh(question: str, city: str, phrase: str, day: str, report: str) -> Example:
        result, answer = f"{city}，{phrase}（{day}）：{report}{chinese}", f"{city}{phrase}：{report}{chinese}。"
        return Example(question, {"city": city, "date": phrase}, result, answer)

    return (
        en("What is the weather in Paris tomorrow?", "Paris", "tomorrow", "3 March", "cloudy, 14°C"),
        zh("请问桂林后天的天气如何", "桂林", "后天", "3月4日", "晴，21°C"),
        en("How is the weather in Madrid?", "Madrid", "today", "2 March", "sunny, -5°C"),
        zh("南京天气怎么样？", "南京", "今天", "3月2日", "阴，12°C"),
        Example(
            "What's the weather in Xyzzy on Friday?",
            {"city": "Xyzzy", "date": "Friday"},
            "Which city do you mean? (unknown city: Xyzzy)",
            "Which city do you mean?",
        ),
        Example(
            "阿巴明天天气怎么样？",
            {"city": "阿巴", "date": "明天"},
            "您想查哪个城市？（未知城市：阿巴）",
            "您想查哪个城市？",
        ),
        zh("明天杭州冷吗？", "杭州", "明天", "3月3日", "小雪，-2°C"),
        zh("成都明天会下雨吗？", "成都", "明天", "3月3日", "多云，16°C"),
        zh("帮我查一下东京下周五的天气", "东京", "下周五", "3月13日", "小雨，9°C"),
        en("Check San Diego's weather next Friday for me", "San Diego", "next Friday", "13 March", "sunny, 22°C"),
    )
