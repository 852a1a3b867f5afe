"""Texts to vectors: prompts, frames, lengths, form and bounds, over both kinds of model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tenuto.checkpoint import TokenizerFiles
from tenuto.clock import RealClock
from tenuto.embedding import EmbedLimits, EncoderPooler, EnginePooler, LocalEmbedder, QueuedText, TextQueue, TextRules
from tenuto.errors import Cancelled, ContextLengthError, InvalidRequest, QueueFull
from tenuto.ids import TokenId
from tenuto.protocol.embedding import EmbedderInfo, Embeddings, EmbedRequest
from tenuto.testing import ScriptedEngine
from tenuto.text.frame import read_frame
from tenuto.text.tokenizer import Tokenizer
from tiny_encoders import VOCAB, word_tokenizer

INFO = EmbedderInfo(model="fake", num_dimensions=3, max_model_tokens=8, pooling="mean", normalise=False)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> TextRules:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    word_tokenizer().save(str(path))
    tokenizer = Tokenizer.from_files(TokenizerFiles(json_path=path), 64)
    prompts = {"query": "where is ", "none": ""}
    return TextRules(tokenizer, read_frame(Path(path), 64), max_model_tokens=8, prompts=prompts)


class Recorder:
    """An encoder whose vectors are (first id, number of tokens, sum of types)."""

    def __init__(self) -> None:
        self.texts: list[QueuedText] = []

    def __call__(self, texts: Sequence[QueuedText]) -> np.ndarray:
        self.texts += texts
        rows = [[one.text.ids[1], one.num_tokens, sum(one.text.types)] for one in texts]
        return np.array(rows, dtype=np.float32)


@asynccontextmanager
async def embedder(rules: TextRules, seen: Recorder, **limits: Any) -> Any:
    async with TextQueue(seen) as queue:
        yield LocalEmbedder(EncoderPooler(queue), rules, INFO, clock=RealClock(), limits=EmbedLimits(**limits))


def embed(
    rules: TextRules, *inputs: Any, seen: Recorder | None = None, limits: Any = None, **fields: Any
) -> Embeddings:
    async def main() -> Embeddings:
        async with embedder(rules, seen or Recorder(), **(limits or {})) as client:
            return await client.embed(EmbedRequest(inputs=inputs, **fields))

    return asyncio.run(main())


def words(ids: Sequence[int]) -> list[str]:
    return [VOCAB[i] for i in ids]


def test_texts_are_framed_and_counted(rules: TextRules) -> None:
    seen = Recorder()
    result = embed(rules, "The cats sat", "猫 ☃", "", seen=seen)
    assert [words(one.text.ids) for one in seen.texts] == [
        ["[CLS]", "the", "cat", "##s", "sat", "[SEP]"],
        ["[CLS]", "猫", "[UNK]", "[SEP]"],
        ["[CLS]", "[SEP]"],
    ]
    assert all(one.pooling == "mean" for one in seen.texts)
    assert result.vectors.shape == (3, 3) and result.vectors.dtype == np.float32
    assert result.usage.num_tokens == result.usage.num_computed == 12
    assert result.usage.num_truncated == 0


def test_no_text_spells_a_special_token(rules: TextRules) -> None:
    seen = Recorder()
    embed(rules, "[SEP]", seen=seen)
    assert words(seen.texts[0].text.ids)[1:-1] == ["[UNK]"] * 3


def test_ids_are_taken_as_they_are(rules: TextRules) -> None:
    seen = Recorder()
    embed(rules, (TokenId(9), TokenId(5)), seen=seen, prompt="query")
    assert seen.texts[0].text.ids == (9, 5)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"prompt": "query"}, ["where", "is", "the"]),
        ({"prompt": "none"}, ["the"]),
        ({"instruction": "dog "}, ["dog", "the"]),
        ({}, ["the"]),
    ],
)
def test_prompts_stand_before_the_text(rules: TextRules, fields: dict[str, Any], expected: list[str]) -> None:
    seen = Recorder()
    embed(rules, "the", seen=seen, **fields)
    known = [word if word in VOCAB else "[UNK]" for word in expected]
    assert words(seen.texts[0].text.ids)[1:-1] == known


def test_a_default_prompt_is_used_unless_another_is_asked_for(rules: TextRules) -> None:
    with_default = replace(rules, default_prompt="query")
    seen = Recorder()
    embed(with_default, "the", seen=seen)
    embed(with_default, "the", seen=seen, prompt="none")
    assert [one.num_tokens for one in seen.texts] == [5, 3]


def test_too_long_is_an_error_or_cut_never_silent(rules: TextRules) -> None:
    long = "the cat sat on the mat on the road"
    with pytest.raises(ContextLengthError, match=r"input 1 needs 11 tokens, but the context holds 8; .*truncate"):
        embed(rules, "cat", long)
    seen = Recorder()
    result = embed(rules, "cat", long, seen=seen, truncate=True)
    assert words(seen.texts[1].text.ids) == ["[CLS]", "the", "cat", "sat", "on", "the", "mat", "[SEP]"]
    assert result.usage.num_truncated == 1
    ids = tuple(map(TokenId, range(5, 15)))
    with pytest.raises(ContextLengthError, match="needs 10 tokens"):
        embed(rules, ids)
    embed(rules, ids, seen=seen, truncate=True)
    assert seen.texts[2].text.ids == ids[:8]


def test_vectors_are_cut_then_normalised(rules: TextRules) -> None:
    raw = embed(rules, "cat", "the cat").vectors
    both = embed(rules, "cat", "the cat", dimensions=2, normalise=True).vectors
    assert both.shape == (2, 2)
    np.testing.assert_allclose(both, raw[:, :2] / np.linalg.norm(raw[:, :2], axis=1, keepdims=True), rtol=1e-6)
    assert embed(rules, "cat", dimensions=2).vectors.tolist() == raw[:1, :2].tolist()


def test_a_vector_of_zeros_stays_one(rules: TextRules) -> None:
    async def main() -> Embeddings:
        async with TextQueue(lambda texts: np.zeros((len(texts), 3), dtype=np.float32)) as queue:
            client = LocalEmbedder(EncoderPooler(queue), rules, INFO, clock=RealClock())
            return await client.embed(EmbedRequest(inputs=("cat",), normalise=True))

    assert asyncio.run(main()).vectors.tolist() == [[0, 0, 0]]


@pytest.mark.parametrize(
    ("inputs", "fields", "message"),
    [
        ((), {}, "0 inputs"),
        (("a",) * 5, {}, "5 inputs"),
        (("a" * 101,), {}, "100 characters"),
        (("a" * 60,) * 3, {}, "all together 150"),
        (("a",), {"dimensions": 0}, "between 1 and 3"),
        (("a",), {"dimensions": 4}, "between 1 and 3"),
        (("a",), {"prompt": "passage"}, "no prompt 'passage'; its prompts are: query, none"),
        (("a",), {"prompt": "query", "instruction": "x"}, "not both"),
        (("a",), {"timeout_s": 0.0}, "timeout_s"),
        (("a",), {"timeout_s": float("nan")}, "timeout_s"),
        ((("a"), (TokenId(64),)), {}, "token id 64 is out of range"),
        (((TokenId(-1),),), {}, "token id -1"),
        (((),), {}, "input 0 has no tokens"),
    ],
)
def test_requests_that_make_no_sense(rules: TextRules, inputs: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        embed(rules, *inputs, limits={"max_inputs": 4, "max_input_chars": 100, "max_chars": 150}, **fields)


def test_out_of_time(rules: TextRules) -> None:
    class Never:
        async def pool(self, *_: object) -> Any:
            await asyncio.Event().wait()

    async def main() -> None:
        client = LocalEmbedder(Never(), rules, INFO, clock=RealClock())
        await client.embed(EmbedRequest(inputs=("cat",), timeout_s=0.05))

    with pytest.raises(Cancelled, match=r"0\.05 s"):
        asyncio.run(main())


def test_over_an_engine(rules: TextRules) -> None:
    async def main() -> tuple[Embeddings, ScriptedEngine]:
        engine = ScriptedEngine([])
        info = msgspec.structs.replace(INFO, num_dimensions=8)
        client = LocalEmbedder(EnginePooler(engine, max_parallel=2), rules, info, clock=RealClock())
        request = EmbedRequest(inputs=((TokenId(1),), (TokenId(2), TokenId(10)), (TokenId(3), TokenId(4))))
        return await client.embed(request), engine

    result, engine = asyncio.run(main())
    assert engine.num_calls["embed"] == 3
    np.testing.assert_allclose(result.vectors[0], np.eye(8)[1])
    np.testing.assert_allclose(result.vectors[1], np.eye(8)[2])
    np.testing.assert_allclose(result.vectors[2], (np.eye(8)[3] + np.eye(8)[4]) / 2)
    assert result.usage.num_tokens == 5


def test_the_engines_error_is_the_requests(rules: TextRules) -> None:
    async def main() -> None:
        engine = ScriptedEngine([], fault=lambda name, count: QueueFull("full") if count == 1 else None)
        client = LocalEmbedder(
            EnginePooler(engine), rules, msgspec.structs.replace(INFO, num_dimensions=8), clock=RealClock()
        )
        await client.embed(EmbedRequest(inputs=("cat", "dog", "mat")))

    with pytest.raises(QueueFull, match="full"):
        asyncio.run(main())
