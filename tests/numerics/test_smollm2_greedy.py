"""The embedded model: the same greedy tokens as `transformers`, which reads the GGUF file by its own code."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from ragged_batches import Query, ragged
from tenuto.checkpoint import open_checkpoint
from tenuto.device import ReferenceDevice
from tenuto.engine import Engine, EngineConfig
from tenuto.engine.executor import ModelExecutor
from tenuto.ids import RequestId, SessionId, TokenId
from tenuto.model import Decoder, load_model
from tenuto.protocol.engine import Pooling

NUM_TOKENS = 200
POOLINGS: tuple[Pooling, ...] = ("first", "last", "mean")
# "<|im_start|>user\nWhat is the weather in Beijing today?<|im_end|>\n<|im_start|>assistant\n" needs no tokenizer here:
# any ids the model knows will do, and these are its own special tokens around plain words.
PROMPT = [1, 4093, 198, 1780, 314, 260, 5423, 281, 20421, 1834, 47, 2, 198, 1, 520, 9531, 198]


def transformers_model(path: Path) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, rope_theta=100000.0, rms_norm_eps=1e-5, max_position_embeddings=8192,
        tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    with torch.device("meta"):
        shell = LlamaForCausalLM(config)
    tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=shell)["tensors"]
    model = LlamaForCausalLM(config).eval()
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert missing == ["lm_head.weight"] and not unexpected
    model.tie_weights()
    return model


@pytest.fixture(scope="module")
def decoder(embedded_model_path: Path) -> Decoder:
    return load_model(open_checkpoint(embedded_model_path), ReferenceDevice())


@pytest.fixture(scope="module")
def oracle(embedded_model_path: Path) -> LlamaForCausalLM:
    return transformers_model(embedded_model_path)


@pytest.mark.model
def test_the_same_200_greedy_tokens(decoder: Decoder, oracle: LlamaForCausalLM) -> None:
    table = list(range(20))
    kv = decoder.allocate_kv(len(table))
    ids, start, new = PROMPT, 0, []
    while len(new) < NUM_TOKENS:
        logits = decoder.forward(ragged([Query(ids, start, table)]), kv)
        start += len(ids)
        ids = [int(logits.argmax())]
        new += ids
    # One pass suffices: if each token is the oracle's choice after those before it, then, token by token,
    # the oracle generating by itself would have gone the same way.
    with torch.inference_mode():
        logits = oracle(torch.tensor([PROMPT + new[:-1]])).logits[0]
    assert new == logits[len(PROMPT) - 1 :].argmax(-1).tolist()


@pytest.mark.model
def test_the_same_pooled_states(decoder: Decoder, oracle: LlamaForCausalLM) -> None:
    """Through the engine, in chunks."""
    engine = Engine(EngineConfig(num_blocks=8, vocab_size=49152, max_model_tokens=64, max_chunk_tokens=9))
    requests: dict[RequestId, Pooling] = {}
    for pooling in POOLINGS:
        engine.open(SessionId(pooling), 0.0)
        requests[engine.embed(SessionId(pooling), [TokenId(i) for i in PROMPT], pooling, 0.0)] = pooling
    executor, pooled = ModelExecutor(decoder, 8), {}
    while (batch := engine.schedule(0.0)) is not None:
        for delta in engine.commit(batch, executor.execute(batch), 0.0):
            assert delta.error is None and delta.pooled is not None
            pooled[requests[delta.request]] = torch.from_numpy(delta.pooled)
    with torch.inference_mode():
        states = oracle.model(torch.tensor([PROMPT])).last_hidden_state[0]
    naive = {"first": states[0], "last": states[-1], "mean": states.sum(0) / len(states)}
    for pooling in POOLINGS:
        torch.testing.assert_close(pooled[pooling], naive[pooling], atol=1e-4 * float(states.abs().max()), rtol=0)
