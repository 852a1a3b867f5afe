"""Resolves what people call a day, in English and Chinese, to a date.

Weeks start on Monday. "next Friday" and 下周五 are the Friday of next week; "this Friday" and 这周五 that of this week,
except that "this" looks ahead when the day is over; a bare weekday is the coming one, today included. A month and day
without a year is its next occurrence. "next week" is its Monday, "this week" begins today, a weekend is its Saturday.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import date, timedelta

_ENGLISH_OFFSETS = {
    "day after tomorrow": 2,
    "day before yesterday": -2,
    "today": 0,
    "tonight": 0,
    "right now": 0,
    "now": 0,
    "tomorrow": 1,
    "yesterday": -1,
}
_CHINESE_OFFSETS = {
    "大后天": 3,
    "大後天": 3,
    "大前天": -3,
    "后天": 2,
    "後天": 2,
    "后日": 2,
    "前天": -2,
    "今天": 0,
    "今日": 0,
    "今晚": 0,
    "今早": 0,
    "现在": 0,
    "現在": 0,
    "明天": 1,
    "明日": 1,
    "明晚": 1,
    "明早": 1,
    "昨天": -1,
    "昨日": -1,
}
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_SHORT = {"mon": 0, "tue": 1, "tues": 1, "wed": 2, "thu": 3, "thur": 3, "thurs": 3, "fri": 4, "sat": 5, "sun": 6}
_SHORT_MONTHS = tuple(name[:3].lower() for name in MONTHS)
_CHINESE_WEEKDAYS = {"一": 0, "二": 1, "三": 2, "四": 3, "五": 4, "六": 5, "日": 6, "天": 6, "末": 5}
_CHINESE_DIGITS = {"一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9, "十": 10}
_NUMBER_WORDS = {"a": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7}

_DAY = r"(0?[1-9]|[12][0-9]|3[01])"
_MONTH = r"(0?[1-9]|1[0-2])"
_ENGLISH_DAYS = "(mon|tues|wednes|thurs|fri|satur|sun)day|mon|tues?|wed|thu(rs?)?|fri|sat|sun"
_ENGLISH_MONTHS = "(jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|oct(ober)?" + (
    "|nov(ember)?|dec(ember)?)"
)
_ENGLISH = (
    "(the )?day (after tomorrow|before yesterday)|today|tonight|tomorrow|yesterday|(right )?now",
    f"((next|this|last|coming) )?({_ENGLISH_DAYS})|(next|this) week|((next|this) )?weekend",
    f"in ([1-9][0-9]?|{'|'.join(_NUMBER_WORDS)}) days?",
    rf"{_ENGLISH_MONTHS} {_DAY}(st|nd|rd|th)?(,? 20[0-9]{{2}})?",
    rf"{_DAY}(st|nd|rd|th)? (of )?{_ENGLISH_MONTHS}( 20[0-9]{{2}})?",
    rf"20[0-9]{{2}}[-/.]{_MONTH}[-/.]{_DAY}",
)
_CHINESE = (
    "|".join(_CHINESE_OFFSETS),
    # 周天 is left out: in 下周天气 the day is 下周, and that is asked far more often than for 下周天.
    "(下下|下|这|這|本|上)?[个個]?((周|週)[一二三四五六日末]|(星期|礼拜|禮拜)[一二三四五六日天])",
    "(下|这|這|本)[个個]?(周|週|星期|礼拜|禮拜)",
    "([1-9][0-9]?|[一二两三四五六七八九十])天(之)?[后後]",
    f"(20[0-9]{{2}}年)?{_MONTH}月{_DAY}[日号號]?|{_DAY}[号號日]",
)
DATE_PATTERN = f"(?i:{'|'.join(_ENGLISH)})|{'|'.join(_CHINESE)}"
"""What a day may be called, as a regular expression of the whole phrase. `resolve_date` understands all of it, but for
days that are in no calendar (30 February). Without look-around, so that grammars can use it."""

DATE_WORDS = (
    r"(?i:(mon|tues|wednes|thurs|fri|satur|sun)day|today|tonight|tomorrow|yesterday|right now|(this|next) week|weekend)"
    r"|[今明后後昨前][天日]|[今明][晚早]|现在|現在|(周|週|星期|礼拜|禮拜)[一二三四五六日末]|周天|星期天|[0-9]月[0-9]"
)
"""Words of which no city's name is made, as a regular expression; narrower than days, as Monterrey holds a "mon"."""

_ISO = re.compile(r"(?<!\d)(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)")
_CHINESE_DATE = re.compile(r"(?:(\d{4})\s*年\s*)?(\d{1,2})\s*月\s*(\d{1,2})\s*[日号號]?")
_CHINESE_DAY = re.compile(r"(?<![\d月])(\d{1,2})\s*[号號日]")
_CHINESE_WEEKDAY = re.compile(
    r"(下下|下|这|這|本|上)?\s*(?:个|個)?\s*(?:周|週|星期|礼拜|禮拜)\s*([一二三四五六日天末])"
)
_CHINESE_IN_DAYS = re.compile(r"(\d{1,3}|[一二两三四五六七八九十])\s*天\s*(?:之)?[后後]")
_MONTH_NAME = rf"({'|'.join(_SHORT_MONTHS)})[a-z]*\.?"
_MONTH_DAY = re.compile(rf"\b{_MONTH_NAME}\s+(\d{{1,2}})(?:st|nd|rd|th)?\b(?:,?\s*(\d{{4}}))?")
_DAY_MONTH = re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?{_MONTH_NAME}(?:,?\s*(\d{{4}}))?")
_DAY_OF_MONTH = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)\b")
_WEEKDAY = re.compile(
    rf"\b(?:(next|this|last|coming)\s+)?({'|'.join((*WEEKDAYS, *sorted(_SHORT, key=len, reverse=True)))})\b"
)
_CHINESE_WEEK = re.compile(r"(下|这|這|本)\s*(?:个|個)?\s*(?:周|週|星期|礼拜|禮拜)")
_WEEK = re.compile(r"\b(?:(next|this)\s+)?(week|weekend)\b")
_IN_DAYS = re.compile(rf"\bin\s+(\d{{1,3}}|{'|'.join(_NUMBER_WORDS)})\s+days?\b")


def resolve_date(phrase: str, today: date) -> date | None:
    """The date that a short phrase means, or None if it names none, several words around it allowed."""
    text = " ".join(unicodedata.normalize("NFKC", phrase).lower().split())
    for read in (_written, _weekday, _week, _relative):
        found = read(text, today)
        if found is not None:
            return found
    return None


def without_dates(text: str) -> str:
    """The text with every day name removed: what is left of "Beijing today" is "Beijing"."""
    text = unicodedata.normalize("NFKC", text)
    for pattern in (_ISO, _CHINESE_DATE, _CHINESE_WEEKDAY, _CHINESE_IN_DAYS):
        text = pattern.sub(" ", text)
    for pattern in (_MONTH_DAY, _DAY_MONTH, _WEEKDAY, _IN_DAYS):
        text = re.sub(pattern.pattern, " ", text, flags=re.I)
    for word in _ENGLISH_OFFSETS:
        text = re.sub(rf"\b(?:on |the )*{word}\b", " ", text, flags=re.I)
    for word in _CHINESE_OFFSETS:
        text = text.replace(word, " ")
    return " ".join(text.split())


def _written(text: str, today: date) -> date | None:
    """A date with a month, or a day of the month."""
    for pattern, order in ((_ISO, "ymd"), (_CHINESE_DATE, "ymd"), (_MONTH_DAY, "mdy"), (_DAY_MONTH, "dmy")):
        match = pattern.search(text)
        if match:
            part = dict(zip(order, match.groups(), strict=True))
            month = int(part["m"]) if part["m"].isdigit() else _SHORT_MONTHS.index(part["m"]) + 1
            return _calendar(int(part["y"]) if part["y"] else None, month, int(part["d"]), today)
    match = _CHINESE_DAY.search(text) or _DAY_OF_MONTH.search(text)
    return _coming_day(int(match.group(1)), today) if match else None


def _calendar(year: int | None, month: int, day: int, today: date) -> date | None:
    years = [year] if year else range(today.year, today.year + 9)  # 9 years hold a 29 February, also around 2100
    for candidate in years:
        try:
            found = date(candidate, month, day)
        except ValueError:
            continue
        if year or found >= today:
            return found
    return None


def _coming_day(day: int, today: date) -> date | None:
    for month in range(today.month - 1, today.month + 11):
        found = _calendar(today.year + month // 12, month % 12 + 1, day, today)
        if found is not None and found >= today:
            return found
    return None


def _weekday(text: str, today: date) -> date | None:
    monday = today - timedelta(days=today.weekday())
    match = _CHINESE_WEEKDAY.search(text)
    if match:
        which, weekday = match.group(1), _CHINESE_WEEKDAYS[match.group(2)]
        weeks = {"下": 1, "下下": 2, "上": -1, "这": 0, "這": 0, "本": 0}.get(which)
    else:
        match = _WEEKDAY.search(text)
        if not match:
            return None
        which, name = match.group(1), match.group(2)
        weekday = WEEKDAYS.index(name) if name in WEEKDAYS else _SHORT[name]
        weeks = {"next": 1, "last": -1}.get(which)
    if weeks is not None:
        return monday + timedelta(days=weekday, weeks=weeks)
    return today + timedelta(days=(weekday - today.weekday()) % 7)


def _week(text: str, today: date) -> date | None:
    """A week or a weekend without a day."""
    monday = today - timedelta(days=today.weekday())
    match = _CHINESE_WEEK.search(text) or _WEEK.search(text)
    if not match:
        return None
    is_next = match.group(1) in ("next", "下")
    if match.groups()[1:] == ("weekend",):
        return monday + timedelta(days=5, weeks=int(is_next))
    if match.group(1) is None:  # "week" alone
        return None
    return monday + timedelta(weeks=1) if is_next else today


def _relative(text: str, today: date) -> date | None:
    match = _CHINESE_IN_DAYS.search(text) or _IN_DAYS.search(text)
    if match:
        number = match.group(1)
        days = int(number) if number.isdigit() else {**_CHINESE_DIGITS, **_NUMBER_WORDS}[number]
        return today + timedelta(days=days)
    for word, days in _CHINESE_OFFSETS.items():
        if word in text:
            return today + timedelta(days=days)
    for word, days in _ENGLISH_OFFSETS.items():
        if re.search(rf"\b{word}\b", text):
            return today + timedelta(days=days)
    return None
