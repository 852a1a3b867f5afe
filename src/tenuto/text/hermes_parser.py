"""Finds tool calls of the form `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` in text as it streams.

What comes out does not depend on how the text was cut into pieces: decisions are taken at positions of the text, never
at the end of a piece. Every character is looked at once, in runs, so the cost is linear. Text that is no call after
all comes back as text, to the last character.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

OPEN, CLOSE = "<tool_call>", "</tool_call>"

_MAX_CALL_CHARS = 1_000_000
_MAX_DEPTH = 200
_MAX_SPACE = 64  # more of it beside a tag is text

_SURROGATE = re.compile("[\ud800-\udfff]")
_STRING_RUN = re.compile(r'[^"\\]*')
_PLAIN_RUN = re.compile(r'[^"{}\[\],:<>\\]*')
_SPACE_RUN = re.compile(r"\s*")
_ARGUMENTS = ("arguments", "parameters")


@dataclass(frozen=True)
class Text:
    """Prose, or a call that turned out to be none."""

    text: str
    is_cut_call: bool = field(default=False, compare=False)  # the beginning of a call that the end of the text cut off


@dataclass(frozen=True)
class CallStarted:
    """A call whose name is known. If what follows is broken, no CallFinished comes, but a Text with the whole call."""

    name: str


@dataclass(frozen=True)
class CallArguments:
    """The next piece of the arguments' JSON text."""

    text: str


@dataclass(frozen=True)
class CallFinished:
    name: str
    arguments: dict[str, Any]


ParsedPiece: TypeAlias = Text | CallStarted | CallArguments | CallFinished


class SurrogateMender:
    """Passes JSON text through and turns escapes of lone surrogates, which no UTF-8 can hold, into `\\ufffd`.

    Holds back at most one escape and the beginning of the next.
    """

    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str) -> str:
        text = self._held + text
        out: list[str] = []
        at = 0
        while True:
            escape = text.find("\\", at)
            if escape < 0:
                self._held = ""
                return "".join([*out, text[at:]])
            out.append(text[at:escape])
            piece, length = self._escape(text, escape)
            if piece is None:
                self._held = text[escape:]
                return "".join(out)
            out.append(piece)
            at = escape + length

    @staticmethod
    def _escape(text: str, at: int) -> tuple[str | None, int]:
        """What the escape at that place becomes, and its length; None if that cannot be told yet."""
        if text[at + 1 : at + 2] != "u":
            return (text[at : at + 2] if len(text) > at + 1 else None), 2
        if len(text) < at + 6:
            return None, 0
        unit = text[at + 2 : at + 6].lower()
        if unit[0] != "d" or unit[1] not in "89abcdef":
            return text[at : at + 6], 6
        following = text[at + 6 : at + 12]
        if unit[1] in "cdef" or not "\\u".startswith(following[:2]):
            return "\\ufffd", 6
        if len(following) < 6:
            return None, 0
        is_pair = following[2] in "dD" and following[3] in "cdefCDEF"
        return (text[at : at + 12], 12) if is_pair else ("\\ufffd", 6)


class _CallScanner:
    """Follows one call's JSON object from its opening brace to its closing one, and picks name and arguments out.

    Knows strings and escapes, so that braces in them do not count. Only `json.loads` of the whole decides whether the
    call is sound; the scanner finds where it ends and what can be passed on before.
    """

    def __init__(self) -> None:
        self.state: Literal["open", "closed", "broken"] = "open"
        self.name: str | None = None
        self.raw: list[str] = []  # the object's text so far
        self.arguments: list[str] = []  # of the arguments' text, what was not handed on yet
        self._num_chars = 0
        self._stack: list[str] = []
        self._in_string = False
        self._escaped = False
        self._string: list[str] = []  # the current string, if it is a key or the name
        self._key: str | None = None  # set between a key and the end of its value, at the top level
        self._seen: set[str] = set()
        self._in_arguments = False
        self._ends_arguments = False

    def feed(self, text: str, at: int) -> int:
        """Go on at that place; returns the place after the last character taken."""
        while at < len(text) and self.state == "open":
            end = self._in_a_string(text, at) if self._in_string else self._between_strings(text, at)
            end = min(end, at + _MAX_CALL_CHARS + 1 - self._num_chars)
            self._take(text[at:end])
            at = end
            if self._num_chars > _MAX_CALL_CHARS or len(self._stack) > _MAX_DEPTH:
                self.state = "broken"
        return at

    def _take(self, piece: str) -> None:
        self.raw.append(piece)
        self._num_chars += len(piece)
        if self._in_arguments or self._ends_arguments:
            self.arguments.append(piece)
        self._ends_arguments = False

    def _in_a_string(self, text: str, at: int) -> int:
        if self._escaped:
            self._escaped = False
            self._string.append(text[at])
            return at + 1
        if len(self._stack) > 1 and self._string:
            self._string.clear()  # only strings at the top level matter to us
        found = _STRING_RUN.match(text, at)
        assert found is not None
        end = found.end()
        if end > at:
            self._string.append(text[at:end])
            return end
        if text[at] == "\\":
            self._escaped = True
            self._string.append("\\")
        else:
            self._in_string = False
            self._end_string()
        return at + 1

    def _end_string(self) -> None:
        content, self._string = "".join(self._string), []
        if len(self._stack) != 1:
            return
        if self._key is None:
            self._key = _loads_string(content)
            meaning = "arguments" if self._key in _ARGUMENTS else self._key or ""
            if meaning in self._seen:
                self.state = "broken"  # said twice: which one counts?
            self._seen.add(meaning)
        elif self._key == "name" and self.name is None:
            self.name = _loads_string(content)

    def _between_strings(self, text: str, at: int) -> int:
        found = _PLAIN_RUN.match(text, at)
        assert found is not None
        if found.end() > at:
            return found.end()
        character = text[at]
        if character == '"':
            self._in_string = True
        elif character in "{[":
            if len(self._stack) == 1 and self._key in _ARGUMENTS and character == "{":
                self._in_arguments = True
            self._stack.append(character)
        elif character in "}]":
            self._close(character)
        elif character == "," and len(self._stack) == 1:
            self._key = None
        elif character in "<>\\":
            self.state = "broken"
            return at  # a tag may begin here: it is not ours to take
        return at + 1

    def _close(self, character: str) -> None:
        if not self._stack or self._stack.pop() + character not in ("{}", "[]"):
            self.state = "broken"
        elif not self._stack:
            self.state = "closed"
        elif len(self._stack) == 1 and self._in_arguments:
            self._in_arguments, self._ends_arguments = False, True


class HermesParser:
    """One stream of text. Pieces of the same kind in a row belong together."""

    def __init__(self) -> None:
        self._state: Literal["text", "opened", "call", "after"] = "text"
        self._held = ""  # not yet decided: the beginning of a tag, or white space around calls
        self._scanner = _CallScanner()
        self._started: str | None = None
        self._mender = SurrogateMender()
        self._argument_text: list[str] = []
        self._pieces: list[ParsedPiece] = []

    def push(self, text: str) -> list[ParsedPiece]:
        """What the text adds. Holds back only what could be the beginning of a tag or of a call."""
        text = self._held + _SURROGATE.sub("\ufffd", text)
        self._held = ""
        steps = {"text": self._text, "opened": self._opened, "call": self._call, "after": self._after}
        at = 0
        while at < len(text):
            state = self._state
            reached = steps[state](text, at)
            if reached == at and self._state == state:
                self._held = text[at:]
                break
            at = reached
        return self._flush()

    def finish(self) -> list[ParsedPiece]:
        """The text is over: what was held back, and a call that was not completed, come as text."""
        if self._state == "call":
            self._pieces.append(Text(OPEN + "".join(self._scanner.raw) + self._held, is_cut_call=True))
        elif self._state == "opened":
            self._pieces.append(Text(OPEN + self._held, is_cut_call=True))
        elif self._state == "text" or self._held.strip():
            self._say(self._held)
        self._state, self._held = "text", ""
        return self._flush()

    def _flush(self) -> list[ParsedPiece]:
        pieces, self._pieces = self._pieces, []
        return pieces

    def _say(self, text: str) -> None:
        if text:
            self._pieces.append(Text(text))

    def _text(self, text: str, at: int) -> int:
        found = text.find(OPEN, at)
        if found >= 0:
            self._say(text[at:found])
            self._state = "opened"
            return found + len(OPEN)
        end = len(text) - _beginning(text[at:], OPEN)
        self._say(text[at:end])
        return end

    def _opened(self, text: str, at: int) -> int:
        """After the tag: white space, then an object, or it was no call."""
        begin = _after_space(text, at)
        if begin == len(text) and begin - at <= _MAX_SPACE:
            return at
        if begin - at > _MAX_SPACE or text[begin] != "{":
            self._say(OPEN)
            self._state = "text"
            return at
        self._scanner, self._mender = _CallScanner(), SurrogateMender()
        self._started, self._argument_text = None, []
        self._scanner.raw.append(text[at:begin])
        self._state = "call"
        return begin

    def _call(self, text: str, at: int) -> int:
        at = self._scanner.feed(text, at)
        if self._scanner.name and self._scanner.arguments:
            self._pass_on("".join(self._scanner.arguments))
            self._scanner.arguments = []
        if self._scanner.state == "broken":
            self._give_back()
            self._state = "text"
        elif self._scanner.state == "closed":
            self._end_call()
        return at

    def _pass_on(self, arguments: str) -> None:
        if self._started is None:
            assert self._scanner.name
            self._started = self._scanner.name
            self._pieces.append(CallStarted(self._started))
        mended = self._mender.push(arguments)
        self._argument_text.append(mended)
        if mended:
            self._pieces.append(CallArguments(mended))

    def _end_call(self) -> None:
        parsed = _loads("".join(self._scanner.raw))
        name, arguments = _name_and_arguments(parsed)
        if name is None or arguments is None or (self._started is not None and self._started != name):
            self._give_back()
            self._state = "text"
            return
        if self._started is None:  # no object of arguments was passed on: there is none, or it came as a string
            self._scanner.name = name
            self._pass_on(json.dumps(arguments, ensure_ascii=False))
        assert self._started is not None
        self._pieces.append(CallFinished(self._started, json.loads("".join(self._argument_text))))
        self._state = "after"

    def _give_back(self) -> None:
        self._say(OPEN + "".join(self._scanner.raw))

    def _after(self, text: str, at: int) -> int:
        """After a call: its closing tag, then white space up to the next call or the end, are nobody's text."""
        begin = _after_space(text, at)
        if begin - at > _MAX_SPACE:
            self._state = "text"
            return at
        if text.startswith(CLOSE, begin):
            return begin + len(CLOSE)
        if text.startswith(OPEN, begin):
            self._state = "opened"
            return begin + len(OPEN)
        rest = text[begin : begin + len(CLOSE)]
        if CLOSE.startswith(rest) or OPEN.startswith(rest):
            return at
        self._state = "text"
        return at


def _after_space(text: str, at: int) -> int:
    found = _SPACE_RUN.match(text, at)
    assert found is not None
    return found.end()


def _beginning(text: str, tag: str) -> int:
    """Length of the longest end of the text that is a beginning of the tag, but not all of it."""
    return next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:n])), 0)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _loads(text: str) -> Any:
    """The value; None if the text is not JSON. Lone surrogates become U+FFFD."""
    mender = SurrogateMender()
    try:
        return json.loads(mender.push(text), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _loads_string(content: str) -> str | None:
    value = _loads(f'"{content}"')
    return value if isinstance(value, str) else None


def _name_and_arguments(call: Any) -> tuple[str | None, dict[str, Any] | None]:
    """Of a parsed call object. No arguments, or null, are an empty object; a string holds the object's JSON text."""
    if not isinstance(call, dict) or not isinstance(call.get("name"), str) or not call["name"]:
        return None, None
    arguments = call.get("arguments", call.get("parameters"))
    if isinstance(arguments, str):
        arguments = _loads(arguments)
        if arguments is None:
            return call["name"], None
    if arguments is None:
        arguments = {}
    return call["name"], arguments if isinstance(arguments, dict) else None
