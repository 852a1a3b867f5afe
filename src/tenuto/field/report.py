"""What is known of a model without reading its weights."""

from __future__ import annotations

import msgspec


class TensorType(msgspec.Struct, frozen=True):
    """The tensors that are stored one way."""

    name: str  # "BF16", "Q4_K", "AWQ 4-bit", ...
    num_tensors: int
    num_bytes: int  # in the file


class PrecisionFit(msgspec.Struct, frozen=True, kw_only=True):
    """What running in one precision takes."""

    precision: str
    kv_type: str = "float"  # or "int8", of precisions int8 and int4
    weight_bytes: int  # as the loader holds them
    kv_bytes_per_token: int
    kv_bytes: int  # of the whole pool
    total_bytes: int
    fits: bool | None  # None: free memory is not known here
    problem: str = ""  # why the device cannot run it, however much memory there is

    @property
    def name(self) -> str:
        """As `tenuto compare` takes it."""
        return self.precision if self.kv_type == "float" else f"{self.precision}/{self.kv_type}"


class ModelReport(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a model runs here, and why not. Empty texts and zeros are what could not be found out."""

    name: str
    path: str
    runs: bool = False
    use: str = "generation"  # or "embedding"
    format: str = ""
    family: str = ""
    num_parameters: int = 0
    max_model_tokens: int = 0
    file_bytes: int = 0
    download_bytes: int = 0  # of a model on a hub: what would be fetched
    tensor_types: tuple[TensorType, ...] = ()
    tokenizer: str = ""
    chat_template: str = ""
    kv_tokens: int = 0  # size of the KV pool that is counted with
    available_bytes: int | None = None  # of memory
    precisions: tuple[PrecisionFit, ...] = ()
    problems: tuple[str, ...] = ()  # everything that keeps it from running
    notes: tuple[str, ...] = ()  # what one should know, although it runs
