"""Special token ids and the chat template of a Hugging Face directory, gathered from the files that name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tenuto.checkpoint.config import ModelConfig, TokenizerFiles
from tenuto.checkpoint.json_file import read_json
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
        ModelFileError: tokenizer.json is missing or corrupt, or an id lies outside the vocabulary.
    """
    json_path = path / "tokenizer.json"
    tokenizer = read_json(json_path)
    ids = _special_ids(tokenizer, tokenizer_config)
    eos = {*_id_list(path, config, "eos_token_id"), *_id_list(path, generation, "eos_token_id")}
    if (eos_id := ids.get(_token_text(tokenizer_config.get("eos_token")))) is not None:
        eos.add(eos_id)
    bos_text = _token_text(tokenizer_config.get("bos_token"))
    bos_ids = [*_id_list(path, config, "bos_token_id"), *_id_list(path, generation, "bos_token_id")]
    # The tokenizer's own word first: configs of fine-tunes often keep the base model's id.
    bos_id = ids.get(bos_text, bos_ids[0] if bos_ids else None)
    full = replace(base, bos_id=bos_id, eos_ids=tuple(sorted(eos))).check(path / "config.json")
    files = TokenizerFiles(
        json_path=json_path,
        bos_id=full.bos_id,
        eos_ids=full.eos_ids,
        add_bos=_adds_bos(tokenizer, tokenizer_config, bos_text),
        chat_template=_chat_template(path, tokenizer_config),
    )
    return full, files


def _special_ids(tokenizer: Mapping[str, Any], tokenizer_config: Mapping[str, Any]) -> dict[str | None, int]:
    """Text -> id of added tokens, from tokenizer.json and, for what it lacks, tokenizer_config.json."""
    ids: dict[str | None, int] = {}
    decoder = tokenizer_config.get("added_tokens_decoder")
    for key, entry in decoder.items() if isinstance(decoder, dict) else ():
        if key.isdecimal() and (text := _token_text(entry)) is not None:
            ids[text] = int(key)
    for entry in tokenizer.get("added_tokens") or ():
        if isinstance(entry, dict) and type(entry.get("id")) is int and isinstance(entry.get("content"), str):
            ids[entry["content"]] = entry["id"]
    return ids


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


def _adds_bos(tokenizer: Mapping[str, Any], tokenizer_config: Mapping[str, Any], bos_text: str | None) -> bool:
    """The flag where there is one; otherwise whether the post-processor's template begins with the BOS token."""
    flag = tokenizer_config.get("add_bos_token")
    if isinstance(flag, bool):
        return flag
    processor = tokenizer.get("post_processor") or {}
    for step in processor.get("processors") or [processor]:
        match step:
            case {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": first}}, *_]}:
                return bool(first == bos_text)
            case _:
                continue
    return False


def _chat_template(path: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    """chat_template.jinja wins (newer exporters write it); lists of named templates give their `default`."""
    file = path / "chat_template.jinja"
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ModelFileError(f"{file}: not UTF-8") from error
    template = tokenizer_config.get("chat_template")
    if isinstance(template, list):
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None
