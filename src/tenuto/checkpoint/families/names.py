"""The tensor names that most families share, in both formats, and the few that some add."""

from __future__ import annotations

from collections.abc import Mapping

_LAYER = "layers.{i}."

GGUF_NAMES = {
    "token_embd.weight": "embed.weight",
    "output_norm.weight": "norm.weight",
    "output.weight": "lm_head.weight",
    **{
        f"blk.{{i}}.{theirs}.weight": f"{_LAYER}{ours}.weight"
        for theirs, ours in {
            "attn_norm": "attention_norm",
            "attn_q": "attention.q",
            "attn_k": "attention.k",
            "attn_v": "attention.v",
            "attn_output": "attention.o",
            "ffn_norm": "mlp_norm",
            "ffn_gate": "mlp.gate",
            "ffn_up": "mlp.up",
            "ffn_down": "mlp.down",
        }.items()
    },
}

HF_NAMES = {
    "model.embed_tokens.weight": "embed.weight",
    "model.norm.weight": "norm.weight",
    "lm_head.weight": "lm_head.weight",
    **{
        f"model.layers.{{i}}.{theirs}.weight": f"{_LAYER}{ours}.weight"
        for theirs, ours in {
            "input_layernorm": "attention_norm",
            "self_attn.q_proj": "attention.q",
            "self_attn.k_proj": "attention.k",
            "self_attn.v_proj": "attention.v",
            "self_attn.o_proj": "attention.o",
            "post_attention_layernorm": "mlp_norm",
            "mlp.gate_proj": "mlp.gate",
            "mlp.up_proj": "mlp.up",
            "mlp.down_proj": "mlp.down",
        }.items()
    },
}

GGUF_QK_NORMS = {
    "blk.{i}.attn_q_norm.weight": "layers.{i}.attention.q_norm.weight",
    "blk.{i}.attn_k_norm.weight": "layers.{i}.attention.k_norm.weight",
}

HF_QK_NORMS = {
    "model.layers.{i}.self_attn.q_norm.weight": "layers.{i}.attention.q_norm.weight",
    "model.layers.{i}.self_attn.k_norm.weight": "layers.{i}.attention.k_norm.weight",
}

# Buffers that older exporters saved beside the weights; their values follow from the config.
HF_ROTARY_BUFFERS = frozenset({"model.layers.{i}.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"})


def biases(names: Mapping[str, str], *matrices: str) -> dict[str, str]:
    """The same names for the biases of some matrices, e.g. "attention.q"."""
    return {
        theirs.removesuffix("weight") + "bias": ours.removesuffix("weight") + "bias"
        for theirs, ours in names.items()
        if ours.startswith(_LAYER) and ours.removeprefix(_LAYER).removesuffix(".weight") in matrices
    }


QKV = ("attention.q", "attention.k", "attention.v")
ATTENTION = (*QKV, "attention.o")
MLP = ("mlp.gate", "mlp.up", "mlp.down")
