"""The tools one agent may call, in order, under unique names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tenuto.errors import ConfigError, UnknownTool
from tenuto.protocol.messages import ToolSpec
from tenuto.tools.schema import NAME_PATTERN, Tool


class ToolRegistry:
    """Tools by name, in the order the model sees them.

    Args:
        tools: the user's tools.
        builtin: our own tools, which come first and whose names cannot be taken over.

    Raises ConfigError for a name that is malformed or already taken.
    """

    def __init__(self, tools: Iterable[Tool] = (), *, builtin: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._builtin: frozenset[str] = frozenset()
        for each in builtin:
            self.add(each)
        self._builtin = frozenset(self._tools)
        for each in tools:
            self.add(each)

    def add(self, added: Tool) -> None:
        if not isinstance(added, Tool):
            raise ConfigError(f"{added!r} is not a tool; decorate the function with @tool")
        if not NAME_PATTERN.fullmatch(added.name):
            raise ConfigError(f"tool name {added.name!r}: 1 to 64 letters, digits, _ or - are allowed")
        if added.name in self._tools:
            owner = "a built-in tool" if added.name in self._builtin else "another tool"
            raise ConfigError(f"{owner} is already named {added.name!r}; give yours another name with @tool(name=...)")
        self._tools[added.name] = added

    def get(self, name: str) -> Tool:
        """Raises UnknownTool, which lists the names there are."""
        found = self._tools.get(name)
        if found is None:
            raise UnknownTool(f"there is no tool {name[:64]!r}; the tools are: {', '.join(self._tools) or 'none'}")
        return found

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(each.spec for each in self._tools.values())

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools
