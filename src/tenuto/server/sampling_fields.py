"""The fields that say how tokens are chosen and where a text ends, the same in every API that generates."""

from __future__ import annotations

import hashlib
from typing import Annotated

from pydantic import Field, Tag

from tenuto.errors import InvalidRequest
from tenuto.ids import RequestId, TokenId
from tenuto.protocol.engine import MAX_LOGIT_BIASES, SamplingParams
from tenuto.server.wire_shape import Wire, either

DEFAULT_TEMPERATURE = 1.0
MAX_STOPS = 4
MAX_STOP_CHARS = 1000


class SamplingFields(Wire):
    """See docs/sampling.md for what each does exactly."""

    temperature: float | None = Field(
        None,
        ge=0,
        le=2,
        allow_inf_nan=False,
        description="0 always takes the likeliest token. Default 1, as in OpenAI's API: agents that want the same "
        "answer again send 0, or a seed",
    )
    top_p: float | None = Field(
        None, gt=0, le=1, allow_inf_nan=False, description="sample among the likeliest tokens of this mass. Default 1"
    )
    top_k: int | None = Field(
        None, ge=-1, le=2**31 - 1, description="extension: sample among so many of the likeliest tokens. Default 0: all"
    )
    min_p: float | None = Field(
        None,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="extension: sample among tokens at least so many times as likely as the likeliest. Default 0: all",
    )
    presence_penalty: float | None = Field(
        None, ge=-2, le=2, allow_inf_nan=False, description="taken off the logit of a token the answer holds. Default 0"
    )
    frequency_penalty: float | None = Field(
        None, ge=-2, le=2, allow_inf_nan=False, description="the same, once for each time it holds it. Default 0"
    )
    repetition_penalty: float | None = Field(
        None,
        ge=0.01,
        le=100,
        allow_inf_nan=False,
        description="extension: divides the positive logits of tokens that prompt or answer hold, multiplies the "
        "negative ones. Default 1",
    )
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]] | None = Field(
        None,
        description="token id, as text → what is added to its logit, -100 to 100; "
        f"{MAX_LOGIT_BIASES} at most. Default: none",
    )
    seed: int | None = Field(
        None, ge=-(2**63), le=2**63 - 1, description="same seed, same request, same answer. Default: a fresh one"
    )


class StopField(Wire):
    """Strings that end a text."""

    stop: (
        Annotated[
            Annotated[str, Tag("text")] | Annotated[list[str], Tag("list")],
            either("Input should be a string or a list of strings"),
        ]
        | None
    ) = Field(
        None, description=f"the text ends before the first of these: a string, or a list of up to {MAX_STOPS} strings"
    )


def sampling_of(body: SamplingFields, request_id: RequestId) -> SamplingParams:
    """Raises InvalidRequest."""
    return SamplingParams(
        logit_bias=_logit_bias(body.logit_bias or {}),
        repetition_penalty=1.0 if body.repetition_penalty is None else body.repetition_penalty,
        frequency_penalty=body.frequency_penalty or 0.0,
        presence_penalty=body.presence_penalty or 0.0,
        temperature=DEFAULT_TEMPERATURE if body.temperature is None else body.temperature,
        top_k=max(body.top_k or 0, 0),
        top_p=1.0 if body.top_p is None else body.top_p,
        min_p=body.min_p or 0.0,
        seed=_fresh_seed(request_id) if body.seed is None else body.seed % 2**63,
    )


def _logit_bias(biases: dict[str, float]) -> tuple[tuple[TokenId, float], ...]:
    for text in biases:
        if not (text.isascii() and text.isdecimal() and len(text) <= 10):
            raise InvalidRequest(f"logit_bias: {text[:20]!r} is no token id", "logit_bias")
    return tuple((TokenId(int(text)), bias) for text, bias in biases.items())


def _fresh_seed(request_id: RequestId) -> int:
    """As random as the id, from the same source; so the id, which is logged, is enough to replay a request."""
    return int.from_bytes(hashlib.blake2b(request_id.encode(), digest_size=8).digest(), "big") % 2**63


def stops_of(body: StopField) -> tuple[str, ...]:
    """Raises InvalidRequest."""
    stop = body.stop
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > MAX_STOPS:
        raise InvalidRequest(f"stop: {len(stops)} strings, {MAX_STOPS} at most", "stop")
    if any(len(stop) > MAX_STOP_CHARS for stop in stops):
        raise InvalidRequest(f"stop: a string is longer than {MAX_STOP_CHARS} characters", "stop")
    if "" in stops:
        raise InvalidRequest("stop: a stop string must not be empty", "stop")
    return stops
