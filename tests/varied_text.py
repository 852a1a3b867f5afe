"""Lines of varied text from a seed: many scripts, code, white space, digits, control characters, odd bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

_COMMON = (
    "的一是了我不人在他有这个上们来到时大地为子中你说生国年着就那和要她出也得"
    "里后自以会家可下而过天去能对小多然于心学么之都好看起"
)
_RARE = "".join(map(chr, range(0x4E00, 0x9FA5, 37)))
_SCRIPTS = [
    *((0x41, 0x5B), (0x61, 0x7B), (0xC0, 0x180), (0x370, 0x400), (0x400, 0x500), (0x531, 0x588), (0x5D0, 0x5EB)),
    *((0x620, 0x64B), (0x904, 0x93A), (0x985, 0x9B9), (0xE01, 0xE31), (0x10A0, 0x10FF), (0x1100, 0x1200)),
    *((0x1E00, 0x1EFF), (0x3041, 0x3097), (0x30A1, 0x30FB), (0xAC00, 0xD7A4), (0x13A0, 0x13F5), (0x1F00, 0x1FFF)),
    *((0x2C00, 0x2C5F), (0xA000, 0xA48C), (0x10400, 0x10450), (0x1D400, 0x1D7FF), (0x20000, 0x20100)),
]
_WORD_LIST = (
    "the of and to in is that it was for on are as with his they at be this from have or by one had not but what all "
    "were when we there can an your which their said if do will each about how up out them then she many some these so "
    "def return import class self None True False while print function const let public static void int string null "
    "ContentProvider getUserName HTTPServer snake_case_name PascalCase kebab-case don't I'll we've they're it's WON'T "
    "Él naïve café Straße ſo İstanbul Москва Привет мир Ελλάδα Σίσυφος שלום مرحبا नमस्ते สวัสดี こんにちは カタカナ "
    "안녕하세요 ﷺ ﬁne ½ ① Ⅳ x² ㎏"
)
_WORDS = _WORD_LIST.split()
_EMOJI = ["😀", "👨‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇳🇴", "🇨🇳🇺🇸", "1️⃣", "❤️", "🧑🏿‍🚀", "⚕️", "☃", "✈︎", "🫠", "\u200d", "\ufe0f"]
_MARKS = "\u0301\u0300\u0308\u0327\u0323\u0e31\u093f\u0651\u20e3\u0338"
_WHITE = [
    *(" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", "\u00a0", "\u2003", "\u3000", "\u200b", "\u2028", "\x0b", "\x0c"),
    *("\x85", "        ", "\n  ", "\t\t", " \n"),
]
_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~，。！？；：、“”‘’…—《》【】·「」￥％＠¿¡«»„‚§¶†‡•‹›€£¥₹"
_CONTROLS = "".join(
    map(chr, [*range(9), *range(14, 32), *range(127, 160), 0xAD, 0x200E, 0x202E, 0xFEFF, 0xFFFD, 0xFDD0, 0x10FFFF])
)
_CODE = [
    "    if x == 1:\n        return None",
    "for (int i = 0; i < n; ++i) { a[i] += b[i]; }",
    '<div class="a">text</div>',
    '{"key": [1, 2.5e-3, null, true]}',
    "SELECT * FROM t WHERE a<>'b';",
    "#include <stdio.h>",
    'print(f"{x:>10}")',
    "// 注释：这是代码",
    "\\frac{a}{b}",
    "a->b::c",
    "/usr/local/bin/python3.11",
    "https://example.org/a?b=c&d=%20#e",
    "====----====",
    "!!!???",
    "<<<>>>",
    "```python\n```",
    "| a | b |\n|---|---|",
]
_TRAPS = [
    *("'s", "'LL", "'ſ", "’t", "\u0130'D", "<0x0A>", "<unk>", " ▁", "▁", "Ġ", "</s>", "<s>", "[INST]"),
    *("<|im_end|>", "##a"),
]


def _any_characters(r: random.Random) -> str:
    ranges = [(0x20, 0x800), (0x800, 0xD800), (0xE000, 0x10000), (0x10000, 0x110000)]
    return "".join(chr(r.randrange(*r.choice(ranges))) for _ in range(r.randint(1, 5)))


def _script(r: random.Random) -> str:
    first, last = r.choice(_SCRIPTS)
    return "".join(chr(r.randrange(first, last)) for _ in range(r.randint(1, 9)))


def _some(r: random.Random, of: str | list[str], most: int, between: str = "") -> str:
    return between.join(r.choice(of) for _ in range(r.randint(1, most)))


_CHUNKS: list[Callable[[random.Random], str]] = [
    *[lambda r: _some(r, _WORDS, 8, " ")] * 4,
    *[lambda r: _some(r, _COMMON, 20)] * 2,
    lambda r: _some(r, _RARE, 6),
    lambda r: _some(r, _EMOJI, 4),
    lambda r: r.choice(_CODE),
    _script,
    lambda r: r.choice(_WHITE) * r.choice([1, 1, 1, 2, 3, 7, 16, 33]),
    lambda r: str(r.randrange(10 ** r.randint(1, 15))),
    lambda r: _some(r, _PUNCTUATION, 6),
    lambda r: "".join(r.choice("aeiounÅк中ก") + r.choice(_MARKS) * r.choice([1, 1, 2]) for _ in range(r.randint(1, 4))),
    lambda r: r.choice(_CONTROLS),
    lambda r: r.choice("aA.=-_ \n#*0中。~") * r.randint(2, 70),
    _any_characters,
    lambda r: r.choice(_TRAPS),
]


def varied_lines(count: int, seed: int) -> Iterator[str]:
    """Generated lines; a few hold line breaks, or nothing but white space."""
    r = random.Random(seed)
    for _ in range(count):
        yield "".join(r.choice(_CHUNKS)(r) + r.choice(["", "", " ", " ", "，", "\n"]) for _ in range(r.randint(1, 8)))


def found_lines(folder: Path, count: int, seed: int) -> Iterator[str]:
    """Lines of the text files below a folder: code, documentation, licences, data; each file gives 200 at most."""
    kinds = {".py", ".txt", ".md", ".rst", ".json", ".csv", ".po", ".toml", ".html", ".js", ".css", ".cpp", ".h"}
    files = sorted(p for p in folder.rglob("*") if p.suffix in kinds and p.is_file())
    random.Random(seed).shuffle(files)
    for file in files:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        for line in lines[:200]:
            if count <= 0:
                return
            count -= 1
            yield line[:2000]
