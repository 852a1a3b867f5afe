"""What a model file says about its model, in one neutral form whatever the format and family."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from tenuto.checkpoint.rope import DividedFrequencies, Llama3Scaling, RopeConfig, YarnScaling
from tenuto.checkpoint.sentencepiece_format import SentencePieceModel
from tenuto.errors import ModelFileError

Activation: TypeAlias = Literal["silu", "gelu_tanh"]

# More than any model has; a file that claims more would make us build tables of its claims.
MAX_LAYERS = 1024
MAX_EXPERTS = 1024
MAX_HEADS = 4096
MAX_HEAD_DIM = 4096
_MAX_ALL_EXPERTS = 100_000  # of all layers together


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """What sets one layer apart from the others."""

    window: int | None = None  # a token sees itself and the `window - 1` tokens before it; None: all before it
    rope: int | None = 0  # which of the model's rotary tables; None: no positions
    sparse: bool = False  # the MLP is a mixture of experts


@dataclass(frozen=True, kw_only=True)
class ExpertsConfig:
    """A mixture of experts: a router picks a few small MLPs for each token."""

    num_experts: int
    num_active: int  # experts a token goes to
    intermediate_size: int  # of one expert
    normalise: bool  # the weights of the chosen ones sum to 1


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes and constants of a decoder. Sizes are in elements, lengths in tokens."""

    family: str  # "llama", "qwen3", ...
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int  # divides num_heads
    head_dim: int  # even; num_heads * head_dim need not be hidden_size
    rms_norm_eps: float
    ropes: tuple[RopeConfig, ...]
    layers: tuple[LayerConfig, ...]  # num_layers of them
    max_model_tokens: int  # the context the model was made for
    tie_embeddings: bool  # the file has no output head of its own: logits come from the embedding
    activation: Activation = "silu"  # of the gate of the MLPs
    attention_scale: float | None = None  # of scores; None: 1 / sqrt(head_dim)
    embedding_scale: float = 1.0
    qkv_bias: bool = False
    output_bias: bool = False  # of the attention's output matrix
    mlp_bias: bool = False
    qk_norm: bool = False  # RMS norm of every head of Q and K before it is rotated
    post_norms: bool = False  # the outputs of attention and MLP are normed before they join the residual
    experts: ExpertsConfig | None = None  # of the sparse layers
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()

    def check(self, path: Path) -> ModelConfig:
        """Return self, or raise ModelFileError if the numbers cannot belong to a model."""
        problems = [*self._size_problems(), *self._rope_problems(), *self._expert_problems()]
        if problems:
            raise ModelFileError.of(path, problems)
        check_ids(path, self.vocab_size, {"bos": self.bos_id, **{f"eos[{i}]": e for i, e in enumerate(self.eos_ids)}})
        return self

    def _size_problems(self) -> list[str]:
        sizes = (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_layers",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "max_model_tokens",
        )
        problems = [
            f"{name} is {getattr(self, name)}, which no model has"
            for name in sizes
            if not 0 < getattr(self, name) < 2**31
        ]
        if problems:
            return problems
        if self.num_layers > MAX_LAYERS:
            problems.append(f"num_layers is {self.num_layers}, more than {MAX_LAYERS}")
        if self.num_heads % self.num_kv_heads:
            problems.append(f"{self.num_heads} attention heads cannot share {self.num_kv_heads} KV heads evenly")
        for name, limit in (("num_heads", MAX_HEADS), ("head_dim", MAX_HEAD_DIM)):
            if getattr(self, name) > limit:
                problems.append(f"{name} is {getattr(self, name)}, more than {limit}")
        if self.head_dim % 2:
            problems.append(f"head_dim is {self.head_dim}; rotary positions need an even number")
        for name in ("rms_norm_eps", "attention_scale", "embedding_scale"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                problems.append(f"{name} is {value}; it must be positive")
        if len(self.layers) != self.num_layers:
            problems.append(f"{len(self.layers)} layers are described, num_layers is {self.num_layers}")
        problems += [
            f"layer {index}: a window of {layer.window} tokens sees nothing"
            for index, layer in enumerate(self.layers)
            if layer.window is not None and layer.window < 1
        ]
        return problems

    def _rope_problems(self) -> list[str]:
        problems = []
        for rope in self.ropes:
            if not (rope.theta > 0 and math.isfinite(rope.theta)):
                problems.append(f"rope_theta is {rope.theta}; it must be positive")
            match rope.scaling:
                case None:
                    pass
                case DividedFrequencies(divisors=divisors):
                    if len(divisors) != self.head_dim // 2:
                        problems.append(f"{len(divisors)} rotary divisors do not fit head_dim {self.head_dim}")
                    if not all(d > 0 and math.isfinite(d) for d in divisors):
                        problems.append("a rotary divisor is not a positive number")
                case scaling:
                    numbers = {name: value for name, value in vars(scaling).items() if type(value) in (int, float)}
                    problems += [
                        f"RoPE scaling: {name} is {value}; it must be positive"
                        for name, value in numbers.items()
                        if not (value > 0 and math.isfinite(value))
                    ]
                    if isinstance(scaling, Llama3Scaling) and scaling.high_freq_factor <= scaling.low_freq_factor:
                        problems.append("RoPE scaling: high_freq_factor must exceed low_freq_factor")
                    if isinstance(scaling, YarnScaling) and rope.theta <= 1:
                        problems.append(f"rope_theta is {rope.theta}; YaRN needs more than 1")
        return problems

    def _expert_problems(self) -> list[str]:
        sparse = any(layer.sparse for layer in self.layers)
        if not sparse:
            return []
        assert self.experts is not None, "sparse layers, but no experts"
        experts = self.experts
        if not 0 < experts.num_experts <= MAX_EXPERTS:
            return [f"the number of experts is {experts.num_experts}; 1 to {MAX_EXPERTS} exist"]
        if sum(layer.sparse for layer in self.layers) * experts.num_experts > _MAX_ALL_EXPERTS:
            return [f"{experts.num_experts} experts in each of {self.num_layers} layers are more than any model has"]
        if not 0 < experts.num_active <= experts.num_experts:
            return [f"{experts.num_active} of {experts.num_experts} experts cannot be active"]
        if not 0 < experts.intermediate_size < 2**31:
            return [f"the experts' intermediate size is {experts.intermediate_size}, which no model has"]
        return []


def check_ids(path: Path, vocab_size: int, ids: dict[str, int | None]) -> None:
    """Raise ModelFileError for a special token id outside the vocabulary."""
    for name, value in ids.items():
        if value is not None and not 0 <= value < vocab_size:
            raise ModelFileError(f"{path}: {name} token id {value} lies outside the vocabulary of {vocab_size}")


@dataclass(frozen=True, kw_only=True)
class GGUFTokenizer:
    """The tokenizer as a GGUF file stores it; ids are list positions."""

    kind: str  # tokenizer.ggml.model: "gpt2" (byte-level BPE), "llama" (SentencePiece), "t5" (Unigram), "bert"
    pre: str  # name of the pre-tokenizer, "default" if the file names none
    tokens: list[str]
    token_types: list[int]  # 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
    merges: list[str]  # "left right"; empty for "llama"
    scores: list[float]  # of "llama" and "t5"; empty for "gpt2"
    add_space_prefix: bool
    remove_extra_whitespaces: bool = False
    charsmap: bytes = b""  # compiled normalisation rules of "t5"
    path: Path | None = None  # of the file, for messages


@dataclass(frozen=True, kw_only=True)
class SentencePieceFile:
    """A tokenizer.model, and what the files beside it say of it."""

    path: Path
    model: SentencePieceModel
    prefix: Literal["first", "sections"]  # a space goes before the text, or before each part between control tokens
    added: dict[int, tuple[str, bool]]  # tokens beyond the model's own, by id: text, and whether special


@dataclass(frozen=True, kw_only=True)
class TokenizerFiles:
    """What `text` needs to build a tokenizer: one of `json_path`, `sentencepiece` and `gguf` is given."""

    json_path: Path | None = None  # tokenizer.json of a Hugging Face directory
    sentencepiece: SentencePieceFile | None = None  # its tokenizer.model, where it has no tokenizer.json
    gguf: GGUFTokenizer | None = None
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()  # union over all files that name one, ascending
    add_bos: bool = False
    chat_template: str | None = None  # Jinja source
    frame_ids: tuple[int, int] | None = None  # of an encoder in GGUF: what begins and what ends a text
    end_id: int | None = None  # of a decoder in GGUF that embeds: what ends a text
