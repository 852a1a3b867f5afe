"""Checkpoint -> decoder: every expected tensor is there, has its shape, and is used exactly once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tenuto.checkpoint import Checkpoint, ModelConfig
from tenuto.device.protocol import AttentionSpec, Device
from tenuto.errors import ModelFileError
from tenuto.model.decoder import Decoder
from tenuto.model.layers import Attention, DecoderLayer, GatedMLP, Norm, TokenEmbedding

_MAX_NAMED = 5


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Neutral name -> shape of every weight a model of this config has."""
    hidden, inner = config.hidden_size, config.intermediate_size
    heads, kv_heads = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (config.vocab_size, hidden), "norm.weight": (hidden,)}
    if not config.tie_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    layer: dict[str, tuple[int, ...]] = {
        "attention_norm.weight": (hidden,),
        "attention.q.weight": (heads, hidden),
        "attention.k.weight": (kv_heads, hidden),
        "attention.v.weight": (kv_heads, hidden),
        "attention.o.weight": (hidden, heads),
        "mlp_norm.weight": (hidden,),
        "mlp.gate.weight": (inner, hidden),
        "mlp.up.weight": (inner, hidden),
        "mlp.down.weight": (hidden, inner),
    }
    for index in range(config.num_layers):
        shapes |= {f"layers.{index}.{name}": shape for name, shape in layer.items()}
    return shapes


class _Weights:
    """Hands out each tensor once; all names and shapes are checked before the first is read."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        path, stored = checkpoint.path, set(checkpoint.tensor_names())
        expected = expected_shapes(checkpoint.config)
        if missing := [name for name in expected if name not in stored]:
            raise ModelFileError(f"{path}: {len(missing)} tensors are missing: {_some(missing)}")
        if unexpected := sorted(stored - set(expected)):
            raise ModelFileError(f"{path}: {len(unexpected)} tensors do not belong to the model: {_some(unexpected)}")
        for name, shape in expected.items():
            if checkpoint.shape(name) != shape:
                found = list(checkpoint.shape(name))
                raise ModelFileError(f"{path}: tensor {name} has shape {found}, the config asks for {list(shape)}")
        self._left = set(expected)

    def take(self, name: str) -> npt.NDArray[np.float32]:
        self._left.remove(name)
        return self._checkpoint.read(name)

    def finish(self) -> None:
        assert not self._left, f"never used: {_some(sorted(self._left))}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MAX_NAMED]) + (", ..." if len(names) > _MAX_NAMED else "")


def load_model(checkpoint: Checkpoint, device: Device) -> Decoder:
    """Read all weights onto a device.

    Raises:
        ModelFileError: a tensor is missing, unexpected, of another shape or unreadable; names file and tensor.
    """
    config = checkpoint.config
    weights = _Weights(checkpoint)
    table = weights.take("embed.weight")
    head = device.prepare_linear([table if config.tie_embeddings else weights.take("lm_head.weight")])
    layers = tuple(_load_layer(weights, f"layers.{i}.", config, device) for i in range(config.num_layers))
    norm = Norm(device, device.upload(weights.take("norm.weight")), config.rms_norm_eps)
    weights.finish()
    return Decoder(
        config=config,
        device=device,
        embedding=TokenEmbedding(device, device.upload(table)),
        layers=layers,
        norm=norm,
        head=head,
        rotary=device.rotary_table(config.head_dim, config.rope_theta, config.max_model_tokens),
    )


def _load_layer(weights: _Weights, prefix: str, config: ModelConfig, device: Device) -> DecoderLayer:
    def norm(name: str) -> Norm:
        return Norm(device, device.upload(weights.take(f"{prefix}{name}.weight")), config.rms_norm_eps)

    def take(*names: str) -> list[npt.NDArray[np.float32]]:
        return [weights.take(f"{prefix}{name}.weight") for name in names]

    return DecoderLayer(
        attention_norm=norm("attention_norm"),
        attention=Attention(
            device,
            AttentionSpec(config.num_heads, config.num_kv_heads, config.head_dim),
            qkv=device.prepare_linear(take("attention.q", "attention.k", "attention.v")),
            output=device.prepare_linear(take("attention.o")),
        ),
        mlp_norm=norm("mlp_norm"),
        mlp=GatedMLP(
            device,
            gate_up=device.prepare_linear(take("mlp.gate", "mlp.up")),
            down=device.prepare_linear(take("mlp.down")),
        ),
    )
