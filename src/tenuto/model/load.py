"""Checkpoint -> decoder: every expected tensor is there, has its shape, and is used exactly once."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from tenuto.checkpoint import Checkpoint, LayerConfig, ModelConfig
from tenuto.device.protocol import AttentionSpec, Device, Expert, HeadTransform, Mixture
from tenuto.model.decoder import Decoder
from tenuto.model.layers import Attention, DecoderLayer, GatedMLP, MixtureOfExperts, Norm, TokenEmbedding
from tenuto.model.packed_cache import PackedCache
from tenuto.model.prepared import with_weights
from tenuto.model.rotary import inverse_frequencies
from tenuto.model.weights import Weights


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Neutral name -> shape of every weight a model of this config has."""
    hidden = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (config.vocab_size, hidden), "norm.weight": (hidden,)}
    if not config.tie_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    dense = _attention_shapes(config) | _mlp_shapes(config)
    for index, layer in enumerate(config.layers):
        parts = _attention_shapes(config) | _expert_shapes(config) if layer.sparse else dense
        shapes |= {f"layers.{index}.{name}": shape for name, shape in parts.items()}
    return shapes


def _attention_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Of one layer, its norms included."""
    hidden = config.hidden_size
    heads, kv_heads = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "attention_norm.weight": (hidden,),
        "attention.q.weight": (heads, hidden),
        "attention.k.weight": (kv_heads, hidden),
        "attention.v.weight": (kv_heads, hidden),
        "attention.o.weight": (hidden, heads),
        "mlp_norm.weight": (hidden,),
    }
    if config.qkv_bias:
        shapes |= {"attention.q.bias": (heads,), "attention.k.bias": (kv_heads,), "attention.v.bias": (kv_heads,)}
    if config.output_bias:
        shapes["attention.o.bias"] = (hidden,)
    if config.qk_norm:
        shapes |= {f"attention.{part}_norm.weight": (config.head_dim,) for part in ("q", "k")}
    if config.post_norms:
        shapes |= {"attention_post_norm.weight": (hidden,), "mlp_post_norm.weight": (hidden,)}
    return shapes


def _mlp_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "mlp.gate.weight": (inner, hidden),
        "mlp.up.weight": (inner, hidden),
        "mlp.down.weight": (hidden, inner),
    }
    if config.mlp_bias:
        shapes |= {"mlp.gate.bias": (inner,), "mlp.up.bias": (inner,), "mlp.down.bias": (hidden,)}
    return shapes


def _expert_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    assert config.experts is not None
    hidden, inner = config.hidden_size, config.experts.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {"mlp.router.weight": (config.experts.num_experts, hidden)}
    for index in range(config.experts.num_experts):
        expert = f"mlp.experts.{index}."
        shapes |= {f"{expert}{part}.weight": (inner, hidden) for part in ("gate", "up")}
        shapes[f"{expert}down.weight"] = (hidden, inner)
    return shapes


def load_model(checkpoint: Checkpoint, device: Device, cache: PackedCache | None = None) -> Decoder:
    """Bring all weights onto a device: read them, or find them prepared in a cache.

    Raises:
        ModelFileError: a tensor is missing, unexpected, of another shape or unreadable; names file and tensor.
    """
    expected, assemble = expected_shapes(checkpoint.config), partial(_assemble, checkpoint.config, device)
    return with_weights(checkpoint, expected, device, cache, assemble)


def _assemble(config: ModelConfig, device: Device, weights: Weights) -> Decoder:
    if config.tie_embeddings:
        table, head = weights.table_and_linear("embed")
    else:
        table, head = weights.table("embed.weight"), weights.linear("lm_head", exact=True)
    return Decoder(
        config=config,
        device=device,
        embedding=TokenEmbedding(device, table, config.embedding_scale),
        layers=tuple(_load_layer(weights, index, config, device) for index in range(config.num_layers)),
        norm=_load_norm(weights, "norm", config, device),
        head=head,
        rotary=tuple(
            device.rotary_table(*inverse_frequencies(rope, config.head_dim), config.max_model_tokens)
            for rope in config.ropes
        ),
    )


def _load_norm(weights: Weights, name: str, config: ModelConfig, device: Device) -> Norm:
    return Norm(device, weights.vector(f"{name}.weight"), config.rms_norm_eps)


def _load_layer(weights: Weights, index: int, config: ModelConfig, device: Device) -> DecoderLayer:
    prefix, sparse = f"layers.{index}.", config.layers[index].sparse

    def norm(name: str) -> Norm:
        return _load_norm(weights, f"{prefix}{name}", config, device)

    return DecoderLayer(
        attention_norm=norm("attention_norm"),
        attention=_load_attention(weights, f"{prefix}attention.", config, config.layers[index], device),
        mlp_norm=norm("mlp_norm"),
        mlp=_load_mixture(weights, prefix, config, device) if sparse else _load_mlp(weights, prefix, config, device),
        attention_post_norm=norm("attention_post_norm") if config.post_norms else None,
        mlp_post_norm=norm("mlp_post_norm") if config.post_norms else None,
    )


def _load_attention(
    weights: Weights, prefix: str, config: ModelConfig, layer: LayerConfig, device: Device
) -> Attention:
    def head_norm(name: str) -> Tensor | None:
        return weights.vector(f"{prefix}{name}.weight") if config.qk_norm else None

    return Attention(
        device,
        attention_spec(config, layer),
        HeadTransform(layer.rope, head_norm("q_norm"), head_norm("k_norm"), config.rms_norm_eps),
        qkv=weights.linear(f"{prefix}q", f"{prefix}k", f"{prefix}v", exact=True),
        output=weights.linear(f"{prefix}o"),
    )


def attention_spec(config: ModelConfig, layer: LayerConfig) -> AttentionSpec:
    """What a layer keeps in the KV pool."""
    return AttentionSpec(config.num_heads, config.num_kv_heads, config.head_dim, layer.window, config.attention_scale)


def _load_mlp(weights: Weights, prefix: str, config: ModelConfig, device: Device) -> GatedMLP:
    return GatedMLP(
        device,
        gate_up=weights.linear(f"{prefix}mlp.gate", f"{prefix}mlp.up"),
        down=weights.linear(f"{prefix}mlp.down"),
        activation=config.activation,
    )


def _load_mixture(weights: Weights, prefix: str, config: ModelConfig, device: Device) -> MixtureOfExperts:
    assert config.experts is not None
    experts = tuple(
        Expert(
            weights.linear(f"{prefix}mlp.experts.{index}.gate", f"{prefix}mlp.experts.{index}.up"),
            weights.linear(f"{prefix}mlp.experts.{index}.down"),
        )
        for index in range(config.experts.num_experts)
    )
    return MixtureOfExperts(
        device,
        Mixture(
            router=weights.linear(f"{prefix}mlp.router", exact=True),
            experts=experts,
            num_active=config.experts.num_active,
            normalise=config.experts.normalise,
            activation=config.activation,
        ),
    )
