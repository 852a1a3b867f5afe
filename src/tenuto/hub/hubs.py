"""Puts the room together: settings in, a store out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

import tenuto
from tenuto.checkpoint.find import find_local
from tenuto.errors import ModelFileError
from tenuto.hub import web
from tenuto.hub.cache import ModelCache
from tenuto.hub.huggingface import HuggingFace
from tenuto.hub.modelscope import ModelScope
from tenuto.hub.progress import SILENT, Progress
from tenuto.hub.reference import parse_reference
from tenuto.hub.store import ModelStore
from tenuto.hub.transfer import Retries


@dataclass(frozen=True, kw_only=True)
class HubSettings:
    cache: Path
    hf_endpoint: str
    ms_endpoint: str
    hf_token: str | None = None
    offline: bool = False


def open_store(settings: HubSettings) -> ModelStore:
    """Opens no connection yet. Close it, or use it in a `with`."""
    client = web.open_client(tenuto.__version__)
    return ModelStore(
        ModelCache(settings.cache),
        {
            "hf": HuggingFace(client, settings.hf_endpoint, settings.hf_token),
            "ms": ModelScope(client, settings.ms_endpoint),
        },
        client,
        Retries(sleep=time.sleep),
        offline=settings.offline,
    )


def locate(name: str, store: ModelStore, progress: Progress = SILENT) -> Path:
    """The path of a model given in any way: a path, the embedded one's name, or an id on a hub, which is fetched.

    Raises:
        ModelFileError: nothing of that name; says what was looked for.
        HubError, UnsupportedModel, CapacityError: see `ModelStore.fetch`.
    """
    if (path := find_local(name)) is not None:
        return path
    if (reference := parse_reference(name)) is not None:
        return store.fetch(reference, progress)
    raise ModelFileError(
        f"no model at {Path(name).expanduser()}: give a GGUF file, a folder with one, a Hugging Face directory, "
        "`embedded`, or an id such as hf:org/name or ms:org/name"
    )


def default_cache_folder(environment: Mapping[str, str], platform: str, home: Path) -> Path:
    """Where the platform keeps what can be fetched again (XDG base directories; Apple's and Microsoft's rules)."""
    if platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local") / "tenuto" / "models"
    if platform == "darwin":
        return home / "Library" / "Caches" / "tenuto" / "models"
    given = environment.get("XDG_CACHE_HOME", "")
    base = Path(given) if PurePath(given).is_absolute() else home / ".cache"  # relative ones are invalid, XDG says
    return base / "tenuto" / "models"
