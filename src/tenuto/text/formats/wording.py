"""How a format writes calls: as text, and as rules of a grammar.

White space is fixed, so that a grammar forces nearly all of a call but its values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tenuto.errors import GrammarError
from tenuto.protocol.messages import ToolSpec
from tenuto.text.formats.json_text import dumps
from tenuto.text.lark_text import literal
from tenuto.text.tool_grammar import ToolGrammar


@dataclass(frozen=True)
class CallRule:
    """One tool's call, behind what opens it: a fixed text, and the body of a rule for the rest."""

    head: str
    body: str


class Wording(Protocol):
    """The texts are those around calls: before the first, between two, after the last."""

    @property
    def first(self) -> str: ...

    @property
    def between(self) -> str: ...

    @property
    def last(self) -> str: ...

    @property
    def usage(self) -> str:
        """What a call looks like, behind what opens it, with dots for its parts."""
        ...

    def call(self, rules: ToolGrammar, index: int, tool: ToolSpec) -> CallRule | None:
        """The rule of a tool's calls; None if something must be copied into them and there is nothing to copy.

        Raises:
            GrammarError: the format cannot write the name, or a strict tool's schema cannot be held.
        """
        ...

    def write(self, name: str, arguments: Mapping[str, Any]) -> str:
        """A call as text, behind what opens it."""
        ...


@dataclass(frozen=True)
class JsonWording:
    """A call whose arguments are a JSON object: a head with the name, the object, a tail."""

    head: Callable[[str], str]
    first: str = ""
    between: str = ""
    last: str = ""
    tail: str = ""
    names: re.Pattern[str] | None = None  # that can be written; None: any

    @property
    def usage(self) -> str:
        return f"{self.head('...')}{{...}}{self.tail}"

    def call(self, rules: ToolGrammar, index: int, tool: ToolSpec) -> CallRule | None:
        check_name(tool.name, self.names)
        arguments = rules.add_tool(index, tool)
        if arguments is None:
            return None
        return CallRule(self.head(tool.name), f"{arguments} {literal(self.tail)}" if self.tail else arguments)

    def write(self, name: str, arguments: Mapping[str, Any]) -> str:
        return self.head(name) + dumps(arguments) + self.tail


def check_name(name: str, names: re.Pattern[str] | None) -> None:
    """Raises GrammarError if a format that writes names without quotes cannot write this one."""
    if names is not None and names.fullmatch(name) is None:
        raise GrammarError(
            f"tool {name!r:.80}: this model's tool calls cannot write such a name; use letters, digits, _ and -"
        )
