"""Gets models from the hubs, Hugging Face and ModelScope, into a local cache. Reads no weights."""

from tenuto.hub.cache import CachedModel, ModelCache
from tenuto.hub.hubs import HubSettings, default_cache_folder, locate, open_store
from tenuto.hub.listing import Listing, RepoFile
from tenuto.hub.progress import SILENT, Progress
from tenuto.hub.reference import ModelReference, parse_reference
from tenuto.hub.sketch import Sketch, sketch_model
from tenuto.hub.store import ModelStore

__all__ = [
    "SILENT",
    "CachedModel",
    "HubSettings",
    "Listing",
    "ModelCache",
    "ModelReference",
    "ModelStore",
    "Progress",
    "RepoFile",
    "Sketch",
    "default_cache_folder",
    "locate",
    "open_store",
    "parse_reference",
    "sketch_model",
]
