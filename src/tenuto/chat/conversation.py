"""A conversation as values: what is rendered, what a session already holds of it, and what to append.

Everything here is pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from tenuto.ids import TokenId
from tenuto.protocol.grammar import ReasoningFrame
from tenuto.protocol.messages import Message, ToolSpec
from tenuto.text.marked import MarkedText
from tenuto.text.template import TemplateSettings


@dataclass(frozen=True)
class Conversation:
    """What the template is given."""

    messages: tuple[Message, ...]  # worked examples after the system messages, tool results in call order
    sources: tuple[int | None, ...]  # where each message stood in the request; None: a worked example
    tools: tuple[ToolSpec, ...]  # those the model is told of
    settings: TemplateSettings = field(default_factory=TemplateSettings)
    tenant: str = ""  # whose it is: replies to others are never found

    def with_reply(self, message: Message) -> Conversation:
        index = 1 + max((s for s in self.sources if s is not None), default=-1)
        return replace(self, messages=(*self.messages, message), sources=(*self.sources, index))


@dataclass(frozen=True)
class Reply:
    """An assistant message that we generated: its ids, and where it stood."""

    ids: tuple[TokenId, ...]  # as sampled, without the id that ended the turn
    reasoning: str  # said in these ids, whether or not the message comes back with it
    frame: ReasoningFrame | None  # how the reply is read
    num_computed: int  # so many of its first ids have KV when the turn is over
    num_prompt_chars: int  # length of the rendered text it was generated after
    prompt_digest: bytes  # of that text
    is_lost: bool = False  # the template has written it otherwise once, and a turn went on from that
    body: MarkedText | None = None  # how the template writes the message in history, once that is known


@dataclass(frozen=True)
class Splice:
    """How a session comes to hold the ids of a request: keep some of its own, then append."""

    num_kept: int
    append: tuple[TokenId, ...]


def splice(held: Sequence[TokenId], wanted: Sequence[TokenId]) -> Splice:
    """Keep the common prefix, append the rest. At least one id is appended, so that there is something to compute."""
    assert wanted, "a conversation renders to at least one token"
    limit = min(len(held), len(wanted) - 1)
    if list(held[:limit]) == list(wanted[:limit]):
        num_kept = limit
    else:
        num_kept = next(i for i in range(limit) if held[i] != wanted[i])
    return Splice(num_kept, tuple(wanted[num_kept:]))


def explain_break(old: Conversation, new: Conversation, rewritten: int | None) -> str:
    """Why the ids of `old`, which a session holds, are no beginning of those of `new`.

    Args:
        rewritten: index of the first message of ours that the template now writes otherwise, if any.
    """
    if old.tools != new.tools:
        return "tools differ"
    if old.settings != new.settings:
        return "template options differ"
    for i, message in enumerate(old.messages):
        if i >= len(new.messages) or not _is_same(message, new.messages[i]):
            sources = (old.sources[i], new.sources[i] if i < len(new.messages) else old.sources[i])
            return "examples differ" if None in sources else f"history differs at message {sources[1]}"
    return "template rewrites history" if rewritten is None else f"template rewrites history at message {rewritten}"


def _is_same(old: Message, new: Message) -> bool:
    """Equal by value; and the reasoning, where both have one."""
    thoughts = {without_space(old.reasoning), without_space(new.reasoning)} - {""}
    return value_of(old) == value_of(new) and len(thoughts) < 2


@dataclass
class Chain:
    """Digests of a growing conversation: equal digests, equal tenant, tools and messages by value.

    A message's value is its role, content, calls and call ids, with parsed arguments: how JSON was spelled is no
    part of it. Nor is its reasoning, which most clients do not send back.
    """

    _hash: Any = field(default_factory=lambda: hashlib.blake2b(digest_size=16))

    @classmethod
    def of(cls, tools: Sequence[ToolSpec], tenant: str = "") -> Chain:
        chain = cls()
        chain._hash.update(msgspec.json.encode((tenant, list(tools)), order="deterministic"))
        return chain

    def add(self, message: Message) -> bytes:
        """The digest of everything up to and with the message."""
        self._hash.update(value_of(message))
        digest: bytes = self._hash.copy().digest()
        return digest


def without_space(text: str) -> str:
    return "".join(text.split())


def value_of(message: Message) -> bytes:
    """A message as bytes that are equal for equal values. Self-delimiting: a JSON array."""
    calls = [(call.id, call.name, _plain(call.arguments)) for call in message.tool_calls]
    value = (message.role, message.content, calls, message.tool_call_id, message.name)
    return msgspec.json.encode(value, order="deterministic")


def _plain(value: Any) -> Any:
    """JavaScript writes 1.0 as 1, so a whole number is one number however it is spelled."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def digest_of(text: MarkedText, stop: int) -> bytes:
    """Digest of the first `stop` characters, the same whichever character serves as the mark."""
    digest = hashlib.blake2b(digest_size=16)
    for part in text.text[:stop].split(text.mark):
        data = part.encode("utf-8")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()
