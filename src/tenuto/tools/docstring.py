"""Reads a tool's description and its arguments' descriptions out of a docstring."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field

_SECTION = re.compile(
    r"^(args|arguments|parameters|returns?|yields?|raises|examples?|notes?|参数|返回)\s*[:：]\s*$", re.I
)
_ARGUMENT_SECTIONS = {"args", "arguments", "parameters", "参数"}
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*[:：]\s*(.*)$")


@dataclass(frozen=True)
class Docstring:
    description: str = ""
    arguments: dict[str, str] = field(default_factory=dict)  # argument name -> description


def parse_docstring(text: str | None) -> Docstring:
    """Text before the first section is the description; the entries under `Args:` describe the arguments.

    An entry is `name: text` or `name (type): text`; lines indented deeper continue it.
    """
    lines = inspect.cleandoc(text or "").splitlines()
    description: list[str] = []
    sections: dict[str, list[str]] = {}
    current = description
    for line in lines:
        heading = _SECTION.match(line)
        if heading:
            current = sections.setdefault(heading.group(1).lower(), [])
        else:
            current.append(line)
    arguments: dict[str, str] = {}
    for name, body in sections.items():
        if name in _ARGUMENT_SECTIONS:
            arguments.update(_entries(inspect.cleandoc("\n".join(["", *body])).splitlines()))
    paragraphs = re.split(r"\n\s*\n", "\n".join(description).strip())
    return Docstring("\n".join(" ".join(p.split()) for p in paragraphs).strip(), arguments)


def _entries(lines: list[str]) -> dict[str, str]:
    entries: dict[str, str] = {}
    name = None
    for line in lines:
        entry = _ENTRY.match(line)
        if entry:
            name = entry.group(1)
            entries[name] = entry.group(2).strip()
        elif name is not None and line.strip():
            entries[name] = f"{entries[name]} {line.strip()}".strip()
    return entries
