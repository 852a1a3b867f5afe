"""How a model's template wants tool calls in history handed to it, found out by asking it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

from tenuto.errors import TemplateError
from tenuto.text.formats.json_text import dumps

Turns: TypeAlias = list[dict[str, Any]]

_ID, _SHORT_ID = "call-0tenuto-of-some-length", "0tenuto00"
_SHORT = re.compile(r"[a-zA-Z0-9]{9}")
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
_NAME, _KEY, _VALUE, _RESULT = "name0tenuto", "key0tenuto", "value0tenuto", "result0tenuto"
_WRONG = (f"'{_KEY}'", f'\\"{_KEY}')  # a mapping as Python prints it; JSON text quoted once more


@dataclass(frozen=True)
class CallRendering:
    """Templates differ in what they do with a call in history. Where ours needs it:

    - arguments are JSON text, for a template that only pastes them in;
    - ids have nine letters and digits: others become such, each always the same;
    - content is None beside calls, for a template that leaves the calls out otherwise; text that comes with calls is
      then a turn before them.
    """

    arguments_as_text: bool = False
    short_ids: bool = False
    content_is_none: bool = False

    @classmethod
    def of(cls, render: Callable[[Turns], str]) -> CallRendering:
        """The first way in which a short conversation with a call comes out whole; as it is, if none does."""
        for is_none, as_text, short in product((False, True), repeat=3):
            way = cls(as_text, short, is_none)
            try:
                text = render(way.shape(_probe(_SHORT_ID if short else _ID)))
            except TemplateError:
                continue
            if all(part in text for part in (_NAME, _KEY, _VALUE)) and not any(part in text for part in _WRONG):
                return way
        return cls()

    def shape(self, turns: Turns) -> Turns:
        """The same conversation, the way the template wants it."""
        return [shaped for turn in turns for shaped in self._turn(turn)]

    def _turn(self, turn: dict[str, Any]) -> Iterable[dict[str, Any]]:
        if turn["role"] == "tool" and self.short_ids:
            yield {**turn, "tool_call_id": short_id(turn["tool_call_id"])}
            return
        calls = turn.get("tool_calls")
        if not calls:
            yield turn
            return
        calls = [self._call(call) for call in calls]
        if not self.content_is_none:
            yield {**turn, "tool_calls": calls}
            return
        if turn["content"]:
            yield {key: value for key, value in turn.items() if key != "tool_calls"}
        yield {**turn, "content": None, "tool_calls": calls}

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        if self.arguments_as_text:
            function = {**function, "arguments": dumps(function["arguments"])}
        return {**call, "id": short_id(call["id"]) if self.short_ids else call["id"], "function": function}


def _probe(call_id: str) -> Turns:
    call = {"id": call_id, "type": "function", "function": {"name": _NAME, "arguments": {_KEY: _VALUE}}}
    return [
        {"role": "user", "content": "0"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": _RESULT, "tool_call_id": call_id, "name": _NAME},
    ]


def short_id(call_id: str) -> str:
    """Nine letters and digits: the id itself if it is so, else of its digest."""
    if _SHORT.fullmatch(call_id):
        return call_id
    number = int.from_bytes(hashlib.blake2b(call_id.encode("utf-8", "replace"), digest_size=8).digest())
    digits = []
    for _ in range(9):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(digits)
