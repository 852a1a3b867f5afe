"""Checkpoint -> encoder: every expected tensor is there, has its shape, and is used exactly once."""

from __future__ import annotations

from functools import partial

from tenuto.checkpoint.encoders import EncoderCheckpoint, EncoderConfig
from tenuto.device.protocol import Device
from tenuto.model.encoder import ClassifierHead, Encoder, EncoderEmbedding, EncoderLayer, LayerNorm
from tenuto.model.packed_cache import PackedCache
from tenuto.model.prepared import with_weights
from tenuto.model.weights import Weights


def expected_encoder_shapes(config: EncoderConfig) -> dict[str, tuple[int, ...]]:
    """Neutral name -> shape of every weight an encoder of this config has."""
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "embed.weight": (config.vocab_size, hidden),
        "positions.weight": (config.num_positions, hidden),
        "token_types.weight": (config.num_token_types, hidden),
        **_norm("embed_norm", hidden),
    }
    layer = {
        name: shape
        for part in ("q", "k", "v", "o")
        for name, shape in _linear(f"attention.{part}", hidden, hidden).items()
    }
    layer |= _norm("attention_norm", hidden) | _norm("mlp_norm", hidden)
    layer |= _linear("mlp.up", inner, hidden) | _linear("mlp.down", hidden, inner)
    for index in range(config.num_layers):
        shapes |= {f"layers.{index}.{name}": shape for name, shape in layer.items()}
    if config.num_labels is not None:
        shapes |= _linear("head.dense", hidden, hidden) | _linear("head.out", config.num_labels, hidden)
    return shapes


def _linear(name: str, out: int, into: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def _norm(name: str, size: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (size,), f"{name}.bias": (size,)}


def load_encoder(checkpoint: EncoderCheckpoint, device: Device, cache: PackedCache | None = None) -> Encoder:
    """Bring all weights onto a device: read them, or find them prepared in a cache.

    Raises:
        ModelFileError: a tensor is missing, unexpected, of another shape or unreadable; names file and tensor.
    """
    expected, assemble = expected_encoder_shapes(checkpoint.config), partial(_assemble, checkpoint.config, device)
    return with_weights(checkpoint, expected, device, cache, assemble)


def _assemble(config: EncoderConfig, device: Device, weights: Weights) -> Encoder:
    return Encoder(
        config=config,
        device=device,
        embedding=EncoderEmbedding(
            device,
            words=weights.table("embed.weight"),
            positions=weights.table("positions.weight"),
            types=weights.table("token_types.weight"),
            norm=_load_norm(weights, "embed_norm", config, device),
        ),
        layers=tuple(_load_layer(weights, f"layers.{index}.", config, device) for index in range(config.num_layers)),
        head=None
        if config.num_labels is None
        else ClassifierHead(device, weights.linear("head.dense", exact=True), weights.linear("head.out", exact=True)),
    )


def _load_norm(weights: Weights, name: str, config: EncoderConfig, device: Device) -> LayerNorm:
    weight, bias = (weights.vector(f"{name}.{part}") for part in ("weight", "bias"))
    return LayerNorm(device, weight, bias, config.layer_norm_eps)


def _load_layer(weights: Weights, prefix: str, config: EncoderConfig, device: Device) -> EncoderLayer:
    return EncoderLayer(
        device,
        num_heads=config.num_heads,
        qkv=weights.linear(*(f"{prefix}attention.{part}" for part in ("q", "k", "v")), exact=True),
        output=weights.linear(f"{prefix}attention.o"),
        attention_norm=_load_norm(weights, f"{prefix}attention_norm", config, device),
        up=weights.linear(f"{prefix}mlp.up"),
        down=weights.linear(f"{prefix}mlp.down"),
        activation=config.activation,
        mlp_norm=_load_norm(weights, f"{prefix}mlp_norm", config, device),
    )
