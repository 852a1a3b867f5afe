"""Tool-call parsers against the plainest statement of what each must do: a cut changes nothing, calls come back."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from call_texts import NAMES, TOOLS, calls_in, cut, format_named, parse, text_in
from tenuto.text.formats.json_text import loads
from tenuto.text.formats.markers import MARKERS
from tenuto.text.tool_format import CallArguments, CallFinished, CallStarted, ParsedPiece, Text

CHARACTERS = st.characters(exclude_categories=["Cs"])
SCARY = st.sampled_from(
    [
        *("}", "{", "]", "[", '"', "'", "\\", "\\\\", "\n", "\r", "\t", ",", ":", ";", "=", "(", ")", "<", ">", "</"),
        *(
            "你好",
            "😀",
            "👩‍👩‍👧",
            "é",
            "\x00",
            "\u2028",
            "null",
            "True",
            "3",
            "```",
            "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
        ),
        *sorted(MARKERS),
        *("<function=", "<parameter=", "</function>", "<tool_call", "</parameter", "\n</tool_call>"),
    ]
)
STRINGS = st.lists(st.one_of(SCARY, st.text(CHARACTERS, max_size=3)), max_size=6).map("".join)
SCALARS = st.one_of(STRINGS, st.integers(-(10**12), 10**12), st.booleans(), st.none(), st.floats(-1e6, 1e6))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(STRINGS, inner, max_size=3), max_leaves=6
)
CALLS = st.lists(
    st.one_of(
        st.fixed_dictionaries({}, optional={"guest": VALUES, "beds": VALUES, "night": st.integers()}).map(
            lambda given: ("book_room", given)
        ),
        st.fixed_dictionaries({"text": STRINGS}, optional={"times": st.integers(), "loud": st.booleans()}).map(
            lambda given: ("say", given)
        ),
        st.fixed_dictionaries({"x": st.floats(-1e6, 1e6)}, optional={"y": st.integers() | st.none()}).map(
            lambda given: ("add", given)
        ),
        st.fixed_dictionaries({}, optional={"value": VALUES, "城市": STRINGS}).map(lambda given: ("any", given)),
        st.just(("ping", {})),
    ),
    min_size=1,
    max_size=3,
)
PROSE = st.lists(
    st.sampled_from(
        [
            "Let me look. ",
            "int f(int a[1]) { return {x}; }\n",
            "[1, 2]\n",
            "你好\n",
            "{'a'}",
            "\n",
            "😀",
            "<b> ",
            "[say] ",
        ]
    ),
    max_size=4,
).map("".join)


def can_be_written(name: str, arguments: dict[str, Any]) -> bool:
    """Whether the format has a spelling for it: strings without quotes cannot hold the tag that ends them."""
    if name != "xml":
        return True
    strings = [value for value in arguments.values() if isinstance(value, str)]
    return not any("</parameter" in value for value in strings)


def same(read: Any, written: Any, key: str, name: str) -> bool:
    """XML writes strings like everything else: where a schema takes anything, what looks like a number is one."""
    if name != "xml" or key in ("text", "城市"):
        return bool(read == written and type(read) is type(written)) or (key == "x" and read == written)
    return bool(read == written or isinstance(written, str) or (isinstance(read, str) and isinstance(written, str)))


@pytest.mark.parametrize("name", NAMES)
@given(CALLS, PROSE, st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_written_calls_are_read_back_however_they_are_cut(
    name: str, calls: list[tuple[str, dict[str, Any]]], prose: str, seed: int
) -> None:
    tool_format = format_named(name)
    calls = [(called, wanted) for called, wanted in calls if can_be_written(name, wanted)]
    text = prose + ("\n" if prose else "") + tool_format.write(calls)
    whole = parse(tool_format, [text])
    assert parse(tool_format, cut(text, random.Random(seed))) == whole == parse(tool_format, text)
    read = calls_in(whole)
    assert [called for called, _ in read] == [called for called, _ in calls]
    for (_, found), (_, wanted) in zip(read, calls, strict=True):
        assert found.keys() == wanted.keys()
        assert all(same(found[key], value, key, name) for key, value in wanted.items()), (found, wanted)
    if calls:
        assert text_in(whole) == (prose + "\n" if prose else "")
    check_order(whole)


def check_order(pieces: list[ParsedPiece]) -> None:
    """Every call starts, then come its arguments, whose text is what the call says, then it is finished."""
    started: str | None = None
    text = ""
    for piece in pieces:
        match piece:
            case CallStarted(name):
                assert started is None
                started, text = name, ""
            case CallArguments(more):
                assert started is not None
                text += more
            case CallFinished(name, arguments):
                assert started == name and loads(text) == arguments
                assert json.dumps(arguments, ensure_ascii=False).encode("utf-8")
                started = None
            case Text(_):
                started = None  # a call that broke off comes back as text


PARTS = [
    *sorted(MARKERS),
    *("<function=say>", "<function=", "<parameter=text>", "\n", "</parameter>", "</function>", "value"),
    *('{"name": "say", ', '"arguments": {', '"parameters": {', '"text": "a', '"}', "}", "{", "[", "]", ",", ";", " "),
    *(
        "[say(",
        "say(",
        "text='",
        "times=3",
        "=",
        "(",
        ")",
        "'",
        '"',
        "\\",
        "\\u",
        "d83d",
        "\\ud83d",
        "\\x4",
        "1",
        "None",
    ),
    *('[{"name": "ping", "arguments": {}}', "say", "function", "```json\n", "\n```", "你好", "😀", "null", "<", "x"),
    *('{"name": "add", "arguments": {"x": 1}}', "[ping()", ", ping()]", "1e999", "-", "0x1F", "<tool", "[TOOL", "<｜"),
]


@pytest.mark.parametrize("name", NAMES)
@given(st.lists(st.sampled_from(PARTS), max_size=16), st.integers(0, 2**32), st.booleans(), st.booleans())
@settings(max_examples=120, deadline=None)
def test_a_parse_of_anything_does_not_depend_on_the_cuts(
    name: str, parts: list[str], seed: int, knows_tools: bool, hides: bool
) -> None:
    tool_format = format_named(name, MARKERS if hides else ())
    tools = TOOLS if knows_tools else None
    text = "".join(parts)
    whole = parse(tool_format, [text], tools)
    for chunks in (list(text), parts, cut(text, random.Random(seed))):
        assert parse(tool_format, chunks, tools) == whole
    check_order(whole)
    if not calls_in(whole) and not hides:
        assert text_in(whole) == text, "what is no call comes back to the last character"


@pytest.mark.parametrize("name", NAMES)
@given(CALLS, st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_a_text_that_was_cut_off_keeps_its_whole_calls(
    name: str, calls: list[tuple[str, dict[str, Any]]], seed: int
) -> None:
    tool_format = format_named(name)
    text = tool_format.write([call for call in calls if can_be_written(name, call[1])])
    rng = random.Random(seed)
    cut_off = text[: rng.randint(0, len(text))]
    whole = parse(tool_format, [cut_off])
    assert parse(tool_format, cut(cut_off, rng)) == whole
    all_calls = calls_in(parse(tool_format, [text]))
    assert calls_in(whole) == all_calls[: len(calls_in(whole))]
    check_order(whole)


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_ten_thousand_heaps_of_parts_are_read_alike_however_they_are_cut(name: str) -> None:
    tool_format = format_named(name)
    for seed in range(10_000):
        rng = random.Random(f"{name} {seed}")
        text = "".join(rng.choice(PARTS) for _ in range(rng.randrange(1, 30)))
        whole = parse(tool_format, [text])
        assert parse(tool_format, cut(text, rng, rng.choice((1, 3, 12)))) == whole, (seed, text)
        check_order(whole)
        assert calls_in(whole) or text_in(whole) == text, (seed, text)
