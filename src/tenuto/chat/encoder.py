"""A conversation to the token ids a session should hold: generated replies as sampled, the rest encoded."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tenuto.chat.conversation import Chain, Conversation, Reply, digest_of
from tenuto.errors import TemplateError
from tenuto.ids import TokenId
from tenuto.protocol.messages import Message
from tenuto.text.marked import MarkedText
from tenuto.text.template import ChatTemplate
from tenuto.text.tokenizer import Position, Tokenizer
from tenuto.text.tool_format import CallFinished, Text, ToolCallFormat

_PLACEHOLDER = "0tenuto0"  # stands in for a reply's content; letters and digits, so no template trims it


@dataclass(frozen=True)
class EncodingLimits:
    """How much of what was encoded and generated is remembered for requests without a session."""

    max_reply_tokens: int = 200_000  # ids of replies, each counted with 64 more for its frame
    max_piece_chars: int = 4_000_000  # rendered text between replies, kept with its ids


@dataclass(frozen=True)
class Encoded:
    """A conversation in ids, and what is needed to recognise its next reply."""

    conversation: Conversation
    ids: tuple[TokenId, ...]
    prompt: MarkedText  # the same, as text
    replies: dict[bytes, Reply]  # those of ours whose ids were kept
    rewritten: int | None  # index of the first message of ours that the template now writes otherwise

    def reply(self, message: Message, ids: Sequence[TokenId]) -> tuple[bytes, Reply]:
        """The record of a reply generated after this, and the key under which it will be looked for."""
        chain = Chain.of(self.conversation.tools)
        for earlier in self.conversation.messages:
            chain.add(earlier)
        num_chars = len(self.prompt.text)
        return chain.add(message), Reply(tuple(ids), num_chars, digest_of(self.prompt, num_chars))


class ConversationEncoder:
    """Encodes whole conversations, again at each turn, at little cost.

    An assistant message keeps the ids it was generated with if it equals by value one that we produced after equal
    messages with equal tools, and if it still stands after the same rendered text and says the same there (white
    space aside: JSON may be spelled otherwise). What lies between such replies is encoded piece by piece. So the ids
    depend on the conversation and its replies alone, not on how a session came to it: what an append-only turn adds
    is exactly what encoding everything at once would have given. The end-of-turn id is no part of a reply; the
    template's text brings it back, if it ends turns with that id.

    Pieces and replies of earlier requests are remembered within bounds, the latest used longest. May be called from
    several threads.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        tool_format: ToolCallFormat,
        limits: EncodingLimits = EncodingLimits(),
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._tool_format = tool_format
        self._limits = limits
        self._lock = threading.Lock()  # held for the memories below, never while rendering or encoding
        self._replies: OrderedDict[bytes, Reply] = OrderedDict()
        self._num_reply_tokens = 0
        self._pieces: OrderedDict[tuple[MarkedText, Position], tuple[TokenId, ...]] = OrderedDict()
        self._num_piece_chars = 0

    def encode(self, conversation: Conversation, held: Mapping[bytes, Reply]) -> Encoded:
        """
        Args:
            held: replies of the session that will take the ids; they win over those of other sessions.

        Raises:
            TemplateError: the template refuses the messages, or makes nothing of them.
        """
        prompt = self._template.render(conversation.messages, conversation.tools, add_generation_prompt=True)
        chain = Chain.of(conversation.tools)
        ids: list[TokenId] = []
        used: dict[bytes, Reply] = {}
        rewritten: int | None = None
        end = 0
        for index, message in enumerate(conversation.messages):
            key = chain.add(message)
            reply = (held.get(key) or self._replies.get(key)) if message.role == "assistant" else None
            if reply is None:
                continue
            reply = self._locate(reply, conversation, index)
            stop = _find(reply, prompt, end)
            if stop is None:
                rewritten = conversation.sources[index] if rewritten is None else rewritten
                continue
            ids += self._encode_piece(prompt.slice(end, reply.num_prompt_chars), self._tokenizer.position_after(ids))
            ids += reply.ids
            end = stop
            used[key] = reply
            self.remember(key, reply)
        ids += self._encode_piece(prompt.slice(end), self._tokenizer.position_after(ids))
        if not ids:
            raise TemplateError("the chat template makes nothing of these messages: there is no token to go on from")
        return Encoded(conversation, tuple(ids), prompt, used, rewritten)

    def remember(self, key: bytes, reply: Reply) -> None:
        """Keep a reply for later requests, with or without a session."""
        with self._lock:
            self._forget(key)
            self._replies[key] = reply
            self._num_reply_tokens += len(reply.ids) + 64
            while self._num_reply_tokens > self._limits.max_reply_tokens:
                self._forget(next(iter(self._replies)))

    def _forget(self, key: bytes) -> None:
        reply = self._replies.pop(key, None)
        if reply is not None:
            self._num_reply_tokens -= len(reply.ids) + 64

    def _encode_piece(self, piece: MarkedText, position: Position) -> tuple[TokenId, ...]:
        key = (piece, position)
        with self._lock:
            known = self._pieces.get(key)
        if known is None:
            known = tuple(self._tokenizer.encode(piece, position))
        with self._lock:
            if key not in self._pieces:
                self._num_piece_chars += len(piece.text)
            self._pieces[key] = known
            self._pieces.move_to_end(key)
            while self._num_piece_chars > self._limits.max_piece_chars:
                (oldest, _), _ = self._pieces.popitem(last=False)
                self._num_piece_chars -= len(oldest.text)
        return known

    def _locate(self, reply: Reply, conversation: Conversation, index: int) -> Reply:
        """Find out how the template writes a reply in history: render up to it, and once more with a placeholder.

        What comes after the placeholder is the template's, so what stands before that in the other is the reply's.
        The body stays unknown where the template writes something else than the reply said, or not there.
        """
        if reply.body is not None:
            return reply
        before, message = conversation.messages[:index], conversation.messages[index]
        written = self._template.render((*before, message), conversation.tools, add_generation_prompt=False)
        placeholder = Message(role="assistant", content=_PLACEHOLDER)
        framed = self._template.render((*before, placeholder), conversation.tools, add_generation_prompt=False)
        _, found, tail = framed.text.rpartition(_PLACEHOLDER)
        start, stop = reply.num_prompt_chars, len(written.text) - len(tail)
        if (
            not found
            or not written.text.endswith(tail)
            or start > stop
            or digest_of(written, start) != (reply.prompt_digest)
        ):
            return reply
        body = written.slice(start, stop)
        return replace(reply, body=body) if self._says(body.plain(), message) else reply

    def _says(self, body: str, message: Message) -> bool:
        """Whether text means the message, white space aside."""
        if not message.tool_calls and _squeeze(body) == _squeeze(message.content):
            return True
        parser = self._tool_format.parser()
        pieces = [*parser.push(body), *parser.finish()]
        content = "".join(piece.text for piece in pieces if isinstance(piece, Text))
        calls = [(piece.name, piece.arguments) for piece in pieces if isinstance(piece, CallFinished)]
        return _squeeze(content) == _squeeze(message.content) and calls == [
            (call.name, call.arguments) for call in message.tool_calls
        ]


def _find(reply: Reply, prompt: MarkedText, end: int) -> int | None:
    """Where the reply ends in the prompt; None if it does not stand in its place, after `end`."""
    start = reply.num_prompt_chars
    if reply.body is None or start < end or digest_of(prompt, start) != reply.prompt_digest:
        return None
    body = reply.body.text.replace(reply.body.mark, prompt.mark)
    return start + len(body) if prompt.text.startswith(body, start) else None


def _squeeze(text: str) -> str:
    return "".join(text.split())
