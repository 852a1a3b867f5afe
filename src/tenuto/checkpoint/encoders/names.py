"""What the formats call the tensors of an encoder, by family.

Neutral names: `embed.weight`, `positions.weight`, `token_types.weight`, `embed_norm.{weight,bias}`; per layer i (in
`layers.{i}.`) `attention.{q,k,v,o}`, `attention_norm`, `mlp.up`, `mlp.down`, `mlp_norm`, each with `.weight` and
`.bias`; of a classifier over the first token `head.dense` and `head.out`. Matrices are [out, in] as in torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tenuto.checkpoint.families.family import neutral_name

_TABLES = {
    "embeddings.word_embeddings": "embed",
    "embeddings.position_embeddings": "positions",
    "embeddings.token_type_embeddings": "token_types",
}
_NORMS = {
    "embeddings.LayerNorm": "embed_norm",
    "encoder.layer.{i}.attention.output.LayerNorm": "layers.{i}.attention_norm",
    "encoder.layer.{i}.output.LayerNorm": "layers.{i}.mlp_norm",
}
_LINEARS = {
    "encoder.layer.{i}.attention.self.query": "layers.{i}.attention.q",
    "encoder.layer.{i}.attention.self.key": "layers.{i}.attention.k",
    "encoder.layer.{i}.attention.self.value": "layers.{i}.attention.v",
    "encoder.layer.{i}.attention.output.dense": "layers.{i}.attention.o",
    "encoder.layer.{i}.intermediate.dense": "layers.{i}.mlp.up",
    "encoder.layer.{i}.output.dense": "layers.{i}.mlp.down",
}
_GGUF = {
    "token_embd_norm": "embed_norm",
    "blk.{i}.attn_q": "layers.{i}.attention.q",
    "blk.{i}.attn_k": "layers.{i}.attention.k",
    "blk.{i}.attn_v": "layers.{i}.attention.v",
    "blk.{i}.attn_output": "layers.{i}.attention.o",
    "blk.{i}.attn_output_norm": "layers.{i}.attention_norm",
    "blk.{i}.ffn_up": "layers.{i}.mlp.up",
    "blk.{i}.ffn_down": "layers.{i}.mlp.down",
    "blk.{i}.layer_output_norm": "layers.{i}.mlp_norm",
    "cls": "head.dense",
    "cls.output": "head.out",
}


def _with_biases(names: Mapping[str, str]) -> dict[str, str]:
    return {f"{theirs}.{part}": f"{ours}.{part}" for theirs, ours in names.items() for part in ("weight", "bias")}


def _hf_names(head: Mapping[str, str]) -> dict[str, str]:
    # TensorFlow's words for the parts of a norm, which the oldest checkpoints kept.
    old = {
        f"{theirs}.{old}": f"{ours}.{new}"
        for theirs, ours in _NORMS.items()
        for old, new in (("gamma", "weight"), ("beta", "bias"))
    }
    tables = {f"{theirs}.weight": f"{ours}.weight" for theirs, ours in _TABLES.items()}
    return tables | _with_biases({**_NORMS, **_LINEARS, **head}) | old


GGUF_NAMES = _with_biases(_GGUF) | {
    "token_embd.weight": "embed.weight",
    "position_embd.weight": "positions.weight",
    "token_types.weight": "token_types.weight",
}


@dataclass(frozen=True, kw_only=True)
class EncoderFamily:
    """One family of encoders: they differ in names and in where positions begin."""

    name: str
    hf_model_types: tuple[str, ...]
    hf_prefix: str  # models with a head write it before the encoder's names
    hf_names: Mapping[str, str]
    hf_ignored: tuple[str, ...]  # how names begin that a model without a classifier does not need
    positions_after_padding: bool  # the first token's position is the padding id + 1

    def neutral_hf(self, name: str) -> str | None:
        return neutral_name(self.hf_names, name.removeprefix(self.hf_prefix))

    def ignores_hf(self, name: str) -> bool:
        """Buffers, and heads for other tasks: none of them is part of a hidden state or a score."""
        return name.removeprefix(self.hf_prefix).startswith(self.hf_ignored)


_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")

BERT = EncoderFamily(
    name="bert",
    hf_model_types=("bert",),
    hf_prefix="bert.",
    hf_names=_hf_names({"pooler.dense": "head.dense", "classifier": "head.out"}),
    hf_ignored=(*_BUFFERS, "cls."),
    positions_after_padding=False,
)
XLM_ROBERTA = EncoderFamily(
    name="xlm-roberta",
    hf_model_types=("xlm-roberta", "roberta", "camembert"),
    hf_prefix="roberta.",
    hf_names=_hf_names({"classifier.dense": "head.dense", "classifier.out_proj": "head.out"}),
    hf_ignored=(*_BUFFERS, "lm_head.", "pooler."),
    positions_after_padding=True,
)
ENCODER_FAMILIES = (BERT, XLM_ROBERTA)
