r"""Regular expressions as JSON Schema means them (ECMA-262), read into a tree and written again for llguidance.

Read by us, so that what the library would take for something else is caught: `\d`, `\w` and `\s` mean what ECMA-262
says, `.` is no line end, an anchor counts where it stands, and what no grammar can hold (look-around,
back-references, word boundaries) is refused by name and position. Lazy quantifiers match the same texts as greedy ones.
"""

from __future__ import annotations

import re
from typing import NoReturn

from tenuto.errors import GrammarError
from tenuto.text.regex_tree import (
    ANYTHING,
    Chars,
    Edge,
    Either,
    Node,
    Ranges,
    Repeat,
    Sequence,
    anchored,
    complement,
    positions,
    write,
)

MAX_REGEX_CHARS = 20_000
MAX_POSITIONS = 50_000  # of an expression whose repetitions are written out
_MAX_DEPTH = 100
_MAX_CODE = 0x10FFFF

_DIGIT: Ranges = ((0x30, 0x39),)
_WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: Ranges = (
    (0x09, 0x0D),
    (0x20, 0x20),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)
_LINE_ENDS: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_CLASSES = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
_GROUPS = {
    "=": "look-ahead `(?=`",
    "!": "look-ahead `(?!`",
    "<=": "look-behind `(?<=`",
    "<!": "look-behind `(?<!`",
    ">": "an atomic group `(?>`",
    "#": "a comment `(?#`",
}
_NOT_HELD = {
    "b": r"a word boundary `\b`",
    "B": r"a word boundary `\B`",
    "A": r"the anchor `\A`: use ^",
    "Z": r"the anchor `\Z`: use $",
    "z": r"the anchor `\z`: use $",
    "k": r"a back-reference `\k`",
    "G": r"the anchor `\G`",
}
_QUANTIFIER = re.compile(r"\{(\d{1,9})(,(\d{0,9}))?\}")
_NAMED = re.compile(r"\(\?P?<[A-Za-z_]\w*>", re.ASCII)
_PROPERTY = re.compile(r"\{\^?([A-Za-z_]{1,40}(=[A-Za-z_]{1,40})?)\}")


def parse(pattern: str) -> Node:
    """Raises GrammarError, naming what is not supported, or wrong, and where."""
    if len(pattern) > MAX_REGEX_CHARS:
        raise GrammarError(f"the regular expression has {len(pattern)} characters, more than {MAX_REGEX_CHARS}")
    node = _Parser(pattern).whole()
    if (size := positions(node)) > MAX_POSITIONS:
        raise GrammarError(
            f"the regular expression has {size} positions with its repetitions written out, more than {MAX_POSITIONS}"
        )
    return node


def whole_match(pattern: str) -> str:
    """For llguidance: what matches the pattern from beginning to end; anchors there say nothing.

    Raises GrammarError.
    """
    return write(anchored(parse(pattern), None))


def partial_match(pattern: str) -> str:
    """For llguidance: the texts in which the pattern matches somewhere, as whole matches. Raises GrammarError."""
    return write(anchored(parse(pattern), ANYTHING))


class _Parser:
    """Recursive descent over one pattern."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._dot_is_all = False

    def whole(self) -> Node:
        node = self._either(0)
        if self._at < len(self._text):
            self._fail("`)` closes nothing")
        return node

    def _fail(self, why: str, at: int | None = None) -> NoReturn:
        raise GrammarError(f"the regular expression, at character {self._at if at is None else at}: {why}")

    def _refuse(self, what: str, at: int) -> NoReturn:
        self._fail(f"{what} is not supported" if ": use" not in what else what.replace(":", " is not supported;"), at)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        if self._at >= len(self._text):
            self._fail("the expression ends here, though more must follow")
        self._at += 1
        return self._text[self._at - 1]

    def _either(self, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            self._fail(f"groups are nested more than {_MAX_DEPTH} deep")
        options = [self._sequence(depth)]
        while self._peek() == "|":
            self._at += 1
            options.append(self._sequence(depth))
        return options[0] if len(options) == 1 else Either(tuple(options))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while (char := self._peek()) and char not in "|)":
            start = self._at
            parts.append(self._quantified(self._atom(depth), start))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _atom(self, depth: int) -> Node:
        start = self._at
        char = self._take()
        match char:
            case "(":
                return self._group(start, depth)
            case "[":
                return self._set(start)
            case "^" | "$":
                return Edge(char, start)
            case ".":
                return Chars(complement(() if self._dot_is_all else _LINE_ENDS))
            case "\\":
                return self._escape(start)
            case "*" | "+" | "?":
                self._fail(f"`{char}` repeats nothing", start)
            case "{" if _QUANTIFIER.match(self._text, start):
                self._fail("a repetition of nothing", start)
            case _:
                return Chars(((self._code(char, start),) * 2,))

    def _group(self, start: int, depth: int) -> Node:
        before = self._dot_is_all
        self._open(start)
        inside = self._either(depth + 1)
        self._dot_is_all = before
        if self._peek() != ")":
            self._fail("this group is not closed", start)
        self._at += 1
        return inside

    def _open(self, start: int) -> None:
        """Past what a group begins with."""
        if self._peek() != "?":
            return
        if self._text.startswith("(?:", start):
            self._at = start + 3
        elif self._text.startswith("(?s:", start):
            self._dot_is_all = True
            self._at = start + 4
        elif named := _NAMED.match(self._text, start):
            self._at = named.end()
        else:
            for sign, name in sorted(_GROUPS.items(), key=lambda item: -len(item[0])):
                if self._text.startswith(sign, start + 2):
                    self._refuse(name, start)
            if self._text.startswith("P=", start + 2):
                self._refuse("a back-reference `(?P=`", start)
            self._refuse(f"`{self._text[start : start + 4]}` (flags, conditions)", start)

    def _quantified(self, item: Node, start: int) -> Node:
        counts: tuple[int, int | None] | None = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(self._peek())
        at = self._at
        if counts is not None:
            self._at += 1
        elif found := _QUANTIFIER.match(self._text, self._at):
            least = int(found[1])
            counts = least, (least if found[2] is None else int(found[3]) if found[3] else None)
            self._at = found.end()
        elif self._text.startswith("{,", self._at):
            self._fail("`{,` is read differently by different dialects; write {0,", at)
        if counts is None:
            return item
        least, most = counts
        if isinstance(item, Edge):
            self._fail(f"the anchor {item.sign} cannot be repeated", start)
        if most is not None and most < least:
            self._fail(f"the repetition asks for at least {least} and at most {most}", at)
        if self._peek() == "?":
            self._at += 1
        elif self._peek() == "+":
            self._refuse("a possessive quantifier", at)
        elif self._peek() == "*" or _QUANTIFIER.match(self._text, self._at):
            self._fail("a repetition of a repetition; put the inner one into a group")
        return Repeat(item, least, most)

    def _set(self, start: int) -> Chars:
        negated = self._peek() == "^"
        self._at += negated
        if self._peek() == "]":
            self._fail("an empty set `[]`, which dialects read differently", start)
        ranges: list[tuple[int, int]] = []
        properties: list[str] = []
        while self._peek() != "]":
            if not self._peek():
                self._fail("this set is not closed", start)
            at = self._at
            low = self._member()
            high = low
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                high = self._member()
                if len(low.ranges) != 1 or len(high.ranges) != 1 or low.properties or high.properties:
                    self._fail("a range of sets", at)
                (first, _), (_, last) = low.ranges[0], high.ranges[0]
                if first > last or first != low.ranges[0][1] or last != high.ranges[0][0]:
                    self._fail("a range whose ends are in the wrong order", at)
                ranges.append((first, last))
                continue
            ranges += low.ranges
            properties += low.properties
        self._at += 1
        if properties:
            return Chars(tuple(sorted(ranges)), tuple(properties), negated)
        plain = complement(complement(tuple(ranges)))
        return Chars(complement(plain) if negated else plain)

    def _member(self) -> Chars:
        start = self._at
        char = self._take()
        if char == "\\":
            if self._peek() == "b":
                self._at += 1
                return Chars(((8, 8),))
            return self._escape(start)
        return Chars(((self._code(char, start),) * 2,))

    def _code(self, char: str, at: int) -> int:
        if 0xD800 <= ord(char) <= 0xDFFF:
            self._fail("half a surrogate pair is no character", at)
        return ord(char)

    def _escape(self, start: int) -> Chars:
        char = self._take()
        if char in _NOT_HELD:
            self._refuse(_NOT_HELD[char], start)
        if char.isdigit() and char != "0":
            self._refuse(f"a back-reference `\\{char}`", start)
        if char.lower() in _CLASSES:
            ranges = _CLASSES[char.lower()]
            return Chars(ranges if char.islower() else complement(ranges))
        if char in "pP":
            return self._property(char == "P", start)
        if char in _CONTROLS:
            if char == "0" and self._peek().isdigit():
                self._fail("an octal escape", start)
            return Chars(((_CONTROLS[char],) * 2,))
        if char in "xu":
            return Chars(((self._number(char, start),) * 2,))
        if char == "c" and re.match("[A-Za-z]", self._peek()):
            return Chars(((ord(self._take()) % 32,) * 2,))
        if char.isalnum():
            self._fail(f"the escape `\\{char}` has no meaning", start)
        return Chars(((self._code(char, start),) * 2,))

    def _property(self, negated: bool, start: int) -> Chars:
        found = _PROPERTY.match(self._text, self._at)
        if found is None:
            self._fail("a Unicode property is written \\p{Name} or \\p{Name=Value}", start)
        self._at = found.end()
        return Chars((), ("^" + found[1] if negated else found[1],))

    def _number(self, kind: str, start: int) -> int:
        braced = re.compile(r"\{([0-9A-Fa-f]{1,6})\}").match(self._text, self._at)
        fixed = re.compile("[0-9A-Fa-f]{%d}" % (2 if kind == "x" else 4)).match(self._text, self._at)  # noqa: UP031
        found = braced or fixed
        if found is None:
            self._fail(f"`\\{kind}` needs {2 if kind == 'x' else 4} hexadecimal digits", start)
        self._at = found.end()
        code = int(braced[1] if braced else found[0], 16)
        if 0xD800 <= code < 0xDC00 and (
            low := re.compile(r"\\u(D[C-Fc-f][0-9A-Fa-f]{2})", re.I).match(self._text, self._at)
        ):
            self._at = low.end()
            return 0x10000 + ((code - 0xD800) << 10) + int(low[1], 16) - 0xDC00
        if code > _MAX_CODE or 0xD800 <= code <= 0xDFFF:
            self._fail(f"{code:X} is no character", start)
        return code
