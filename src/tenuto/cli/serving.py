"""Settings → how `tenuto serve` is run: limits, keys, TLS, telemetry. Wrong ones are told before a model is loaded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import unquote

import anyio

import tenuto
from tenuto.clock import Clock
from tenuto.config import Config
from tenuto.errors import ConfigError
from tenuto.protocol.chat import ModelInfo
from tenuto.server import Operations, ServerLimits
from tenuto.server.access import AccessRules, check_exposure
from tenuto.server.keys import ApiKeys, KeyFile
from tenuto.server.limits import SessionLimits, StoreLimits
from tenuto.telemetry import Telemetry
from tenuto.telemetry.tracing import open_tracing

_SPARE_FILES = 256  # besides connections
_FLUSH_DEADLINE_S = 5.0


def limits_of(config: Config) -> ServerLimits:
    return ServerLimits(
        max_body_bytes=config.max_body_bytes,
        max_messages=config.max_messages,
        max_tools=config.max_tools,
        max_output_tokens=config.max_output_tokens,
        max_requests=config.max_requests,
        max_tenant_requests=config.max_tenant_requests or config.max_requests,
        max_connections=config.max_connections,
        sessions=SessionLimits(
            idle_s=config.session_idle_s,
            max_per_tenant=config.max_tenant_sessions,
            max_import_bytes=config.max_import_bytes,
            import_deadline_s=config.import_deadline_s,
        ),
        stored_responses=StoreLimits(
            max_responses=config.max_stored_responses,
            max_bytes=config.max_stored_response_bytes,
            ttl_s=config.stored_response_ttl_s,
        ),
    )


def rules_of(config: Config, clock: Clock) -> AccessRules:
    """Raises ConfigError if keys cannot be used, or if there are none and others could reach the server."""
    single = None if config.api_key is None else config.api_key.get_secret_value()
    keys = None
    if config.api_keys_file is not None or single is not None:
        file = None if config.api_keys_file is None else KeyFile(config.api_keys_file)
        keys = ApiKeys(file=file, single=single, clock=clock)
    loopback = check_exposure(config.host, has_keys=keys is not None, allow_anonymous=config.allow_anonymous)
    return AccessRules(keys=keys, loopback_names_only=loopback and keys is None and not config.allow_anonymous)


def secrets_of(config: Config) -> tuple[str, ...]:
    """What no log line may hold."""
    headers = tuple(_headers(config).values())
    return (*(one.get_secret_value() for one in (config.api_key, config.hf_token) if one is not None), *headers)


@asynccontextmanager
async def telemetry_of(config: Config, clock: Clock) -> AsyncIterator[Telemetry]:
    """Metrics, and traces if a collector is set; what was not sent yet is sent at the end of the block."""
    if config.otlp_endpoint is None:
        yield Telemetry(clock)
        return
    tracing = open_tracing(
        config.otlp_endpoint,
        clock,
        headers=_headers(config),
        ratio=config.trace_ratio,
        content=config.trace_content,
        version=tenuto.__version__,
    )
    try:
        yield Telemetry(clock, tracing=tracing)
    finally:
        with anyio.move_on_after(_FLUSH_DEADLINE_S, shield=True):
            await anyio.to_thread.run_sync(tracing.close, _FLUSH_DEADLINE_S, abandon_on_cancel=True)


def operations_of(config: Config, rules: AccessRules, telemetry: Telemetry, info: ModelInfo) -> Operations:
    telemetry.served(info)
    origins = tuple(origin.strip() for origin in config.cors_origins.split(",") if origin.strip())
    return Operations(limits=limits_of(config), rules=rules, telemetry=telemetry, cors_origins=origins)


def allow_connections(num_connections: int) -> None:
    """Lets this process open files for so many connections, as far as the system permits. Raises ConfigError if not."""
    try:
        import resource
    except ImportError:  # no such limit here
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = num_connections + _SPARE_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise ConfigError(
            f"setting max_connections: {num_connections} need {wanted} open files, but the system allows {hard}; "
            "lower it, or raise the limit with `ulimit -n`"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _headers(config: Config) -> dict[str, str]:
    """`name=value,name=value`, the values percent-encoded, as OpenTelemetry's own variable has it."""
    if config.otlp_headers is None:
        return {}
    made = {}
    for pair in config.otlp_headers.get_secret_value().split(","):
        name, found, value = pair.partition("=")
        if not found or not name.strip():
            raise ConfigError("setting otlp_headers: write them as name=value, with commas between")
        made[name.strip().lower()] = unquote(value.strip())
    return made
