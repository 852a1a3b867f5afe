"""Other models than the generating one behind /v1/embeddings and /v1/rerank, as the settings name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import anyio
import httpx
import numpy as np
import pytest

from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.errors import ConfigError
from tenuto.ids import IdSource
from tenuto.protocol.embedding import EmbedRequest
from tenuto.server import OtherClients, create_app
from tenuto.testing.scripted_model import ScriptedModel
from tenuto.wiring_embedding import open_embedder
from tenuto.wiring_text import RunningModel
from tenuto.wiring_vectors import vector_clients
from tiny_encoders import bert, bert_classifier, save_encoder

NOBODY = cast("RunningModel", None)  # the generating model, which has no part in this


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    return save_encoder(folder / "embedder", bert()), save_encoder(folder / "ranker", bert_classifier())


async def served(config: Config, *calls: tuple[str, dict[str, Any]]) -> list[httpx.Response]:
    clock = RealClock()
    async with vector_clients(config, NOBODY, clock) as vectors:
        app = create_app(
            ScriptedModel([]),
            served_names=("smol",),
            clock=clock,
            ids=IdSource(1),
            others=OtherClients(embedder=vectors.embedder, reranker=vectors.reranker),
        )
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tenuto") as client:
            answers = [await client.post(path, json={"model": "default", **body}) for path, body in calls]
            return [*answers, await client.get("/v1/models")]


def test_models_that_the_settings_name_embed_and_rank(models: tuple[Path, Path]) -> None:
    embedder, ranker = models
    # The longest session of the generating model is no business of theirs.
    config = Config(embedding_model=str(embedder), rerank_model=str(ranker), max_model_tokens=100_000)

    async def main() -> None:
        vectors, ranking, listed = await served(
            config,
            ("/v1/embeddings", {"input": ["the cat sat", "猫"]}),
            ("/v1/rerank", {"query": "the cat", "documents": ["sat", "猫", "the cats"]}),
        )
        async with open_embedder(model=str(embedder)) as alone:
            expected = await alone.embed(EmbedRequest(inputs=("the cat sat", "猫")))
        found = np.array([one["embedding"] for one in vectors.json()["data"]], dtype=np.float32)
        np.testing.assert_array_equal(found, expected.vectors)
        assert sorted(one["index"] for one in ranking.json()["results"]) == [0, 1, 2]
        names = [card["id"] for card in listed.json()["data"]]
        assert names == ["smol", "default", vectors.json()["model"], ranking.json()["model"]]

    anyio.run(main)


def test_without_a_ranker_the_embedder_ranks(models: tuple[Path, Path]) -> None:
    config = Config(embedding_model=str(models[0]))

    async def main() -> None:
        ranking, listed = await served(config, ("/v1/rerank", {"query": "猫", "documents": ["the cat", "猫"]}))
        best = ranking.json()["results"][0]
        assert best["index"] == 1 and best["relevance_score"] == pytest.approx(1, abs=1e-5)
        assert len(listed.json()["data"]) == 3

    anyio.run(main)


def test_a_cross_encoder_does_not_embed(models: tuple[Path, Path]) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match="cross-encoder"):
            async with vector_clients(Config(embedding_model=str(models[1])), NOBODY, RealClock()):
                pass

    anyio.run(main)
