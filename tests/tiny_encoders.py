"""Writes tiny BERT and XLM-RoBERTa models with random weights, in the very files that `transformers` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
    XLMRobertaModel,
)

WORDS = [
    "the",
    "cat",
    "dog",
    "sat",
    "ran",
    "on",
    "mat",
    "road",
    "stocks",
    "fell",
    "today",
    "where",
    "is",
    "##s",
    "?",
    ".",
]
CHARACTERS = list("猫狗坐在垫子路上跑今天股市下跌哪里")
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *CHARACTERS]

_SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 70,
}


def bert(**changes: Any) -> PreTrainedModel:
    return _random(BertModel(BertConfig(**_SIZES | changes)))


def bert_classifier(num_labels: int = 1, **changes: Any) -> PreTrainedModel:
    return _random(BertForSequenceClassification(BertConfig(num_labels=num_labels, **_SIZES | changes)))


def roberta(**changes: Any) -> PreTrainedModel:
    return _random(RobertaModel(RobertaConfig(type_vocab_size=1, **_SIZES | changes)))


def xlm_roberta(**changes: Any) -> PreTrainedModel:
    return _random(XLMRobertaModel(XLMRobertaConfig(type_vocab_size=1, **_SIZES | changes)))


def xlm_roberta_classifier(num_labels: int = 1, **changes: Any) -> PreTrainedModel:
    config = XLMRobertaConfig(num_labels=num_labels, type_vocab_size=1, **_SIZES | changes)
    return _random(XLMRobertaForSequenceClassification(config))


def _random(model: PreTrainedModel) -> PreTrainedModel:
    """Norms near one; matrices large enough that attention is far from uniform; biases that matter."""
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, values in model.named_parameters():
            values.normal_(generator=draw)
            if "LayerNorm.weight" in name:
                values.mul_(0.1).add_(1)
            elif values.dim() == 1:
                values.mul_(0.3)
            else:
                values.mul_(2 / values.shape[1] ** 0.5)
    return model.eval()


def word_tokenizer() -> Tokenizer:
    """WordPiece with BERT's frame, and a padding that must not matter."""
    made = Tokenizer(models.WordPiece({token: i for i, token in enumerate(VOCAB)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(VOCAB[:5])
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.enable_padding(length=32)
    made.enable_truncation(16)
    return made


def save_encoder(directory: Path, model: PreTrainedModel, tokenizer: Tokenizer | None = None) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(directory)
    (tokenizer or word_tokenizer()).save(str(directory / "tokenizer.json"))
    return directory


def save_layout(directory: Path, pooling: dict[str, Any], *modules: str, **files: dict[str, Any]) -> Path:
    """sentence-transformers' files beside a model.

    Args:
        modules: class names after the pooling, e.g. "Normalize".
        files: content of further files by name without `.json`.
    """
    prefix = "sentence_transformers.models."
    names = ["Transformer", "Pooling", *modules]
    folders = ["", *(f"{i}_{name}" for i, name in enumerate(names) if i)]
    listed = [
        {"idx": i, "name": str(i), "path": folder, "type": prefix + name}
        for i, (name, folder) in enumerate(zip(names, folders, strict=True))
    ]
    (directory / "modules.json").write_text(json.dumps(listed))
    (directory / "1_Pooling").mkdir(exist_ok=True)
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    for name, content in files.items():
        (directory / f"{name}.json").write_text(json.dumps(content))
    return directory


_GGUF_NAMES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
    "classifier.dense": "cls",
    "classifier.out_proj": "cls.output",
}


def _gguf_name(name: str) -> str | None:
    name = name.removeprefix("roberta.")
    stem, part = name.rsplit(".", 1)
    if stem.startswith("encoder.layer."):
        _, _, index, inner = stem.split(".", 3)
        return f"blk.{index}.{_GGUF_NAMES[inner]}.{part}"
    return f"{_GGUF_NAMES[stem]}.{part}" if stem in _GGUF_NAMES else None


def write_gguf_encoder(path: Path, model: PreTrainedModel, **metadata: Any) -> Path:
    """The file that the ggml project's converter would write, in F32: WordPiece for BERT, Unigram for XLM-RoBERTa.

    Args:
        metadata: keys after `bert.`, e.g. `pooling_type=1`.
    """
    config, is_bert = model.config, model.config.model_type == "bert"
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_eps(config.layer_norm_eps)
    writer.add_causal_attention(False)
    for key, value in metadata.items():
        writer.add_uint32(f"bert.{key}", value)
    if is_bert:
        tokens = [t if i < 5 else t.removeprefix("##") if t.startswith("##") else f"▁{t}" for i, t in enumerate(VOCAB)]
        writer.add_uint32("tokenizer.ggml.cls_token_id", 2)
        writer.add_uint32("tokenizer.ggml.seperator_token_id", 3)
    else:
        tokens = ["<s>", "<pad>", "</s>", "<unk>", *(f"▁{word}" for word in WORDS)]
        writer.add_token_scores([0.0] * 4 + [-float(i) for i in range(len(WORDS))])
    writer.add_tokenizer_model("bert" if is_bert else "t5")
    writer.add_token_list(tokens)
    writer.add_token_types([2 if t == "<unk>" else 3 if t.startswith(("[", "<")) else 1 for t in tokens])
    offset = 0 if is_bert else config.pad_token_id + 1
    for name, values in model.state_dict().items():
        if (theirs := _gguf_name(name)) is not None:
            writer.add_tensor(theirs, values.numpy()[offset if theirs.startswith("position") else 0 :])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
