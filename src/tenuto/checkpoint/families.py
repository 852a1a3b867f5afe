"""Which tensors a family has, and what each format calls them. A new family is a new table here.

Neutral names: `embed.weight`, `norm.weight`, `lm_head.weight`, and per layer i
`layers.{i}.attention_norm.weight`, `layers.{i}.attention.{q,k,v,o}.weight`, `layers.{i}.mlp_norm.weight`,
`layers.{i}.mlp.{gate,up,down}.weight`. Matrices are [out, in] as in torch; rotary pairs are (j, j + head_dim / 2).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_GGUF_LLAMA = {
    "token_embd.weight": "embed.weight",
    "output_norm.weight": "norm.weight",
    "output.weight": "lm_head.weight",
    "blk.{i}.attn_norm.weight": "layers.{i}.attention_norm.weight",
    "blk.{i}.attn_q.weight": "layers.{i}.attention.q.weight",
    "blk.{i}.attn_k.weight": "layers.{i}.attention.k.weight",
    "blk.{i}.attn_v.weight": "layers.{i}.attention.v.weight",
    "blk.{i}.attn_output.weight": "layers.{i}.attention.o.weight",
    "blk.{i}.ffn_norm.weight": "layers.{i}.mlp_norm.weight",
    "blk.{i}.ffn_gate.weight": "layers.{i}.mlp.gate.weight",
    "blk.{i}.ffn_up.weight": "layers.{i}.mlp.up.weight",
    "blk.{i}.ffn_down.weight": "layers.{i}.mlp.down.weight",
}

_HF_LLAMA = {
    "model.embed_tokens.weight": "embed.weight",
    "model.norm.weight": "norm.weight",
    "lm_head.weight": "lm_head.weight",
    "model.layers.{i}.input_layernorm.weight": "layers.{i}.attention_norm.weight",
    "model.layers.{i}.self_attn.q_proj.weight": "layers.{i}.attention.q.weight",
    "model.layers.{i}.self_attn.k_proj.weight": "layers.{i}.attention.k.weight",
    "model.layers.{i}.self_attn.v_proj.weight": "layers.{i}.attention.v.weight",
    "model.layers.{i}.self_attn.o_proj.weight": "layers.{i}.attention.o.weight",
    "model.layers.{i}.post_attention_layernorm.weight": "layers.{i}.mlp_norm.weight",
    "model.layers.{i}.mlp.gate_proj.weight": "layers.{i}.mlp.gate.weight",
    "model.layers.{i}.mlp.up_proj.weight": "layers.{i}.mlp.up.weight",
    "model.layers.{i}.mlp.down_proj.weight": "layers.{i}.mlp.down.weight",
}

# Buffers that older exporters saved beside the weights; their values follow from the config.
_HF_LLAMA_IGNORED = frozenset({"model.layers.{i}.self_attn.rotary_emb.inv_freq"})


@dataclass(frozen=True, kw_only=True)
class Family:
    """One model family: its names in both formats and what its files do differently."""

    name: str
    gguf_architecture: str
    hf_model_type: str
    gguf_names: Mapping[str, str]  # GGUF name -> neutral name; `{i}` is the layer
    hf_names: Mapping[str, str]
    hf_ignored: frozenset[str] = field(default_factory=frozenset)
    gguf_interleaved_rope: bool = False  # GGUF stores Q and K rows as pairs (2j, 2j + 1): undone on reading


LLAMA = Family(
    name="llama",
    gguf_architecture="llama",
    hf_model_type="llama",
    gguf_names=_GGUF_LLAMA,
    hf_names=_HF_LLAMA,
    hf_ignored=_HF_LLAMA_IGNORED,
    gguf_interleaved_rope=True,
)

FAMILIES = (LLAMA,)

_LAYER = re.compile(r"(?<=\.)(0|[1-9][0-9]{0,5})(?=\.)")


def as_pattern(name: str) -> tuple[str, str | None]:
    """Split a tensor name into its pattern (first number -> `{i}`) and that number."""
    found = _LAYER.search(name)
    if found is None:
        return name, None
    return f"{name[: found.start()]}{{i}}{name[found.end() :]}", found.group()


def neutral_name(names: Mapping[str, str], name: str) -> str | None:
    """The neutral name of a file's tensor, or None if the family has no such tensor."""
    pattern, layer = as_pattern(name)
    neutral = names.get(pattern)
    if neutral is None or layer is None:
        return neutral
    return neutral.replace("{i}", layer)
