"""Ids of models on a hub, as people write them."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import msgspec

HubName: TypeAlias = Literal["hf", "ms"]

_PART = r"[A-Za-z0-9](?:[\w.-]{0,94}[\w])?"
_REFERENCE = re.compile(
    rf"(?:(?P<hub>hf|ms):)?(?P<repo>{_PART}/{_PART})"
    r"(?:/(?P<file>[^@:]+\.gguf)|:(?P<tag>[\w.-]+))?"
    r"(?:@(?P<revision>[\w./-]{1,200}))?",
    re.ASCII,
)


class ModelReference(msgspec.Struct, frozen=True, kw_only=True):
    """A model on a hub. `file` is the path of one GGUF file in the repository; `tag` names one by a part of its name,
    such as `Q4_K_M`; at most one of them is given."""

    hub: HubName
    repo: str  # "org/name"
    revision: str | None = None  # branch, tag or commit; None: the hub's default branch
    file: str | None = None
    tag: str | None = None

    @property
    def name(self) -> str:
        return self.repo.rpartition("/")[2]

    def __str__(self) -> str:
        chosen = f"/{self.file}" if self.file else f":{self.tag}" if self.tag else ""
        return f"{self.hub}:{self.repo}{chosen}" + (f"@{self.revision}" if self.revision else "")


def parse_reference(text: str) -> ModelReference | None:
    """`[hf:|ms:]org/name[/file.gguf | :tag][@revision]`, or None if the text is no such id.

    Whether a path of that name exists is the caller's question: it wins.
    """
    found = _REFERENCE.fullmatch(text)
    if found is None or (found["hub"] is None and found["repo"].endswith(".gguf")):
        return None  # `folder/model.gguf` is a path that does not exist, not a repository
    if any(
        part in ("", ".", "..") for name in ("repo", "file", "revision") for part in (found[name] or "-").split("/")
    ):
        return None
    return ModelReference(
        hub="ms" if found["hub"] == "ms" else "hf",
        repo=found["repo"],
        revision=found["revision"],
        file=found["file"],
        tag=found["tag"],
    )
