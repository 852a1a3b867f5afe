"""What a comparison is to measure, and who is told how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, get_args

from tenuto.compare.texts import Text
from tenuto.errors import ConfigError

Part: TypeAlias = Literal["accuracy", "layers", "copies", "calls", "speed"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The same for both sides."""

    texts: tuple[Text, ...]
    parts: tuple[Part, ...] = PARTS
    max_tokens: int = 8192  # of each text, as far as the models' contexts reach
    num_prompts: int = 128  # that want a tool call


class Watch(Protocol):
    """Sees the work go on."""

    def begin(self, what: str, total: int) -> None:
        """A stage of `total` pieces begins."""
        ...

    def advance(self) -> None: ...


def read_parts(wanted: str | None) -> tuple[Part, ...]:
    """Names separated by commas; None is all. Raises ConfigError naming the one that is none."""
    if wanted is None:
        return PARTS
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    if unknown := [name for name in names if name not in PARTS] or ([] if names else [wanted]):
        raise ConfigError(f"--only: {unknown[0]!r:.40} is none of {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in names)
