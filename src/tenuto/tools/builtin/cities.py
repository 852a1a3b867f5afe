"""The cities that the simulated weather knows: a list in English and Chinese.

A city list is what lets a question without a city be asked back: a small model that must name a city names whatever
stands in the question, and only the tool can tell that "Will" or 天气 is none.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from importlib import resources


def _listed() -> list[str]:
    """A line a city: English|Chinese, of either more names after commas."""
    return resources.files("tenuto.tools.builtin").joinpath("cities.txt").read_text(encoding="utf-8").splitlines()


@cache
def _names() -> dict[str, str]:
    """Every known name as it is compared, and the name it stands for in its own language."""
    names: dict[str, str] = {}
    for line in _listed():
        for language in line.split("|"):
            main = language.split(",")[0]
            names.update({_compared(name): main for name in language.split(",")})
    return names


@cache
def _english() -> dict[str, str]:
    """Every known name as it is compared, and the city's English name."""
    found: dict[str, str] = {}
    for line in _listed():
        english = line.split(",")[0].split("|")[0]
        found.update({_compared(name): english for name in line.replace("|", ",").split(",")})
    return found


@cache
def _any_name() -> re.Pattern[str]:
    """Any known name, the longest first; English ones as whole words."""
    longest_first = sorted(_names(), key=len, reverse=True)
    return re.compile("|".join(re.escape(n) if _is_han(n) else rf"\b{re.escape(n)}\b" for n in longest_first))


def listed_names() -> list[str]:
    """Every known name, in both languages."""
    return [name for line in _listed() for name in line.replace("|", ",").split(",")]


def known_city(text: str) -> str | None:
    """The one known city that a text names, words around it allowed ("查一下拉萨" is 拉萨); None if none or several.

    A name comes back as the list writes it, in the language of the text: "nyc" is "New York".
    """
    compared = _compared(text)
    if compared in _names():
        return _names()[compared]
    found = {_names()[name] for name in _any_name().findall(compared)}
    return found.pop() if len(found) == 1 else None


def english_name(city: str) -> str:
    """The English name of a known city, the city itself if it is not known."""
    return _english().get(_compared(city), city)


def _compared(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold().replace("’", "'").strip()


def _is_han(text: str) -> bool:
    return any("一" <= char <= "鿿" for char in text)
