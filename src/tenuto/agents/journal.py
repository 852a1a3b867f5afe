"""The record of a run: what it set out to do, and what came of it. The state of a run is the fold of its journal.

Intent comes before the effect: an entry `Intended(step)` without its outcome says that the effect may or may not have
happened.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol, TypeAlias

import msgspec

from tenuto.agents.step import NextStep
from tenuto.errors import InvalidRequest
from tenuto.ids import RunId
from tenuto.protocol.chat import ChatFinishReason, ChatUsage, ToolChoice
from tenuto.protocol.messages import Message


class Began(msgspec.Struct, frozen=True, kw_only=True, tag="began"):
    """The first entry: everything that `decide` needs to know of the run's settings."""

    run: RunId
    messages: tuple[Message, ...]
    max_turns: int
    tool_choice: ToolChoice = "auto"
    max_repeats: int = 3


class Intended(msgspec.Struct, frozen=True, kw_only=True, tag="intended"):
    """About to do this step. `Intended(Finish)` is the last entry."""

    step: NextStep


class Replied(msgspec.Struct, frozen=True, kw_only=True, tag="replied"):
    """The model's reply is whole."""

    turn: int
    reason: ChatFinishReason
    message: Message
    usage: ChatUsage


class Returned(msgspec.Struct, frozen=True, kw_only=True, tag="returned"):
    """A call has its result, be it an error."""

    turn: int
    index: int  # place among the calls of the turn
    text: str
    is_error: bool = False
    error_code: str | None = None
    duration_s: float = 0.0


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The run cannot go on: the model failed, or the run's deadline passed."""

    error_code: str
    error: str


Entry: TypeAlias = Began | Intended | Replied | Returned | Failed


class Journal(Protocol):
    """An append-only list of entries."""

    async def append(self, entry: Entry) -> None:
        """Returns when the entry is as durable as this journal makes it."""
        ...

    async def entries(self) -> Sequence[Entry]: ...


class MemoryJournal:
    """A journal that lives as long as its process."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    async def append(self, entry: Entry) -> None:
        self._entries.append(entry)

    async def entries(self) -> Sequence[Entry]:
        return tuple(self._entries)


def encode_entry(entry: Entry) -> bytes:
    """One line of JSON, UTF-8. Through the standard library, whose integers have no limit: a model's arguments may
    hold any number."""
    return json.dumps(msgspec.to_builtins(entry), ensure_ascii=False).encode()


def decode_entry(line: bytes) -> Entry:
    """The entry again. Only the kinds above exist: nothing in a journal can name code to run.

    Raises InvalidRequest for anything else.
    """
    try:
        entry: Entry = msgspec.convert(json.loads(line), Entry)
    except (ValueError, msgspec.ValidationError) as error:
        raise InvalidRequest(f"not a journal entry: {error}") from error
    return entry
