"""The client over the real engine and the embedded model: what both believe of a session is the same."""

from __future__ import annotations

import pytest

from chat_harness import SESSION, run, user
from tenuto.protocol.chat import ChatRequest, ReplyFinished
from tenuto.protocol.messages import Message
from tenuto.wiring import open_model


@pytest.mark.model
def test_turns_stops_and_cancels_on_the_real_engine():
    async def main() -> None:
        async with open_model(kv_tokens=2048) as model:

            async def ask(*messages: Message, session: str | None = SESSION, **fields: object) -> ReplyFinished:
                request = ChatRequest(messages=messages, session=session, **fields)
                return [event async for event in model.stream(request)][-1]

            async def num_tokens() -> int:
                return (await model._engine.stats(SESSION)).num_tokens

            asked = user("Say hello to 小明, please.")
            first = await ask(asked, max_tokens=6)
            num_first = first.usage.num_prompt + len(first.token_ids)
            assert first.reason == "length" and await num_tokens() == num_first
            more = (asked, first.message, user("Go on."))

            stream = model.stream(ChatRequest(messages=more, session=SESSION))
            await anext(stream)
            await stream.aclose()
            assert await num_tokens() == num_first

            whole = await ask(*more, max_tokens=6)
            assert whole.usage.reuse_break is None
            assert whole.usage.num_held == num_first  # the cancelled turn computed the last id's KV already
            stop = whole.message.content[3:5]
            for session in (SESSION, None):  # asked again, and alone
                stopped = await ask(*more, stop=(stop,), session=session)
                assert stopped.message.content == whole.message.content[: whole.message.content.index(stop)]
                usage = stopped.usage
                assert usage.num_held + usage.num_shared + usage.num_computed == usage.num_prompt
                assert usage.num_prompt == whole.usage.num_prompt and usage.num_computed >= 1
                assert bool(usage.num_held) == (session is not None)
            assert await num_tokens() <= whole.usage.num_prompt + len(stopped.token_ids)

    run(main())


@pytest.mark.model
def test_speculation_changes_neither_text_nor_what_is_held_nor_the_counts():
    """Stop strings among guessed tokens too: what was guessed beyond one was never told and is not held."""

    async def main(speculation: str) -> list[tuple[object, ...]]:
        async with open_model(kv_tokens=2048, precision="int8", speculation=speculation) as model:
            if not (await model._engine.info()).row_invariant:
                pytest.skip("the products of this machine depend on the number of rows: nothing is drafted")
            months = "January, February, March, April, May, June, July"
            asked = user(f"List the months: {months}. Now list them again.")
            found = []
            for stop in ((), ("April",), (", May, J",)):
                request = ChatRequest(messages=(asked,), session=SESSION, max_tokens=24, stop=stop)
                reply = [event async for event in model.stream(request)][-1]
                assert isinstance(reply, ReplyFinished)
                usage, stats = reply.usage, await model._engine.stats(SESSION)
                told = (reply.message.content, reply.token_ids, reply.reason, stats.num_tokens)
                found.append((*told, usage.num_generated, usage.num_steps + usage.num_accepted))
                accepted.append(usage.num_accepted)
            return found

    accepted: list[int] = []
    assert run(main("suffix")) == run(main("off"))
    assert min(accepted[:3]) > 0 and accepted[3:] == [0] * 3
