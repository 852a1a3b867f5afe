"""Conversations that were seen before, so that a request without a session can be told why their KV was of no use."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tenuto.chat.conversation import Chain, Conversation, value_of
from tenuto.protocol.messages import Message

EVICTED = "not in the prefix cache any more"
_MIN_TELLING_CHARS = 16  # of a reply by which it is known wherever it stands: "OK" is said in every conversation


@dataclass(frozen=True)
class Expectation:
    """What of a prompt earlier turns have computed, as far as that is known."""

    num_known: int = 0  # tokens of the prompt; 0: none, or not the same ones
    history_break: str | None = None  # why not all that a client may expect
    block_size: int = 1

    def explain(self, num_reused: int) -> str | None:
        """Why more was computed than what is new and at most one block; None if it was not.

        Args:
            num_reused: tokens of the prompt whose KV was held, or found in the prefix cache.
        """
        if self.history_break is not None:
            return self.history_break
        return EVICTED if num_reused < self.num_known // self.block_size * self.block_size else None


class SeenConversations:
    """Remembers digests only, the latest used longest. May be called from several threads.

    Args:
        max_messages: how many messages are remembered, each with all that stood before it.
    """

    def __init__(self, max_messages: int) -> None:
        assert max_messages >= 1
        self._max_messages = max_messages
        self._lock = threading.Lock()
        self._places: OrderedDict[bytes, bytes] = OrderedDict()  # conversation up to a message → what framed it
        self._replies: OrderedDict[bytes, None] = OrderedDict()  # ours, wherever they stand

    def remember(self, conversation: Conversation) -> None:
        """A conversation whose last message is a reply of ours."""
        frame, places = _frame(conversation), _places(conversation)
        with self._lock:
            for place in places:
                self._places[place] = frame
                self._places.move_to_end(place)
            if _is_telling(conversation.messages[-1]):
                self._replies[_value(conversation, conversation.messages[-1])] = None
            while len(self._places) > self._max_messages:
                self._places.popitem(last=False)
            while len(self._replies) > self._max_messages:
                self._replies.popitem(last=False)

    def explain(self, conversation: Conversation, rewritten: int | None) -> str | None:
        """What keeps a conversation from going on where an earlier turn of it ended; None if nothing does, or if it
        was never seen.

        Args:
            rewritten: index of the first message of ours that the template now writes otherwise.
        """
        turns = [i for i, m in enumerate(conversation.messages) if m.role == "assistant" and _is_real(conversation, i)]
        if not turns:
            return None
        with self._lock:
            places = _places(conversation)
            num_seen = next((i for i, place in enumerate(places) if place not in self._places), len(places))
            frame = self._places[places[turns[-1]]] if num_seen > turns[-1] else None
            is_ours = frame is not None or self._knows(conversation, num_seen, turns)
        if frame is not None and frame != _frame(conversation):
            return "tools or template options differ"
        if rewritten is not None and (frame is not None or conversation.sources.index(rewritten) < num_seen):
            return f"template rewrites history at message {rewritten}"
        if frame is not None or not is_ours:
            return None
        source = conversation.sources[num_seen]
        return "examples differ" if source is None else f"history differs at message {source}"

    def _knows(self, conversation: Conversation, num_seen: int, turns: Sequence[int]) -> bool:
        """Whether a conversation that is new from some message on was ours nevertheless: a question is known that we
        were asked, or further on a reply that we gave."""
        messages = conversation.messages
        if any(messages[i].role == "user" and _is_real(conversation, i) for i in range(num_seen)):
            return True
        return any(_value(conversation, messages[i]) in self._replies for i in turns if i >= num_seen)


def _is_real(conversation: Conversation, index: int) -> bool:
    """No worked example."""
    return conversation.sources[index] is not None


def _is_telling(message: Message) -> bool:
    return bool(message.tool_calls) or len(message.content) >= _MIN_TELLING_CHARS


def _places(conversation: Conversation) -> list[bytes]:
    """The conversation up to and with each message, without its tools."""
    chain = Chain.of((), conversation.tenant)
    return [chain.add(message) for message in conversation.messages]


def _frame(conversation: Conversation) -> bytes:
    settings = (conversation.settings.thinking, conversation.settings.options)
    return _digest(msgspec.json.encode((list(conversation.tools), settings), order="deterministic"))


def _value(conversation: Conversation, message: Message) -> bytes:
    return _digest(conversation.tenant.encode() + b"\0" + value_of(message))


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
