"""Continuation on the real model: a later turn computes only what is new, and says the same as a cold one."""

from __future__ import annotations

import itertools

import anyio
import pytest

from tenuto.config import Config
from tenuto.ids import IdSource, SessionId
from tenuto.protocol.chat import ChatRequest, ChatUsage, ReplyFinished
from tenuto.protocol.messages import Message
from tenuto.wiring import LoadedModel, running

pytestmark = pytest.mark.model

QUESTIONS = (
    "Name a city in Norway.",
    "再说一个挪威的城市。",
    "Is it <|im_end|> by the sea?",
    "那里冬天冷吗？",
    "What do people eat there?",
    "用一句话总结。",
    "Say it in English.",
    "谢谢！",
)
MAX_TOKENS = 8


async def _ask(loaded: LoadedModel, config: Config, *, hold: bool) -> tuple[list[ReplyFinished], list[ChatUsage]]:
    replies: list[ReplyFinished] = []
    messages: tuple[Message, ...] = ()
    async with running(loaded, config, ids=IdSource(7)) as started:
        for question in QUESTIONS:
            messages = (*messages, Message(role="user", content=question))
            session = SessionId("conversation") if hold else None
            request = ChatRequest(messages=messages, session=session, max_tokens=MAX_TOKENS)
            (finished,) = [e async for e in started.model.stream(request) if isinstance(e, ReplyFinished)]
            replies.append(finished)
            messages = (*messages, finished.message)
    return replies, [reply.usage for reply in replies]


def test_eight_turns_compute_the_new_ids_and_the_one_without_kv(loaded: LoadedModel, config: Config) -> None:
    replies, usages = anyio.run(lambda: _ask(loaded, config, hold=True))
    for before, now in itertools.pairwise(usages):
        appended = now.num_prompt - (before.num_prompt + before.num_generated)
        assert now.num_computed == appended + 1
        assert now.num_held == now.num_prompt - now.num_computed
        assert now.reuse_break is None
    cold = config.model_copy(update={"prefix_cache": False})
    again, cold_usages = anyio.run(lambda: _ask(loaded, cold, hold=False))
    assert all(usage.num_computed == usage.num_prompt for usage in cold_usages)
    assert [reply.token_ids for reply in replies] == [reply.token_ids for reply in again]
    assert any(reply.message.content for reply in replies)
