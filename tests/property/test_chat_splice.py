"""However a session came to its tokens, they are those of the conversation, with replies of ours as sampled."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from chat_harness import END, END_OF_TEXT, TOKENIZER, TWO_ENDS, WEATHER, Chat, assistant, call_text, result, user
from tenuto.chat.conversation import Conversation, splice
from tenuto.chat.encoder import ConversationEncoder
from tenuto.chat.stop_strings import StopMatcher
from tenuto.errors import QueueFull
from tenuto.ids import SessionId
from tenuto.protocol.chat import ChatRequest, ReplyFinished
from tenuto.protocol.messages import Message

TEXTS = st.one_of(
    st.sampled_from(
        ["北京今天天气怎么样？", "a\n\n\nb", "  spaces  ", "<|im_end|>", "x<|im_start|>system\n", "🇳🇴é한", ""]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)
SESSIONS = st.sampled_from(["a", "b", None])
EXACT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(replies=st.lists(TEXTS, min_size=1, max_size=4), asked=st.lists(TEXTS, min_size=4, max_size=4))
@settings(EXACT, max_examples=60)
def test_turn_by_turn_equals_the_whole_encoded_at_once(replies: list[str], asked: list[str]) -> None:
    """As long as the replies are spelled as the tokenizer would: then a session's ids are those of its text."""
    opening = TOKENIZER.encode("assistant\n")
    replies = [r for r in replies if TOKENIZER.decode(TOKENIZER.encode(r)) == r]
    for reply in replies:
        assume(TOKENIZER.encode("assistant\n" + reply) == [*opening, *TOKENIZER.encode(reply)])

    async def main() -> None:
        chat = Chat([[*TOKENIZER.encode(reply), END] for reply in replies])
        messages: list[Message] = []
        for reply, text in zip(replies, asked, strict=False):
            messages.append(user(text))
            finished = await chat.ask(*messages)
            assert finished.message == assistant(reply)
            assert finished.usage.reuse_break is None
            messages.append(finished.message)
            assert chat.tokens() == tuple(chat.rendered(*messages, prompt=False))[: len(chat.tokens())]
            assert len(chat.tokens()) == len(chat.rendered(*messages, prompt=False)) - len(TOKENIZER.encode("\n"))
        assert chat.engine.num_calls["truncate"] == 0

    asyncio.run(main())


class Conversations(RuleBasedStateMachine):
    """Turns, edits, cancels, forks and failures on several sessions, against fresh conversations."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.chat = Chat(tokenizer=TWO_ENDS, block_size=2, max_model_tokens=100_000)
        self.history: list[Message] = [user("你好")]
        self.number = 0

    def teardown(self) -> None:
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def request(self, session: str | None, **fields: Any) -> ChatRequest:
        name = None if session is None else SessionId(session)
        return ChatRequest(messages=tuple(self.history), session=name, tools=(WEATHER,), **fields)

    async def _turn(self, request: ChatRequest, num_events: int | None = None) -> Message | None:
        stream = self.chat.client.stream(request)
        seen = 0
        async for event in stream:
            seen += 1
            last = event
            if num_events is not None and seen > num_events and not isinstance(event, ReplyFinished):
                await stream.aclose()
                return None
        message: Message = last.message
        return message

    @rule(
        session=SESSIONS,
        text=TEXTS,
        calls=st.integers(0, 2),
        split=st.booleans(),
        end=st.sampled_from([END, END_OF_TEXT]),
        limit=st.one_of(st.none(), st.integers(1, 12)),
        stop=st.sampled_from([(), ("STOP",), ("天",), (" ",)]),
    )
    def turn(
        self, session: str | None, text: str, calls: int, split: bool, end: int, limit: int | None, stop: Any
    ) -> None:
        self.number += 1
        said = text + "\n".join(call_text(city=f"城{self.number}.{n}") for n in range(calls))
        ids = [i for c in said for i in TOKENIZER.encode(c)] if split else TOKENIZER.encode(said)
        self.chat.engine.say([*ids, end])
        message = self.loop.run_until_complete(self._turn(self.request(session, max_tokens=limit, stop=stop)))
        assert message is not None
        self.history.append(message)
        self.history += [result(call.id, f"晴 {self.number}") for call in message.tool_calls]
        if not message.tool_calls:
            self.history.append(user(text))

    @rule(session=SESSIONS, num_events=st.integers(0, 3))
    def cancelled_turn(self, session: str | None, num_events: int) -> None:
        self.chat.engine.say(TOKENIZER.encode("谁也不想听的话，长长的"))
        before = self.held(session)
        # What is said may be a short reply left over from a turn that failed before it began: then it comes to its end.
        message = self.loop.run_until_complete(self._turn(self.request(session), num_events))
        if before is not None and message is None:
            after = self.held(session)
            assert after == before[: len(after)]

    @rule(session=SESSIONS, number=st.integers(0, 8))
    def failing_turn(self, session: str | None, number: int) -> None:
        self.chat.engine.say(TOKENIZER.encode("好的"))
        asked = [0]

        def fault(name: str, _: int) -> Exception | None:
            asked[0] += name != "close"  # an engine that cannot close a session keeps it, whatever we do
            return QueueFull("full") if asked[0] == number and name != "close" else None

        self.chat.engine.fault = fault
        try:
            self.loop.run_until_complete(self._turn(self.request(session)))
        except QueueFull:
            assert asked[0] >= number
        finally:
            self.chat.engine.fault = None

    @precondition(lambda self: len(self.history) > 2)
    @rule(place=st.integers(0, 30), text=TEXTS)
    def edit(self, place: int, text: str) -> None:
        place %= len(self.history)
        old = self.history[place]
        self.history[place] = Message(
            role=old.role, content=text, tool_calls=old.tool_calls, tool_call_id=old.tool_call_id
        )

    @rule(place=st.integers(0, 30))
    def go_back(self, place: int) -> None:
        """Fork: forget all from a user message on."""
        users = [i for i, message in enumerate(self.history) if message.role == "user"]
        self.history = self.history[: users[place % len(users)] + 1]

    @rule(session=st.sampled_from(["a", "b"]))
    def lose(self, session: str) -> None:
        if session in self.chat.engine.sessions:
            self.chat.engine.lose(SessionId(session))

    @rule(session=st.sampled_from(["a", "b"]))
    def close(self, session: str) -> None:
        if session in self.chat.engine.sessions:
            self.loop.run_until_complete(self.chat.client.close(SessionId(session)))

    def held(self, session: str | None) -> tuple[int, ...] | None:
        return None if session is None else self.chat.engine.sessions.get(SessionId(session))

    @invariant()
    def the_record_is_the_session(self) -> None:
        """What the client believes a session holds is what it holds; nothing temporary is left behind."""
        sessions = self.chat.engine.sessions
        assert set(sessions) <= {"a", "b"}
        for name, tokens in sessions.items():
            record = self.chat.client._held.find(name)
            assert record is not None and not record.is_busy
            assert record.is_unsure or record.ids == tokens

    @invariant()
    def a_prompt_is_that_of_its_text(self) -> None:
        """Its ids say what the template writes, white space aside, and do not depend on how a session came to them."""
        record = self.chat.client._held.find(SessionId("a"))
        conversation = self.chat.client._encoder
        messages = tuple(self.history)
        whole = Conversation(messages, tuple(range(len(messages))), (WEATHER,))
        encoded = conversation.encode(whole, {} if record is None else record.replies)
        fresh = ConversationEncoder(TWO_ENDS, self.chat.template, self.chat.tool_format)
        for key, reply in encoded.replies.items():
            fresh.remember(key, reply)
        assert fresh.encode(whole, {}).ids == encoded.ids
        at_once = TOKENIZER.encode(encoded.prompt)
        assert "".join(TOKENIZER.decode(encoded.ids).split()) == "".join(TOKENIZER.decode(at_once).split())


Conversations.TestCase.settings = settings(EXACT, max_examples=25, stateful_step_count=15)
TestConversations = Conversations.TestCase


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestManyConversations(Conversations.TestCase):
    settings = settings(EXACT, max_examples=1000, stateful_step_count=30)


@given(held=st.lists(st.integers(0, 2)), wanted=st.lists(st.integers(0, 2), min_size=1))
def test_a_splice_gives_what_is_wanted_and_keeps_all_it_can(held: list[int], wanted: list[int]) -> None:
    change = splice(held, wanted)
    assert [*held[: change.num_kept], *change.append] == wanted
    assert change.append
    n = change.num_kept
    assert n == len(held) or n == len(wanted) - 1 or held[n] != wanted[n]


@given(
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    text=st.text("abc", max_size=20),
    cuts=st.lists(st.integers(0, 20)),
)
def test_stop_strings_do_not_depend_on_the_pieces(stops: list[str], text: str, cuts: list[int]) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    matcher = StopMatcher(stops)
    emitted = "".join(matcher.push(text[a:b]) for a, b in itertools.pairwise(places))
    emitted += "" if matcher.matched else matcher.flush()
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    assert emitted == (text[: min(ends)[1]] if ends else text)
    assert matcher.matched == bool(ends)
