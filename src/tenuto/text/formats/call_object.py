"""Reads a call that is one JSON object: `{"name": ..., "arguments": {...}}`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from tenuto.text.formats.arguments import ArgumentStream, hand_out
from tenuto.text.formats.json_scanner import JsonScanner
from tenuto.text.formats.json_text import loads
from tenuto.text.formats.pieces import ParsedPiece
from tenuto.text.formats.reader import After, ReaderState, after_space

_ARGUMENTS = ("arguments", "parameters")
_USUAL_KEYS = frozenset({"name", "type", "id", *_ARGUMENTS})


class CallObject:
    """The arguments are handed out as they come, as soon as the name is known.

    Either key of the arguments may stand, not both. No arguments, or null, are an empty object; a string holds the
    object's JSON text. Any other keys are passed over.

    Args:
        after: what may follow.
        accepts: where nothing but the object says that this is a call: whether a tool has this name. Such an object
            has only the keys that calls have. None: any name and any other keys will do.
    """

    def __init__(self, after: After, accepts: Callable[[str], bool] | None = None) -> None:
        self.state: ReaderState = "open"
        self.after = after
        self._accepts = accepts
        self._place: Literal["start", "first_key", "key", "in_key", "colon", "value", "next"] = "start"
        self._scanner = JsonScanner()
        self._part: list[str] = []  # of the key or value that is being read
        self._key = ""
        self._seen: set[str] = set()
        self._name: str | None = None
        self._early: list[str] = []  # the arguments' text from before the name
        self._stream: ArgumentStream | None = None
        self._has_object = False  # of arguments
        self._other_arguments: Any = None

    def feed(self, text: str, at: int, out: list[ParsedPiece]) -> int:
        while at < len(text) and self.state == "open":
            if self._place in ("in_key", "value"):
                at = self._scan(text, at, out)
                continue
            at = after_space(text, at)
            if at < len(text):
                at = self._sign(text[at], at, out)
        return at

    def _sign(self, sign: str, at: int, out: list[ParsedPiece]) -> int:
        """A character between keys and values."""
        match self._place, sign:
            case "start", "{":
                self._place = "first_key"
            case (("first_key" | "key"), '"'):
                self._begin("in_key")
                return at
            case (("first_key" | "next"), "}"):
                self._end(out)
            case "colon", ":":
                self._begin("value")
            case "next", ",":
                self._place = "key"
            case _:
                self.state = "broken"
                return at
        return at + 1

    def _begin(self, place: Literal["in_key", "value"]) -> None:
        self._place, self._scanner, self._part = place, JsonScanner(), []

    def _scan(self, text: str, at: int, out: list[ParsedPiece]) -> int:
        if self._place == "value" and not self._part:
            at = after_space(text, at)
            if at == len(text):
                return at
            self._has_object |= self._key in _ARGUMENTS and text[at] == "{"
        end = self._scanner.feed(text, at)
        self._part.append(text[at:end])
        if self._place == "value" and self._key in _ARGUMENTS and self._has_object:
            self._early.append(text[at:end])
            self._pass_on(out)
            self._part = [""]  # handed on; not empty, so that the value has begun
        if self._scanner.state == "broken":
            self.state = "broken"
        elif self._scanner.state == "closed" and self._place == "in_key":
            self._end_key(loads("".join(self._part)))
        elif self._scanner.state == "closed":
            self._end_value(out)
        return end

    def _end_key(self, key: str) -> None:
        self._key = key
        meaning = "arguments" if key in _ARGUMENTS else key
        is_odd = self._accepts is not None and key not in _USUAL_KEYS
        if meaning in self._seen or is_odd:  # said twice: which one counts?
            self.state = "broken"
        self._seen.add(meaning)
        self._place = "colon"

    def _end_value(self, out: list[ParsedPiece]) -> None:
        self._place = "next"
        if self._key == "name":
            name = loads("".join(self._part))
            if not isinstance(name, str) or not name or (self._accepts is not None and not self._accepts(name)):
                self.state = "broken"
                return
            self._name = name
            self._pass_on(out)
        elif self._key in _ARGUMENTS and not self._has_object:
            self._other_arguments = loads("".join(self._part))
            if isinstance(self._other_arguments, str):
                inside = loads(self._other_arguments)
                self._other_arguments = inside if isinstance(inside, dict) else 0
            if self._other_arguments is not None and not isinstance(self._other_arguments, dict):
                self.state = "broken"

    def _pass_on(self, out: list[ParsedPiece]) -> None:
        if self._name is None or not self._early:
            return
        if self._stream is None:
            self._stream = ArgumentStream(self._name, out)
        self._stream.push("".join(self._early), out)
        self._early = []

    def _end(self, out: list[ParsedPiece]) -> None:
        if self._name is None:
            self.state = "broken"
            return
        if self._stream is not None:
            self._stream.finish(out)
        else:
            hand_out(self._name, self._other_arguments or {}, out)
        self.state = "closed"
