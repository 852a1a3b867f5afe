"""What order of turns a model's template takes, found out by asking it, and conversations brought into that order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tenuto.errors import TemplateError

Turns: TypeAlias = list[dict[str, Any]]
_SYSTEM, _FIRST, _SECOND = "system0tenuto", "first0tenuto", "second0tenuto"  # texts that no template trims


def merge_system(messages: Turns) -> Turns:
    """System messages at the start as one, with an empty line between them: no template expects several."""
    count = next((i for i, message in enumerate(messages) if message["role"] != "system"), len(messages))
    if count < 2:
        return messages
    content = "\n\n".join(message["content"] for message in messages[:count] if message["content"])
    return [{"role": "system", "content": content}, *messages[count:]]


@dataclass(frozen=True)
class TurnOrder:
    """Templates of some families refuse a system message, or two user messages in a row. Where ours does:

    - a system message becomes the beginning of the user message after it;
    - user messages in a row become one, with an empty line between them.
    """

    takes_system: bool = True
    takes_user_twice: bool = True

    @classmethod
    def of(cls, render: Callable[[Turns], str]) -> TurnOrder:
        """Find out by rendering two short conversations."""

        def shows(*turns: tuple[str, str]) -> bool:
            try:
                text = render([{"role": role, "content": content} for role, content in turns])
            except TemplateError:
                return False
            return all(content in text for _, content in turns)

        if not shows(("user", _FIRST)):
            return cls()  # it refuses everything, or writes something else: leave messages as they are
        return cls(
            takes_system=shows(("system", _SYSTEM), ("user", _FIRST)),
            takes_user_twice=shows(("user", _FIRST), ("user", _SECOND)),
        )

    def arrange(self, messages: Turns) -> Turns:
        arranged: Turns = []
        is_prefix = False  # the last arranged message is a system's, waiting for a user's
        for message in messages:
            is_system = message["role"] == "system" and not self.takes_system
            turn = {**message, "role": "user"} if is_system else message
            joins = is_prefix or not self.takes_user_twice
            if arranged and joins and arranged[-1]["role"] == turn["role"] == "user":
                parts = (arranged[-1]["content"], turn["content"])
                arranged[-1] = {**turn, "content": "\n\n".join(filter(None, parts))}
            else:
                arranged.append(turn)
            is_prefix = is_system
        return arranged
