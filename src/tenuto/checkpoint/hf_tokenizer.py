"""Special token ids and the chat template of a Hugging Face directory, gathered from the files that name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from tenuto.checkpoint.config import ModelConfig, SentencePieceFile, TokenizerFiles
from tenuto.checkpoint.json_file import MAX_TOKENIZER_BYTES, read_file, read_json
from tenuto.checkpoint.sentencepiece_format import read_sentencepiece
from tenuto.errors import ModelFileError


def read_tokenizer(
    path: Path,
    base: ModelConfig,
    config: Mapping[str, Any],
    generation: Mapping[str, Any],
    tokenizer_config: Mapping[str, Any],
) -> tuple[ModelConfig, TokenizerFiles]:
    """Complete the config with special ids and describe the tokenizer.

    End ids are the union of what config, generation config and tokenizer config name: files of one model
    disagree (chat models end turns with another token than documents), and stopping late never ends.

    Raises:
        ModelFileError: neither tokenizer.json nor tokenizer.model is there, one is corrupt, or an id lies outside the
            vocabulary.
    """
    json_path, sentencepiece = path / "tokenizer.json", None
    if not json_path.exists() and (path / "tokenizer.model").exists():
        sentencepiece = _sentencepiece(path / "tokenizer.model", tokenizer_config)
    tokenizer = read_json(json_path, max_bytes=MAX_TOKENIZER_BYTES) if sentencepiece is None else {}
    ids = _special_ids(tokenizer, tokenizer_config)
    if sentencepiece is not None:
        ids = {**{token: i for i, token in enumerate(sentencepiece.model.tokens)}, **ids}
    eos = {*_id_list(path, config, "eos_token_id"), *_id_list(path, generation, "eos_token_id")}
    if (eos_id := ids.get(_token_text(tokenizer_config.get("eos_token")))) is not None:
        eos.add(eos_id)
    bos_text = _token_text(tokenizer_config.get("bos_token"))
    bos_ids = [*_id_list(path, config, "bos_token_id"), *_id_list(path, generation, "bos_token_id")]
    # The tokenizer's own word first: configs of fine-tunes often keep the base model's id.
    bos_id = ids.get(bos_text, bos_ids[0] if bos_ids else None)
    full = replace(base, bos_id=bos_id, eos_ids=tuple(sorted(eos))).check(path / "config.json")
    files = TokenizerFiles(
        json_path=json_path if sentencepiece is None else None,
        sentencepiece=sentencepiece,
        bos_id=full.bos_id,
        eos_ids=full.eos_ids,
        add_bos=_adds_bos(tokenizer, tokenizer_config, bos_text, default=sentencepiece is not None),
        chat_template=_chat_template(path, tokenizer_config),
    )
    return full, files


def _special_ids(tokenizer: Mapping[str, Any], tokenizer_config: Mapping[str, Any]) -> dict[str | None, int]:
    """Text -> id of added tokens, from tokenizer.json and, for what it lacks, tokenizer_config.json."""
    ids: dict[str | None, int] = {}
    decoder = tokenizer_config.get("added_tokens_decoder")
    for key, entry in decoder.items() if isinstance(decoder, dict) else ():
        if key.isdecimal() and len(key) < 10 and (text := _token_text(entry)) is not None:
            ids[text] = int(key)
    for entry in _list(tokenizer.get("added_tokens")):
        if isinstance(entry, dict) and type(entry.get("id")) is int and isinstance(entry.get("content"), str):
            ids[entry["content"]] = entry["id"]
    return ids


def _list(value: object) -> list[Any]:
    """What is no list where one belongs is told of by the tokenizer, which reads all of the file."""
    return value if isinstance(value, list) else []


def _token_text(entry: object) -> str | None:
    """Special tokens are written as a string or as an object with `content`."""
    text = entry.get("content") if isinstance(entry, dict) else entry
    return text if isinstance(text, str) else None


def _id_list(path: Path, values: Mapping[str, Any], key: str) -> list[int]:
    value = values.get(key)
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(type(item) is int for item in ids):
        raise ModelFileError(f"{path}: {key} is {value!r:.80}, expected token ids")
    return ids


def _sentencepiece(path: Path, tokenizer_config: Mapping[str, Any]) -> SentencePieceFile:
    """A tokenizer.model, with what tokenizer_config.json adds and says of prefixes.

    `legacy` is transformers' word for a space before each part between control tokens; it is off unless asked for.
    """
    added: dict[int, tuple[str, bool]] = {}
    decoder = tokenizer_config.get("added_tokens_decoder")
    for key, entry in decoder.items() if isinstance(decoder, dict) else ():
        if key.isdecimal() and len(key) < 10 and (text := _token_text(entry)):
            added[int(key)] = (text, bool(entry.get("special")) if isinstance(entry, dict) else True)
    prefix: Literal["first", "sections"] = "sections" if tokenizer_config.get("legacy") is True else "first"
    return SentencePieceFile(path=path, model=read_sentencepiece(path), prefix=prefix, added=added)


def _adds_bos(
    tokenizer: Mapping[str, Any], tokenizer_config: Mapping[str, Any], bos_text: str | None, default: bool
) -> bool:
    """The flag where there is one; otherwise whether the post-processor's template begins with the BOS token."""
    flag = tokenizer_config.get("add_bos_token")
    if isinstance(flag, bool):
        return flag
    processor = tokenizer.get("post_processor")
    inner = processor.get("processors") if isinstance(processor, dict) else None
    for step in _list(inner) or [processor]:
        match step:
            case {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": first}}, *_]}:
                return bool(first == bos_text)
            case _:
                continue
    return default


def _chat_template(path: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    """chat_template.jinja wins (newer exporters write it); lists of named templates give their `default`."""
    file = path / "chat_template.jinja"
    if file.exists():
        try:
            return read_file(file).decode()
        except UnicodeDecodeError as error:
            raise ModelFileError(f"{file}: not UTF-8") from error
    template = tokenizer_config.get("chat_template")
    if isinstance(template, list):
        default = [t for t in template if isinstance(t, dict) and t.get("name") == "default"]
        template = default[-1].get("template") if default else None
    return template if isinstance(template, str) else None
