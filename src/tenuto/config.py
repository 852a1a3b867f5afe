"""Every setting, its default and its environment variable (`TENUTO_` + the name in capitals).

A value given to the constructor (by the command line) wins over the environment, which wins over a `.env` file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

import pydantic
from pydantic import AliasChoices, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from tenuto.errors import ConfigError

EMBEDDED_MODEL = "embedded"
ToolFormat: TypeAlias = Literal[
    "auto", "hermes", "xml", "llama", "pythonic", "mistral", "mistral-args", "deepseek", "deepseek-v3.1", "json"
]
_ADDRESS = r"^https?://[^\s/?#@]+(/[^\s?#]*)?$"


class Config(BaseSettings):
    """Frozen once read. Sizes are in tokens unless the name ends in another unit."""

    model_config = SettingsConfigDict(
        env_prefix="TENUTO_",
        env_file=".env",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        populate_by_name=True,
    )

    model: str = Field(
        EMBEDDED_MODEL,
        description="a GGUF file or a folder with one, a Hugging Face directory, an id on a hub such as hf:org/name, "
        "or `embedded`: the one that comes along",
    )
    model_cache: Path | None = Field(
        None,
        validation_alias=AliasChoices("TENUTO_MODEL_CACHE", "TENUTO_CACHE"),
        description="folder for models from hubs; unset: the user's cache folder",
    )
    offline: bool = Field(
        False,
        validation_alias=AliasChoices("TENUTO_OFFLINE", "HF_HUB_OFFLINE"),
        description="ask no hub: models by id come from the cache only",
    )
    hf_endpoint: str = Field(
        "https://huggingface.co",
        pattern=_ADDRESS,
        validation_alias=AliasChoices("TENUTO_HF_ENDPOINT", "HF_ENDPOINT"),
        description="Hugging Face, or a mirror of it",
    )
    hf_token: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("TENUTO_HF_TOKEN", "HF_TOKEN"),
        description="for restricted models on Hugging Face; sent to it and shown nowhere",
    )
    ms_endpoint: str = Field("https://www.modelscope.cn", pattern=_ADDRESS, description="ModelScope")
    precision: Literal["fp32", "bf16", "int8", "int4"] = Field(
        "fp32",
        description="number format of weights, activations and KV; int8: of weights and activations, with float32 KV, "
        "on the native CPU kernels; int4: the same with 4-bit weights",
    )
    kv_type: Literal["float", "int8"] = Field(
        "float",
        description="KV as the precision says, or INT8 with a scale for each token and head (with precision int8 or "
        "int4)",
    )
    num_threads: int | None = Field(None, ge=1, le=1024, description="threads for arithmetic; unset: one for each core")

    packed_cache: Path | None = Field(
        None,
        description="folder for weights that an earlier start has prepared (precision int8 or int4); unset: the user's "
        "cache folder; `off`: none are kept",
    )
    max_packed_cache_bytes: int = Field(
        20_000_000_000, ge=0, description="size of that folder; what was used longest ago goes first"
    )
    check_memory: bool = Field(True, description="refuse a model whose weights and KV need more memory than is free")
    kv_tokens: int = Field(16384, ge=64, description="size of the KV pool, shared by all sessions")
    max_model_tokens: int | None = Field(None, ge=16, description="longest session; unset: what the model was made for")
    max_batch_tokens: int = Field(192, ge=1, description="most tokens computed in one step")
    max_chunk_tokens: int = Field(192, ge=1, description="most tokens of one request in one step")
    max_running: int = Field(64, ge=1, description="most requests computing at once")
    max_waiting: int = Field(1024, ge=1, description="most requests waiting; one more is refused")
    max_sessions: int = Field(
        1024, ge=1, description="most conversations held; for one more the longest idle is closed"
    )
    tool_format: ToolFormat = Field(
        "auto", description="how the model writes tool calls; `auto`: as its chat template and vocabulary say"
    )
    max_tool_calls: int = Field(16, ge=1, le=1000, description="most tool calls of one turn; it ends with the last")
    policy: Literal["agent", "fcfs"] = Field("agent", description="who goes first; `fcfs` is the plain baseline")
    prefix_cache: bool = Field(True, description="share the KV of equal beginnings between sessions")
    speculation: Literal["suffix", "off"] = Field(
        "suffix", description="guess text that repeats the context and check several tokens in one step; same output"
    )
    max_draft_tokens: int = Field(16, ge=1, le=64, description="most tokens guessed ahead for one request in one step")

    engine_process: bool | None = Field(
        None,
        description="run the engine in a process of its own; unset: for `tenuto serve`, where there are Unix sockets",
    )

    host: str = Field("127.0.0.1", description="address that `tenuto serve` listens on")
    port: int = Field(8000, ge=0, le=65535, description="port that `tenuto serve` listens on; 0 takes a free one")
    api_keys_file: Path | None = Field(None, description="file of API keys, as `tenuto keys` writes it")
    api_key: SecretStr | None = Field(None, description="one API key, for the tenant `default`; 16 characters or more")
    allow_anonymous: bool = Field(False, description="without keys, let other machines in too")
    cors_origins: str = Field(
        "", description="sites whose pages may call the server from a browser, with commas between; `*`: all"
    )
    tls_cert: Path | None = Field(None, description="certificate of the server, PEM; with `tls_key`, serves HTTPS")
    tls_key: Path | None = Field(None, description="its private key, PEM, without a password")
    max_body_bytes: int = Field(8 * 1024 * 1024, ge=1024, description="largest body of a request")
    max_messages: int = Field(4096, ge=1, description="most messages of one conversation")
    max_tools: int = Field(512, ge=0, description="most tools declared with one request")
    max_output_tokens: int | None = Field(
        None, ge=1, description="most tokens generated for one reply; unset: what the context has room for"
    )
    max_requests: int = Field(256, ge=1, description="most requests answered at once, those that wait among them")
    max_tenant_requests: int | None = Field(None, ge=1, description="of these, of one tenant; unset: all")
    max_connections: int = Field(1000, ge=1, description="most connections open at once")
    drain_s: float = Field(30.0, ge=0, description="how long running requests may go on after SIGTERM")

    log_format: Literal["text", "json"] = Field("text", description="log lines as logfmt, or as one JSON object each")
    otlp_endpoint: str | None = Field(
        None,
        pattern=_ADDRESS,
        validation_alias=AliasChoices("TENUTO_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        description="collector of traces, OTLP over HTTP; unset: no traces are made",
    )
    otlp_headers: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("TENUTO_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"),
        description="headers for the collector, `name=value` with commas between; shown nowhere",
    )
    trace_ratio: float = Field(1.0, ge=0, le=1, description="part of the requests traced if their caller decides none")
    trace_content: bool = Field(False, description="write prompts and replies into the traces")
    embedding_model: str | None = Field(
        None, description="the model of `/v1/embeddings`, given like `model`; unset: the generating model"
    )
    rerank_model: str | None = Field(
        None, description="the model of `/v1/rerank`, given like `model`; unset: the similarity of embeddings"
    )
    session_idle_s: float = Field(3600.0, gt=0, description="a named session that nobody used for so long is closed")
    max_tenant_sessions: int = Field(1024, ge=1, description="most named sessions of one tenant")
    max_import_bytes: int = Field(4_294_967_296, ge=1024, description="largest exported session that is taken in")
    import_deadline_s: float = Field(600.0, gt=0, description="how long it may take to arrive")
    max_stored_responses: int = Field(10_000, ge=0, description="most responses kept for `previous_response_id`")
    max_stored_response_bytes: int = Field(268_435_456, ge=0, description="most memory for them")
    stored_response_ttl_s: float = Field(86_400.0, gt=0, description="how long a response is kept after its last use")

    weather_url: str | None = Field(
        None, description="a real weather source: URL with {city} and {date}; unset: a simulation that says so"
    )
    search_root: Path | None = Field(None, description="folder that the search tool may read; unset: the current one")
    tool_deadline_s: float = Field(30.0, gt=0, description="how long a tool may take unless it says otherwise")
    max_turns: int = Field(8, ge=1, description="most turns of one run")

    @classmethod
    def load(cls, **overrides: object) -> Config:
        """The environment's settings under overrides (None: not given). Raises ConfigError naming the setting."""
        given = {name: value for name, value in overrides.items() if value is not None}
        try:
            made = cls(**given)  # type: ignore[arg-type]
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            variable = ".".join(str(part) for part in first["loc"])
            name = _FIELD_OF.get(variable, variable)
            variable = variable if variable in _FIELD_OF else f"TENUTO_{name.upper()}"
            raise ConfigError(f"setting {name} ({variable}): {first['msg']}") from error
        check_kv_type(made.kv_type, made.precision)
        return made


def check_kv_type(kv_type: str, precision: str) -> None:
    """Raises ConfigError if KV of that type does not come with that precision."""
    if kv_type != "float" and precision not in ("int8", "int4"):
        raise ConfigError(f"setting kv_type: {kv_type} comes with precision int8 or int4, not with {precision}")


_FIELD_OF = {  # variable -> field, where the name of the variable does not follow from the field's
    str(alias): name
    for name, field in Config.model_fields.items()
    if isinstance(field.validation_alias, AliasChoices)
    for alias in field.validation_alias.choices
}
