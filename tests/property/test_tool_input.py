"""Whatever a model writes as arguments, the built-in tools answer or refuse; they never do anything else."""

from __future__ import annotations

from datetime import date

from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.errors import InvalidArguments
from tenuto.tools.builtin.calculator import calculate
from tenuto.tools.builtin.dates import resolve_date, without_dates
from tenuto.tools.builtin.weather import plausible_city
from tenuto.tools.result_text import capped, result_text

PIECES = st.sampled_from(
    ["1", "9", "0.5", "+", "-", "*", "**", "//", "%", "(", ")", ",", "sqrt", "x", "e", " ", "'", "÷"]
)
DATE_PIECES = st.sampled_from(
    [
        "下",
        "周",
        "一",
        "天",
        "12",
        "月",
        "3",
        "号",
        "next ",
        "Monday",
        "in ",
        " days",
        "今",
        "明",
        "-",
        "2026",
        "0",
        "年",
        "后",
        "31st",
    ]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('北a"\\\n', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("城b", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=14).map("".join) | st.text(max_size=30))
def test_the_calculator_answers_with_a_number_or_refuses(expression):
    try:
        value = calculate(expression)
    except InvalidArguments as error:
        assert str(error)
    else:
        float(value)


@settings(max_examples=300, deadline=None)
@given(st.lists(DATE_PIECES, max_size=6).map("".join), st.dates(date(2000, 1, 1), date(2100, 12, 31)))
def test_a_phrase_is_a_date_or_none(phrase, today):
    found = resolve_date(phrase, today)
    assert found is None or isinstance(found, date)
    assert len(without_dates(phrase)) <= len(phrase)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80))
def test_a_city_keeps_letters_of_what_was_written(text):
    city = plausible_city(text)
    assert city is None or city == city.strip() != ""


@settings(max_examples=200, deadline=None)
@given(JSON, st.integers(1, 50))
def test_a_result_is_never_empty_and_cut_where_promised(value, max_chars):
    text = result_text(value)
    assert text
    text.encode()
    cut = capped(text, max_chars)
    assert cut == text if len(text) <= max_chars else cut.startswith(text[:max_chars] + "\n[cut: ")
