"""The engine: sessions of tokens in, token ids out.

`schedule(now) -> Batch`, `execute(batch) -> Output`, `commit(batch, output) -> deltas`. The executor, which needs
torch, is imported from `tenuto.engine.executor`, so that a simulation runs without it.
"""

from tenuto.engine.batch import Batch, BlockCopy, Delta, Executor, KVForm, Output, SeenTokens, SequenceSlice
from tenuto.engine.client import ClientOptions, LocalEngineClient
from tenuto.engine.config import EngineConfig, PolicyName
from tenuto.engine.engine import Engine

__all__ = [
    "Batch",
    "BlockCopy",
    "ClientOptions",
    "Delta",
    "Engine",
    "EngineConfig",
    "Executor",
    "KVForm",
    "LocalEngineClient",
    "Output",
    "PolicyName",
    "SeenTokens",
    "SequenceSlice",
]
