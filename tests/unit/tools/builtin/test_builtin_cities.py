from __future__ import annotations

import pytest

from tenuto.tools.builtin.cities import english_name, known_city, listed_names


@pytest.mark.parametrize(
    ("text", "city"),
    [
        ("Beijing", "Beijing"),
        ("new york", "New York"),
        ("NYC", "New York"),
        ("New York's", "New York"),
        ("in San Francisco", "San Francisco"),
        ("Xi’an", "Xi'an"),
        ("São Paulo", "Sao Paulo"),
        ("北京", "北京"),
        ("北京市", "北京"),
        ("查一下拉萨", "拉萨"),
        ("昆明明", "昆明"),
        ("呼和浩特", "呼和浩特"),
        ("三藩市", "旧金山"),
        ("Mexico City", "Mexico City"),
    ],
)
def test_a_city_is_found_with_words_around_it(text, city):
    assert known_city(text) == city


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Will",
        "What's the weather",
        "Parisian",
        "天气怎么样",
        "告诉",
        "London or Paris",
        "北京上海",
        "Xyzzy",
        "阿巴",
    ],
)
def test_what_names_no_city_or_several_is_none(text):
    assert known_city(text) is None


def test_both_languages_mean_one_city():
    assert english_name("北京") == english_name("Beijing") == "Beijing"
    assert english_name("Xyzzy") == "Xyzzy"


def test_every_name_is_listed_once_and_is_found():
    names = listed_names()
    assert len(names) == len({name.casefold() for name in names}) > 900
    assert all(known_city(name) is not None for name in names)
