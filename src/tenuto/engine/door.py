"""What is checked before a call changes anything: pure functions that raise or return."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tenuto.engine.config import EngineConfig
from tenuto.errors import ContextLengthError, InvalidRequest, NeverFits
from tenuto.ids import TokenId
from tenuto.protocol.engine import GenerateParams


def check_ids(ids: Sequence[TokenId], vocab_size: int, param: str = "ids") -> None:
    """Raises InvalidRequest for an id that the model does not have."""
    if len(ids) and (min(ids) < 0 or max(ids) >= vocab_size):
        bad = next(i for i in ids if not 0 <= i < vocab_size)
        raise InvalidRequest(f"token id {bad} is out of range: the vocabulary has {vocab_size}", param)


def check_params(params: GenerateParams, vocab_size: int) -> None:
    """Raises InvalidRequest for a parameter that makes no sense."""
    sampling = params.sampling
    if not (math.isfinite(sampling.temperature) and sampling.temperature >= 0):
        raise InvalidRequest(f"temperature is {sampling.temperature}; it must be 0 or more", "temperature")
    if not 0 < sampling.top_p <= 1:
        raise InvalidRequest(f"top_p is {sampling.top_p}; it must be above 0 and at most 1", "top_p")
    if sampling.top_k < 0:
        raise InvalidRequest(f"top_k is {sampling.top_k}; it must be 0 (all) or more", "top_k")
    if params.max_tokens is not None and params.max_tokens < 1:
        raise InvalidRequest(f"max_tokens is {params.max_tokens}; it must be at least 1", "max_tokens")
    check_ids(tuple(params.stop_ids), vocab_size, "stop_ids")


def check_append(num_known: int, num_new: int, config: EngineConfig) -> None:
    """Raises ContextLengthError or NeverFits if so many tokens cannot be held."""
    total = num_known + num_new
    if total > config.max_model_tokens:
        raise ContextLengthError(total, config.max_model_tokens, "the session with the appended ids")
    if total > config.pool_tokens:
        raise NeverFits(f"the session needs {total} KV slots, but the pool has {config.pool_tokens}")


def resolve_max_tokens(num_prompt: int, max_tokens: int | None, config: EngineConfig) -> int:
    """How many ids may be generated after `num_prompt` known ones. The last one needs no KV slot.

    Raises ContextLengthError or NeverFits, with the numbers, if it could not run even on an idle engine.
    """
    if num_prompt < 1:
        raise InvalidRequest("nothing to continue: the session is empty and no ids were given", "ids")
    wanted = 1 if max_tokens is None else max_tokens
    total = num_prompt + wanted
    if total > config.max_model_tokens:
        raise ContextLengthError(total, config.max_model_tokens, f"continuing {num_prompt} tokens by {wanted}")
    if total - 1 > config.pool_tokens:
        raise NeverFits(
            f"{num_prompt} known and {wanted} new tokens need {total - 1} KV slots, but the pool has "
            f"{config.pool_tokens}; shorten the context or lower max_tokens"
        )
    room = min(config.max_model_tokens, config.pool_tokens + 1) - num_prompt
    return room if max_tokens is None else max_tokens
