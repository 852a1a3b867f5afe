"""Clients in front of others: nothing is changed, everything is told, once, whatever the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tenuto.clock import RealClock
from tenuto.errors import ContextLengthError, SessionBusy
from tenuto.ids import RequestId, RunId, SessionId, TokenId
from tenuto.protocol.chat import ChatUsage, TextDelta
from tenuto.protocol.completion import CompletionFinished, CompletionRequest
from tenuto.protocol.embedding import Embeddings, EmbedRequest, EmbedUsage, RankedDocument, Ranking, RerankRequest
from tenuto.protocol.engine import GenerateUsage
from tenuto.protocol.hints import RunHints
from tenuto.protocol.sessions import SessionDelta, SessionFinished, SessionGenerate
from tenuto.telemetry import (
    ObservedCompletion,
    ObservedEmbedder,
    ObservedReranker,
    ObservedSessions,
    RequestRecord,
    Telemetry,
)

USAGE = {"num_prompt": 9, "num_held": 2, "num_shared": 3, "num_computed": 4, "num_generated": 5}
TIMES = {"num_forced": 2, "num_accepted": 1, "queued_s": 0.5, "ttft_s": 1.0, "total_s": 3.0}
SESSION_EVENTS = (
    SessionDelta(ids=(TokenId(1),), text="一"),
    SessionFinished(reason="grammar", stop=None, input_ids=(), usage=GenerateUsage(**USAGE, **TIMES)),
)
COMPLETION_EVENTS = (TextDelta(text="一"), CompletionFinished(reason="length", usage=ChatUsage(**USAGE, **TIMES)))


class Scripted:
    """Any of the clients, as far as these tests go."""

    def __init__(self, *events: Any) -> None:
        self.events = events
        self.closed = 0

    async def generate(self, *_: Any) -> AsyncIterator[Any]:
        try:
            for event in self.events:
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.closed += 1

    def complete(self, request: Any) -> AsyncIterator[Any]:
        return self.generate(request)

    async def embed(self, request: EmbedRequest) -> Embeddings:
        return self._answer()

    async def rerank(self, request: RerankRequest) -> Ranking:
        return self._answer()

    def _answer(self) -> Any:
        if isinstance(self.events[0], Exception):
            raise self.events[0]
        return self.events[0]


def observed(work: Any) -> tuple[RequestRecord, dict[tuple[str, ...], float]]:
    """The record of a request that does this, and the metrics after it, by name and labels in their order."""
    telemetry = Telemetry(RealClock())

    async def main() -> RequestRecord:
        record = telemetry.begin(RequestId("req-1"), "POST", ())
        await work(telemetry)
        record.status = 200
        telemetry.end(record)
        return record

    record = asyncio.run(main())
    text = telemetry.metrics.exposition(None).decode()
    found = {
        (sample.name, *(sample.labels[label] for label in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    return record, found


def streaming(kind: str, scripted: Scripted, telemetry: Telemetry) -> Any:
    hints = RunHints(run=RunId("run-7"))
    if kind == "generate":
        sessions = ObservedSessions(scripted, telemetry)  # type: ignore[arg-type]
        return sessions.generate(SessionId("sess-1"), SessionGenerate(hints=hints))
    completion = ObservedCompletion(scripted, telemetry)  # type: ignore[arg-type]
    return completion.complete(CompletionRequest(prompts=("x",), hints=hints))


@pytest.mark.parametrize(
    ("kind", "events", "finish"),
    [
        ("generate", SESSION_EVENTS, "grammar"),
        ("generate", SESSION_EVENTS[-1:], "grammar"),  # all of its ids were a stop string's
        ("text_completion", COMPLETION_EVENTS, "length"),
        ("text_completion", COMPLETION_EVENTS[-1:], "length"),
    ],
)
def test_what_streams_is_counted_and_unchanged(kind: str, events: tuple[Any, ...], finish: str):
    seen: list[Any] = []

    async def work(telemetry: Telemetry) -> None:
        seen.extend([event async for event in streaming(kind, Scripted(*events), telemetry)])

    record, metrics = observed(work)
    assert tuple(seen) == events
    fields = record.fields(record.arrived_s)
    expected = {"operation": kind, "run": "run-7", "prompt_tokens": 9, "cached_tokens": 5, "output_tokens": 5}
    expected |= {"finish": finish, "queued_s": 0.5, "status": 200}
    assert {name: fields[name] for name in expected} == expected
    assert fields.get("session") == ("sess-1" if kind == "generate" else None)
    tokens = {source: metrics["tenuto_prompt_tokens_total", source] for source in ("held", "shared", "computed")}
    assert tokens == {"held": 2, "shared": 3, "computed": 4}
    made = {source: metrics["tenuto_output_tokens_total", source] for source in ("forced", "accepted", "sampled")}
    assert made == {"forced": 2, "accepted": 1, "sampled": 2}
    assert metrics["tenuto_time_per_output_token_seconds_sum", kind] == pytest.approx((3.0 - 1.0) / 4)
    assert metrics["tenuto_queue_seconds_sum", kind] == 0.5
    assert metrics["tenuto_time_to_first_token_seconds_count", kind] == 1
    assert metrics["tenuto_replies_total", finish, kind] == 1


@pytest.mark.parametrize("kind", ["generate", "text_completion"])
def test_a_stream_that_is_left_is_cancelled_and_told(kind: str):
    scripted = Scripted(*(SESSION_EVENTS if kind == "generate" else COMPLETION_EVENTS))

    async def work(telemetry: Telemetry) -> None:
        async with aclosing(streaming(kind, scripted, telemetry)) as events:
            await anext(events)

    record, metrics = observed(work)
    assert scripted.closed == 1
    assert record.error is None and record.work is not None and record.work.end_s is not None
    assert metrics["tenuto_replies_total", "cancelled", kind] == 1


@pytest.mark.parametrize(("error", "name"), [(SessionBusy("x"), "session_busy"), (ValueError("x"), "internal_error")])
@pytest.mark.parametrize("kind", ["generate", "text_completion"])
def test_an_error_passes_and_is_told(kind: str, error: Exception, name: str):
    async def work(telemetry: Telemetry) -> None:
        with pytest.raises(type(error)):
            async for _ in streaming(kind, Scripted(error), telemetry):
                pass

    record, metrics = observed(work)
    assert record.error == name
    assert metrics["tenuto_errors_total", name] == 1 and metrics["tenuto_replies_total", "error", kind] == 1


def test_vectors_are_counted_by_their_tokens():
    usage = EmbedUsage(num_tokens=10, num_shared=4, num_computed=6)
    embeddings = Embeddings(vectors=np.zeros((1, 2), np.float32), usage=usage)
    ranking = Ranking(documents=(RankedDocument(index=0, score=1.0),), usage=usage)

    async def work(telemetry: Telemetry) -> None:
        embedder = ObservedEmbedder(Scripted(embeddings), telemetry)  # type: ignore[arg-type]
        assert await embedder.embed(EmbedRequest(inputs=("文本",))) is embeddings
        reranker = ObservedReranker(Scripted(ranking), telemetry)  # type: ignore[arg-type]
        assert await reranker.rerank(RerankRequest(query="q", documents=("d",))) is ranking
        failing = ObservedEmbedder(Scripted(ContextLengthError(9, 8)), telemetry)  # type: ignore[arg-type]
        with pytest.raises(ContextLengthError):
            await failing.embed(EmbedRequest(inputs=("x",)))

    record, metrics = observed(work)
    assert [one.operation for one in record.works] == ["embeddings", "rerank", "embeddings"]
    assert metrics["tenuto_prompt_tokens_total", "shared"] == 8
    assert metrics["tenuto_prompt_tokens_total", "computed"] == 12
    assert record.error == "context_length_error"


def test_work_outside_of_a_request_is_nobodys():
    telemetry = Telemetry(RealClock())

    async def main() -> list[Any]:
        return [event async for event in streaming("generate", Scripted(*SESSION_EVENTS), telemetry)]

    assert tuple(asyncio.run(main())) == SESSION_EVENTS
    assert b"tenuto_replies_total{" not in telemetry.metrics.exposition(None)
