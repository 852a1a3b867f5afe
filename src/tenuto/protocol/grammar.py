"""Grammars as data, and the compiled form that the engine drives token by token."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from tenuto.ids import TokenId

TokenMask: TypeAlias = NDArray[np.uint32]  # bit t of word t // 32 says whether token t may come next


class Relaxation(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a schema that the grammar does not hold, where the caller allowed that."""

    path: str  # in the schema, e.g. "#/properties/city/pattern"; before a tool's schema, the tool's name
    reason: str


class ReasoningFrame(msgspec.Struct, frozen=True, kw_only=True):
    """The tags around what a model thinks before the text that a grammar is about."""

    open: str
    close: str
    is_open: bool = False  # the prompt has the opening tag already; otherwise the model may think first, or not


class GrammarSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A grammar as plain data, so that it can cross a process."""

    kind: Literal["lark", "json_schema", "regex", "choices"]
    source: str  # the grammar's text; JSON text for a schema, and for choices, which are a list of strings
    relaxed: tuple[Relaxation, ...] = ()  # what the source leaves out of the tools' schemas it was made from
    reasoning: ReasoningFrame | None = None  # the grammar begins after it; None: at once


class TokenGrammar(Protocol):
    """A compiled grammar and its state along one sequence. Not shared between requests."""

    def mask(self) -> TokenMask:
        """The tokens allowed next: ceil(vocab / 32) words. End-of-sequence ids are set only where the text may end."""
        ...

    def accept(self, token: TokenId) -> bool:
        """Advance over a token; False, with the state unchanged, if the grammar does not allow it."""
        ...

    def forced(self) -> tuple[TokenId, ...]:
        """The ids that must come next whatever the model says; they are not yet accepted."""
        ...

    def rollback(self, num_tokens: int) -> None:
        """Undo the last accepted tokens."""
        ...

    def fork(self) -> TokenGrammar:
        """An independent copy at the same state."""
        ...

    @property
    def finished(self) -> bool:
        """Nothing but the end of the sequence can follow."""
        ...


class GrammarCompiler(Protocol):
    """Turns a spec into a fresh matcher; injected by `wiring`, so that the engine never sees text."""

    def compile(self, spec: GrammarSpec) -> TokenGrammar:
        """Raises GrammarError. May take long: call it off the step loop."""
        ...
