"""What is checked before a call changes anything: pure functions that raise or return."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tenuto.engine.config import EngineConfig
from tenuto.errors import ContextLengthError, InvalidRequest, NeverFits
from tenuto.ids import TokenId
from tenuto.protocol.engine import MAX_LOGIT_BIASES, MAX_TOP_LOGPROBS, GenerateParams, SamplingParams


def check_ids(ids: Sequence[TokenId], vocab_size: int, param: str = "ids") -> None:
    """Raises InvalidRequest for an id that the model does not have."""
    if len(ids) and (min(ids) < 0 or max(ids) >= vocab_size):
        bad = next(i for i in ids if not 0 <= i < vocab_size)
        raise InvalidRequest(f"token id {bad} is out of range: the vocabulary has {vocab_size}", param)


def check_params(params: GenerateParams, vocab_size: int) -> None:
    """Raises InvalidRequest, naming the parameter and what it accepts, for one that makes no sense."""
    _check_sampling(params.sampling)
    _check_logit_bias(params.sampling, vocab_size)
    if params.max_tokens is not None and params.max_tokens < 1:
        raise InvalidRequest(f"max_tokens is {params.max_tokens}; it must be at least 1", "max_tokens")
    if params.logprobs is not None and not 0 <= params.logprobs <= MAX_TOP_LOGPROBS:
        raise InvalidRequest(f"logprobs is {params.logprobs}; it must be between 0 and {MAX_TOP_LOGPROBS}", "logprobs")
    check_ids(tuple(params.stop_ids), vocab_size, "stop_ids")


def _check_sampling(sampling: SamplingParams) -> None:
    """Written so that NaN is refused too."""
    accepted = {
        "temperature": (0 <= sampling.temperature < math.inf, "0 or more"),
        "top_p": (0 < sampling.top_p <= 1, "above 0 and at most 1"),
        "top_k": (sampling.top_k >= 0, "0 (all) or more"),
        "min_p": (0 <= sampling.min_p <= 1, "between 0 and 1"),
        "repetition_penalty": (0.01 <= sampling.repetition_penalty <= 100, "between 0.01 and 100"),
        "presence_penalty": (-2 <= sampling.presence_penalty <= 2, "between -2 and 2"),
        "frequency_penalty": (-2 <= sampling.frequency_penalty <= 2, "between -2 and 2"),
    }
    for name, (is_accepted, values) in accepted.items():
        if not is_accepted:
            raise InvalidRequest(f"{name} is {getattr(sampling, name)}; it must be {values}", name)


def _check_logit_bias(sampling: SamplingParams, vocab_size: int) -> None:
    biases = sampling.logit_bias
    if len(biases) > MAX_LOGIT_BIASES:
        raise InvalidRequest(f"logit_bias has {len(biases)} ids; {MAX_LOGIT_BIASES} at most", "logit_bias")
    check_ids([token for token, _ in biases], vocab_size, "logit_bias")
    if len(dict(biases)) < len(biases):
        raise InvalidRequest("logit_bias names an id twice", "logit_bias")
    for token, bias in biases:
        if not -100 <= bias <= 100:
            raise InvalidRequest(f"logit_bias of id {token} is {bias}; it must be between -100 and 100", "logit_bias")


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
