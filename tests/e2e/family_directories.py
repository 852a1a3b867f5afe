"""Models nobody has seen before: a family's shape, random weights, a tokenizer trained here, turns in its manner."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from family_models import FAMILY_MODELS, FamilyModel, make

_CORPUS = (
    "The weather in Paris is sunny, and it will rain in Berlin tomorrow.",
    "北京今天天气晴，上海明天有雨。请问广州后天怎么样？",
    'To use a tool, write <tool_call>{"name": "weather", "arguments": {"city": "Oslo", "date": "today"}}</tool_call>',
    "def temperature(day: int) -> float:\n    return 0.5 * day + 3.14  # °C",
) * 20
_CHATML = """{%- if tools %}{{ '<|im_start|>system\nTools: ' ~ (tools | map(attribute='function') | list | tojson) }}
{{- '<|im_end|>\n' }}{% endif %}{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' ~ m.content }}
{%- for c in m.tool_calls or [] %}{{ '<tool_call>' ~ (c.function | tojson) ~ '</tool_call>' }}{% endfor %}
{{- '<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n' if add_generation_prompt }}"""
_HEADERS = """{{ bos_token }}{% for m in messages %}{{ '<|header|>' ~ m.role ~ '<|/header|>\n\n' ~ (m.content | trim) }}
{{- '<|eot|>' }}{% endfor %}{{ '<|header|>assistant<|/header|>\n\n' if add_generation_prompt }}"""
_STRICT = """{{ bos_token }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('user and assistant must alternate') }}{% endif %}
{{- ('[INST] ' ~ m.content ~ ' [/INST]') if m.role == 'user' else (' ' ~ m.content ~ eos_token) }}{% endfor %}"""
_MODEL_TURNS = """{{ bos_token }}{% for m in messages %}{% if m.role not in ('user', 'assistant') %}
{{- raise_exception('no such role: ' ~ m.role) }}{% endif %}
{{- '<start_of_turn>' ~ ('model' if m.role == 'assistant' else 'user') ~ '\n' ~ (m.content | trim) }}
{{- '<end_of_turn>\n' }}{% endfor %}{{ '<start_of_turn>model\n' if add_generation_prompt }}"""


@dataclass(frozen=True)
class Manner:
    """How a family's models write turns, and what kind of tokenizer they have."""

    template: str
    control: tuple[str, ...]  # the second ends turns
    sentencepiece: bool = False


_CHATML_MANNER = Manner(_CHATML, ("<|endoftext|>", "<|im_end|>", "<|im_start|>"))
MANNERS = {
    "llama3": Manner(_HEADERS, ("<|begin|>", "<|eot|>", "<|header|>", "<|/header|>")),
    "mistral-window": Manner(_STRICT, ("<s>", "</s>", "[INST]", "[/INST]"), sentencepiece=True),
    "qwen2-windows": _CHATML_MANNER,
    "qwen3": _CHATML_MANNER,
    "qwen3-moe": _CHATML_MANNER,
    "gemma3": Manner(_MODEL_TURNS, ("<bos>", "<end_of_turn>", "<start_of_turn>"), sentencepiece=True),
    "smollm3": _CHATML_MANNER,
}


def write_family_directory(name: str, directory: Path) -> Path:
    """A directory as a hub would give it."""
    manner = MANNERS[name]
    tokenizer = _sentencepiece(manner) if manner.sentencepiece else _byte_level(manner)
    size, (bos, eos) = tokenizer.get_vocab_size(), (tokenizer.token_to_id(text) for text in manner.control[:2])
    shape = FAMILY_MODELS[name]
    settings = shape.settings | {"vocab_size": size, "bos_token_id": bos, "eos_token_id": eos}
    settings["max_position_embeddings"] = 4096
    make(FamilyModel(shape.model_type, settings)).save_pretrained(directory)
    tokenizer.save(str(directory / "tokenizer.json"))
    described = {"bos_token": manner.control[0], "eos_token": manner.control[1], "chat_template": manner.template}
    (directory / "tokenizer_config.json").write_text(json.dumps(described), encoding="utf-8")
    return directory


def _byte_level(manner: Manner) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}{1,3}|[^\s\p{L}\p{N}]+|\s?\p{L}+|\s+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    return _trained(tokenizer, trainer, manner)


def _sentencepiece(manner: Manner) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<unk>", *manner.control, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    # Byte tokens are ordinary ones, as in the models people bring; training could only add them as special.
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if not token["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(data))


def _trained(tokenizer: Tokenizer, trainer: trainers.Trainer, manner: Manner) -> Tokenizer:
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in manner.control])
    return tokenizer
