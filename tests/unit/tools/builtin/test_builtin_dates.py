from __future__ import annotations

import re
from datetime import date

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tenuto.text import copied
from tenuto.tools.builtin.dates import DATE_PATTERN, DATE_WORDS, resolve_date, without_dates

WEDNESDAY = date(2026, 1, 7)


@pytest.mark.parametrize(
    ("phrase", "expected"),
    [
        ("today", "2026-01-07"),
        ("Today?", "2026-01-07"),
        ("today's weather", "2026-01-07"),
        ("tonight", "2026-01-07"),
        ("tomorrow", "2026-01-08"),
        ("the day after tomorrow", "2026-01-09"),
        ("yesterday", "2026-01-06"),
        ("in 3 days", "2026-01-10"),
        ("in two days", "2026-01-09"),
        ("Monday", "2026-01-12"),
        ("Wednesday", "2026-01-07"),
        ("on Thursday", "2026-01-08"),
        ("this Friday", "2026-01-09"),
        ("this Monday", "2026-01-12"),
        ("next Monday", "2026-01-12"),
        ("next Friday", "2026-01-16"),
        ("next Wed", "2026-01-14"),
        ("last Sunday", "2026-01-04"),
        ("next Monday for me", "2026-01-12"),
        ("Dec 3", "2026-12-03"),
        ("December 3rd, 2027", "2027-12-03"),
        ("3 January", "2027-01-03"),
        ("the 3rd of February", "2026-02-03"),
        ("May 1", "2026-05-01"),
        ("on the 5th", "2026-02-05"),
        ("on the 31st", "2026-01-31"),
        ("2026-12-03", "2026-12-03"),
        ("2026/1/2", "2026-01-02"),
        ("Feb 29", "2028-02-29"),
        ("今天", "2026-01-07"),
        ("今天天气", "2026-01-07"),
        ("今晚", "2026-01-07"),
        ("明天", "2026-01-08"),
        ("明天会", "2026-01-08"),
        ("后天", "2026-01-09"),
        ("後天", "2026-01-09"),
        ("大后天", "2026-01-10"),
        ("昨天", "2026-01-06"),
        ("3天后", "2026-01-10"),
        ("两天之后", "2026-01-09"),
        ("周三", "2026-01-07"),
        ("周一", "2026-01-12"),
        ("星期天", "2026-01-11"),
        ("星期日", "2026-01-11"),
        ("礼拜六", "2026-01-10"),
        ("这周五", "2026-01-09"),
        ("本周一", "2026-01-05"),
        ("下周一", "2026-01-12"),
        ("下个星期五", "2026-01-16"),
        ("下下周二", "2026-01-20"),
        ("上周日", "2026-01-04"),
        ("周末", "2026-01-10"),
        ("12月3日", "2026-12-03"),
        ("1月3号", "2027-01-03"),
        ("2027年2月1日", "2027-02-01"),
        ("5号", "2026-02-05"),
        ("１２月３日", "2026-12-03"),
        ("this week", "2026-01-07"),
        ("next week", "2026-01-12"),
        ("下周", "2026-01-12"),
        ("下个星期", "2026-01-12"),
        ("本周", "2026-01-07"),
        ("weekend", "2026-01-10"),
        ("next weekend", "2026-01-17"),
        ("下周末", "2026-01-17"),
    ],
)
def test_a_day_is_resolved_against_today(phrase, expected):
    assert resolve_date(phrase, WEDNESDAY) == date.fromisoformat(expected)


@pytest.mark.parametrize(
    "phrase",
    [
        "",
        "Beijing",
        "week",
        "someday",
        "the weather",
        "2月30日",
        "2026-13-01",
        "Mondayish",
        "天气",
        "0号",
        "99",
    ],
)
def test_what_names_no_day_is_none(phrase):
    assert resolve_date(phrase, WEDNESDAY) is None


@pytest.mark.parametrize("today", [date(2026, 1, 5), date(2026, 1, 11)], ids=["a Monday", "a Sunday"])
def test_next_monday_is_never_today(today):
    expected = date(2026, 1, 12)
    assert resolve_date("next Monday", today) == resolve_date("下周一", today) == expected


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("Beijing today", "Beijing"),
        ("明天上海", "上海"),
        ("Lima next Friday", "Lima"),
        ("12月3日成都", "成都"),
        ("Monday", ""),
    ],
)
def test_day_names_can_be_taken_out(text, rest):
    assert without_dates(text) == rest


def is_in_no_calendar(phrase: str) -> bool:
    """29 February of a common year, 30 February, 31 April and the like."""
    text = phrase.lower()
    return bool(re.search(r"\b31|月31|[-/.]31|\b30|月30|[-/.]30|29", text)) and bool(re.search(r"\d", text))


@given(phrase=st.from_regex(re.compile(DATE_PATTERN, re.ASCII), fullmatch=True), today=st.dates(date(2020, 1, 1)))
@example(phrase="Next THURSDAY", today=WEDNESDAY)
@example(phrase="下下周二", today=WEDNESDAY)
def test_everything_the_pattern_admits_is_understood(phrase, today):
    assume(today.year < 2090)
    assert resolve_date(phrase, today) is not None or is_in_no_calendar(phrase)


def offered(text: str) -> list[str]:
    """What the grammar of a copied argument with the pattern admits."""
    pattern = copied.CopyRule.from_schema({"type": "string", "pattern": DATE_PATTERN}, "the argument").pattern
    assert pattern is not None
    return copied.matches(pattern, [text])


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("Check New York's weather next Monday for me", ["next Monday"]),
        ("Will it be sunny in Barcelona the day after tomorrow?", ["the day after tomorrow"]),
        ("帮我看看纽约下周一的天气", ["下周一"]),
        ("大后天大连冷吗", ["大后天"]),
        ("下周天气怎么样", ["下周"]),
        ("12月3日成都天气", ["12月3日"]),
        ("Lima on December 3rd, 2027", ["December 3rd, 2027"]),
        ("Lima on 2026-12-03", ["2026-12-03"]),
        ("Is Friday or Saturday better?", ["Friday", "Saturday"]),
        ("Monterrey and Sunderland", []),
        ("天气怎么样", []),
    ],
)
def test_a_text_offers_its_days_whole(text, phrases):
    assert offered(text) == phrases


def test_no_known_city_holds_a_word_for_days():
    from tenuto.tools.builtin.cities import listed_names

    assert [name for name in listed_names() if re.search(DATE_WORDS, name)] == []
