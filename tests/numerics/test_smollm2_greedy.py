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
from tenuto.model import load_model

NUM_TOKENS = 200
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


@pytest.mark.model
def test_the_same_200_greedy_tokens(embedded_model_path: Path) -> None:
    decoder = load_model(open_checkpoint(embedded_model_path), ReferenceDevice())
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
        oracle = transformers_model(embedded_model_path)(torch.tensor([PROMPT + new[:-1]])).logits[0]
    assert new == oracle[len(PROMPT) - 1 :].argmax(-1).tolist()
