"""Tools, calls and results as plain text, for templates that have no place for them.

Everything here works on the mappings that templates get, strings already marked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

_RESULT_OPEN, _RESULT_CLOSE = "<tool_response>", "</tool_response>"


class CallWriter(Protocol):
    """Writes calls in the model's format."""

    @property
    def usage(self) -> str:
        """What a call looks like, with dots for its parts."""
        ...

    def write(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str: ...


def signature(function: dict[str, Any]) -> str:
    """One line a tool, as a programmer would write it: few tokens, and small models read it better than a schema."""
    schema = function.get("parameters") or {}
    properties, required = schema.get("properties"), schema.get("required")
    properties = properties if isinstance(properties, dict) else {}
    required = required if isinstance(required, list) else []
    parameters = ", ".join(f"{name}{'' if name in required else '?'}{_kind(one)}" for name, one in properties.items())
    lines = [f"{function['name']}({parameters}): {function.get('description') or ''}"]
    lines += [
        f"  {name}: {one['description']}"
        for name, one in properties.items()
        if isinstance(one, dict) and one.get("description")
    ]
    return "\n".join(lines)


def _kind(schema: Any) -> str:
    """What may stand there, in a word or two; a string, the usual case, goes without saying."""
    if not isinstance(schema, dict):
        return ""
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return ": " + " | ".join(_json(value) for value in schema["enum"])
    kind = schema.get("type")
    return f": {kind}" if isinstance(kind, str) and kind != "string" else ""


def declaration(tools: list[dict[str, Any]], calls: CallWriter) -> str:
    """What a system message says of the tools."""
    lines = [signature(tool["function"]) for tool in tools]
    return "\n".join(["Tools:", *lines, f"To use a tool, write {calls.usage}"])


def turn_text(message: dict[str, Any], calls: CallWriter) -> str:
    """An assistant's turn: its words, then its calls, which begin on a line of their own."""
    text: str = message["content"]
    made = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()]
    separator = "\n" if made and text and not text.endswith("\n") else ""
    return text + separator + calls.write(made)


def without_tool_turns(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]], calls: CallWriter
) -> list[dict[str, Any]]:
    """The same conversation in system, user and assistant turns alone.

    Tools are declared at the end of the system message, calls are part of the assistant's text, and the results of a
    turn's calls are one user message.
    """
    written: list[dict[str, Any]] = []
    if tools:
        first = messages[0]["content"] if messages and messages[0]["role"] == "system" else ""
        messages = messages[1:] if messages and messages[0]["role"] == "system" else messages
        written.append({"role": "system", "content": "\n".join(filter(None, (first, declaration(tools, calls))))})
    after_result = False
    for message in messages:
        is_result = message["role"] == "tool"
        if is_result and after_result:
            written[-1]["content"] += "\n" + _result(message)
        elif is_result:
            written.append({"role": "user", "content": _result(message)})
        else:
            rest = {key: value for key, value in message.items() if key != "tool_calls"}
            written.append({**rest, "content": turn_text(message, calls)})
        after_result = is_result
    return written


def _result(message: dict[str, Any]) -> str:
    return f"{_RESULT_OPEN}\n{message['content']}\n{_RESULT_CLOSE}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
