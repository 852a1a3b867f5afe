import pytest

from tenuto.engine.config import EngineConfig
from tenuto.engine.door import check_append, check_ids, check_params, resolve_max_tokens
from tenuto.errors import ConfigError, ContextLengthError, InvalidRequest, NeverFits
from tenuto.ids import TokenId
from tenuto.protocol.engine import GenerateParams, SamplingParams

CONFIG = EngineConfig(num_blocks=4, block_size=4, vocab_size=10, max_model_tokens=30)


@pytest.mark.parametrize("ids", [[10], [0, -1], [3, 99, 3]])
def test_ids_out_of_range(ids: list[int]) -> None:
    with pytest.raises(InvalidRequest, match="out of range"):
        check_ids([TokenId(i) for i in ids], 10)


@pytest.mark.parametrize(
    ("params", "name"),
    [
        (GenerateParams(sampling=SamplingParams(temperature=-0.1)), "temperature"),
        (GenerateParams(sampling=SamplingParams(temperature=float("nan"))), "temperature"),
        (GenerateParams(sampling=SamplingParams(top_p=0.0)), "top_p"),
        (GenerateParams(sampling=SamplingParams(top_p=1.1)), "top_p"),
        (GenerateParams(sampling=SamplingParams(top_k=-1)), "top_k"),
        (GenerateParams(sampling=SamplingParams(min_p=-0.1)), "min_p"),
        (GenerateParams(sampling=SamplingParams(min_p=float("nan"))), "min_p"),
        (GenerateParams(sampling=SamplingParams(repetition_penalty=0.0)), "repetition_penalty"),
        (GenerateParams(sampling=SamplingParams(repetition_penalty=float("inf"))), "repetition_penalty"),
        (GenerateParams(sampling=SamplingParams(presence_penalty=2.5)), "presence_penalty"),
        (GenerateParams(sampling=SamplingParams(frequency_penalty=-2.5)), "frequency_penalty"),
        (GenerateParams(sampling=SamplingParams(logit_bias=((TokenId(10), 1.0),))), "logit_bias"),
        (GenerateParams(sampling=SamplingParams(logit_bias=((TokenId(1), 101.0),))), "logit_bias"),
        (GenerateParams(sampling=SamplingParams(logit_bias=((TokenId(1), 1.0),) * 2)), "logit_bias"),
        (GenerateParams(sampling=SamplingParams(logit_bias=((TokenId(1), 1.0),) * 1025)), "logit_bias"),
        (GenerateParams(logprobs=-1), "logprobs"),
        (GenerateParams(logprobs=21), "logprobs"),
        (GenerateParams(max_tokens=0), "max_tokens"),
        (GenerateParams(stop_ids=frozenset({TokenId(10)})), "stop_ids"),
    ],
)
def test_bad_parameters_are_named(params: GenerateParams, name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_params(params, 10)
    assert caught.value.param == name


def test_the_bounds_themselves_are_accepted() -> None:
    for sign in (-1, 1):
        bias = tuple((TokenId(i), 100.0 * sign) for i in range(10))
        penalties = {"presence_penalty": 2.0 * sign, "frequency_penalty": 2.0 * sign}
        for min_p, repetition in ((0.0, 0.01), (1.0, 100.0)):
            sampling = SamplingParams(logit_bias=bias, min_p=min_p, repetition_penalty=repetition, **penalties)
            check_params(GenerateParams(sampling=sampling, logprobs=20), 10)


def test_what_can_never_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(NeverFits, match=r"19 KV slots.*16"):
        resolve_max_tokens(10, 10, CONFIG)
    with pytest.raises(ContextLengthError) as caught:
        resolve_max_tokens(25, 10, CONFIG)
    assert (caught.value.num_tokens, caught.value.max_tokens) == (35, 30)
    with pytest.raises(NeverFits):
        resolve_max_tokens(18, None, CONFIG)
    with pytest.raises(NeverFits):
        check_append(10, 7, CONFIG)
    with pytest.raises(ContextLengthError):
        check_append(10, 21, CONFIG)


def test_the_last_id_needs_no_slot() -> None:
    assert resolve_max_tokens(10, 7, CONFIG) == 7
    assert resolve_max_tokens(10, None, CONFIG) == 7
    assert resolve_max_tokens(16, None, CONFIG) == 1
    check_append(10, 6, CONFIG)


def test_nothing_to_continue() -> None:
    with pytest.raises(InvalidRequest, match="empty"):
        resolve_max_tokens(0, 5, CONFIG)


@pytest.mark.parametrize(
    "wrong",
    [{"num_blocks": 0}, {"max_running": 600}, {"policy": "lottery"}, {"patience_s": 0.0}, {"max_bypasses": -1}],
)
def test_config_contradictions(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        EngineConfig(**{"num_blocks": 4, "vocab_size": 10, "max_model_tokens": 30, **wrong})  # type: ignore[arg-type]
