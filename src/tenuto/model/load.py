"""Checkpoint -> decoder: every expected tensor is there, has its shape, and is used exactly once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from torch import Tensor

from tenuto.checkpoint import Checkpoint, LayerConfig, ModelConfig
from tenuto.device.protocol import AttentionSpec, Device, Expert, HeadTransform, LinearWeight, Mixture
from tenuto.errors import ModelFileError
from tenuto.model.decoder import Decoder
from tenuto.model.layers import Attention, DecoderLayer, GatedMLP, MixtureOfExperts, Norm, TokenEmbedding
from tenuto.model.rotary import inverse_frequencies

_MAX_NAMED = 5


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


class _Weights:
    """Hands out each tensor once; all names and shapes are checked before the first is read."""

    def __init__(self, checkpoint: Checkpoint, device: Device) -> None:
        self._checkpoint = checkpoint
        self._device = device
        expected = expected_shapes(checkpoint.config)
        if problems := tensor_problems(checkpoint, expected):
            raise ModelFileError.of(checkpoint.path, problems)
        self._left = set(expected)

    def take(self, name: str) -> npt.NDArray[np.float32]:
        self._left.remove(name)
        return self._checkpoint.read(name)

    def has(self, name: str) -> bool:
        return name in self._left

    def norm(self, name: str, eps: float) -> Norm:
        return Norm(self._device, self._device.upload_norm(self.take(f"{name}.weight")), eps)

    def linear(self, *names: str) -> LinearWeight:
        """One matrix, or several stacked, with their biases if the model has them."""
        matrices = [self.take(f"{name}.weight") for name in names]
        biases = [self.take(f"{name}.bias") for name in names if self.has(f"{name}.bias")]
        return self._device.prepare_linear(matrices, biases)

    def finish(self) -> None:
        assert not self._left, f"never used: {_some(sorted(self._left))}"


def tensor_problems(checkpoint: Checkpoint, expected: Mapping[str, tuple[int, ...]]) -> list[str]:
    """What is missing, left over or of another shape; nothing is read."""
    stored, problems = set(checkpoint.tensor_names()), []
    if missing := [name for name in expected if name not in stored]:
        problems.append(f"{len(missing)} tensors are missing: {_some(missing)}")
    if unexpected := sorted(stored - set(expected)):
        problems.append(f"{len(unexpected)} tensors do not belong to the model: {_some(unexpected)}")
    for name, shape in expected.items():
        if name in stored and (found := checkpoint.shape(name)) != shape:
            problems.append(f"tensor {name} has shape {list(found)}, the config asks for {list(shape)}")
    return problems


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MAX_NAMED]) + (", ..." if len(names) > _MAX_NAMED else "")


def load_model(checkpoint: Checkpoint, device: Device) -> Decoder:
    """Read all weights onto a device.

    Raises:
        ModelFileError: a tensor is missing, unexpected, of another shape or unreadable; names file and tensor.
    """
    config = checkpoint.config
    weights = _Weights(checkpoint, device)
    table = weights.take("embed.weight")
    head = device.prepare_linear([table if config.tie_embeddings else weights.take("lm_head.weight")])
    layers = tuple(_load_layer(weights, index, config, device) for index in range(config.num_layers))
    norm = weights.norm("norm", config.rms_norm_eps)
    weights.finish()
    return Decoder(
        config=config,
        device=device,
        embedding=TokenEmbedding(device, device.upload(table), config.embedding_scale),
        layers=layers,
        norm=norm,
        head=head,
        rotary=tuple(
            device.rotary_table(*inverse_frequencies(rope, config.head_dim), config.max_model_tokens)
            for rope in config.ropes
        ),
    )


def _load_layer(weights: _Weights, index: int, config: ModelConfig, device: Device) -> DecoderLayer:
    prefix, eps = f"layers.{index}.", config.rms_norm_eps
    sparse = config.layers[index].sparse
    return DecoderLayer(
        attention_norm=weights.norm(f"{prefix}attention_norm", eps),
        attention=_load_attention(weights, f"{prefix}attention.", config, config.layers[index], device),
        mlp_norm=weights.norm(f"{prefix}mlp_norm", eps),
        mlp=_load_mixture(weights, prefix, config, device) if sparse else _load_mlp(weights, prefix, config, device),
        attention_post_norm=weights.norm(f"{prefix}attention_post_norm", eps) if config.post_norms else None,
        mlp_post_norm=weights.norm(f"{prefix}mlp_post_norm", eps) if config.post_norms else None,
    )


def _load_attention(
    weights: _Weights, prefix: str, config: ModelConfig, layer: LayerConfig, device: Device
) -> Attention:
    def head_norm(name: str) -> Tensor | None:
        return device.upload_norm(weights.take(f"{prefix}{name}.weight")) if config.qk_norm else None

    return Attention(
        device,
        attention_spec(config, layer),
        HeadTransform(layer.rope, head_norm("q_norm"), head_norm("k_norm"), config.rms_norm_eps),
        qkv=weights.linear(f"{prefix}q", f"{prefix}k", f"{prefix}v"),
        output=weights.linear(f"{prefix}o"),
    )


def attention_spec(config: ModelConfig, layer: LayerConfig) -> AttentionSpec:
    """What a layer keeps in the KV pool."""
    return AttentionSpec(config.num_heads, config.num_kv_heads, config.head_dim, layer.window, config.attention_scale)


def _load_mlp(weights: _Weights, prefix: str, config: ModelConfig, device: Device) -> GatedMLP:
    return GatedMLP(
        device,
        gate_up=weights.linear(f"{prefix}mlp.gate", f"{prefix}mlp.up"),
        down=weights.linear(f"{prefix}mlp.down"),
        activation=config.activation,
    )


def _load_mixture(weights: _Weights, prefix: str, config: ModelConfig, device: Device) -> MixtureOfExperts:
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
            router=weights.linear(f"{prefix}mlp.router"),
            experts=experts,
            num_active=config.experts.num_active,
            normalise=config.experts.normalise,
            activation=config.activation,
        ),
    )
