"""A store over the fake hub, with short waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from fake_hub import FakeHub
from tenuto.hub import ModelCache, ModelReference, ModelStore, parse_reference
from tenuto.hub.huggingface import HuggingFace
from tenuto.hub.modelscope import ModelScope
from tenuto.hub.transfer import Retries
from tenuto.hub.web import open_client


def a_store(root: Path, hub: FakeHub, *, token: str | None = None, lock_s: float = 10.0, **more: Any) -> ModelStore:
    client = open_client("0", httpx.Timeout(connect=2.0, read=more.pop("read_s", 5.0), write=2.0, pool=2.0))
    hubs = {"hf": HuggingFace(client, hub.url, token), "ms": ModelScope(client, hub.url)}
    retries = Retries(sleep=lambda _: None)
    return ModelStore(ModelCache(root, lock_s), hubs, client, retries, **more)


def ref(text: str) -> ModelReference:
    reference = parse_reference(text)
    assert reference is not None, text
    return reference


class Recorder:
    """A progress that remembers."""

    def __init__(self) -> None:
        self.total = self.done = 0
        self.notes: list[str] = []

    def begin(self, what: str, total_bytes: int, done_bytes: int) -> None:
        self.total, self.done = total_bytes, done_bytes

    def advance(self, num_bytes: int) -> None:
        self.done += num_bytes

    def note(self, message: str) -> None:
        self.notes.append(message)
