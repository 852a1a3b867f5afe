"""What is an id of a model on a hub, and what is not."""

from __future__ import annotations

import pytest

from tenuto.hub import ModelReference, parse_reference


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org/name", ModelReference(hub="hf", repo="org/name")),
        ("hf:org/na.me-1_b", ModelReference(hub="hf", repo="org/na.me-1_b")),
        ("ms:Qwen/Qwen3-0.6B@master", ModelReference(hub="ms", repo="Qwen/Qwen3-0.6B", revision="master")),
        ("hf:org/name@refs/pr/1", ModelReference(hub="hf", repo="org/name", revision="refs/pr/1")),
        ("org/name:Q4_K_M", ModelReference(hub="hf", repo="org/name", tag="Q4_K_M")),
        ("hf:org/name/m-Q4_K_M.gguf", ModelReference(hub="hf", repo="org/name", file="m-Q4_K_M.gguf")),
        ("org/name/q4/m.gguf@v1", ModelReference(hub="hf", repo="org/name", file="q4/m.gguf", revision="v1")),
        ("hf:org/name.gguf", ModelReference(hub="hf", repo="org/name.gguf")),
    ],
)
def test_ids_are_read_and_written_back(text: str, expected: ModelReference) -> None:
    assert parse_reference(text) == expected
    assert parse_reference(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "embedded", "name", "/org/name", "./org/name", "../name", "org/..", "org/name/", "a/b/c", "folder/model.gguf",
        "hf:org/name/../x.gguf", "org/name@../../x", "org//name", "org/name@", "s3:org/name", "组织/模型", "org\\name",
        "org/name/x.bin", "org/name:Q4:K", "org/name\n", "", "~/org/name",
    ],
)  # fmt: skip
def test_anything_else_is_no_id(text: str) -> None:
    assert parse_reference(text) is None
