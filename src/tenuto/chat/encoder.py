"""A conversation to the token ids a session should hold: generated replies as sampled, the rest encoded."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from tenuto.chat.conversation import Chain, Conversation, Reply, digest_of, without_space
from tenuto.chat.reading import ReplyForm
from tenuto.errors import TemplateError
from tenuto.ids import TokenId
from tenuto.protocol.grammar import ReasoningFrame
from tenuto.protocol.messages import Message, ToolSpec
from tenuto.text.marked import MarkedText
from tenuto.text.template import ChatTemplate
from tenuto.text.tokenizer import Position, Tokenizer
from tenuto.text.tool_format import ToolCallFormat

_PLACEHOLDER = "0tenuto0"  # stands in for a reply's content; letters and digits, so no template trims it


@dataclass(frozen=True)
class EncodingLimits:
    """How much of what was encoded and generated is remembered for requests without a session."""

    max_reply_tokens: int = 200_000  # ids of replies, each counted with 64 more for its frame
    max_piece_chars: int = 4_000_000  # rendered text between replies, kept with its ids
    max_seen_messages: int = 100_000  # digests of conversations, to say why one was not reused


@dataclass(frozen=True)
class Encoded:
    """A conversation in ids, and what is needed to recognise its next reply."""

    conversation: Conversation  # with the reasoning of replies of ours that came back without it
    ids: tuple[TokenId, ...]
    prompt: MarkedText  # the same, as text
    replies: dict[bytes, Reply]  # those of ours whose ids were kept
    lost: dict[bytes, Reply]  # those whose were not
    rewritten: int | None  # index of the first message of ours that the template writes otherwise from now on
    frame: ReasoningFrame | None  # around the next reply's reasoning; None: the model does not think
    may_think: bool  # False: the prompt says that it shall not
    num_known: int  # ids that were computed when the last of the replies was generated

    def reply(self, message: Message, ids: Sequence[TokenId], num_computed: int) -> tuple[bytes, Reply]:
        """The record of a reply generated after this, and the key under which it will be looked for.

        Args:
            num_computed: of the ids.
        """
        chain = Chain.of(self.conversation.tools, self.conversation.tenant)
        for earlier in self.conversation.messages:
            chain.add(earlier)
        num_chars = len(self.prompt.text)
        digest = digest_of(self.prompt, num_chars)
        return chain.add(message), Reply(tuple(ids), message.reasoning, self.frame, num_computed, num_chars, digest)


class ConversationEncoder:
    """Encodes whole conversations, again at each turn, at little cost.

    An assistant message keeps the ids it was generated with if it equals by value one that we produced after equal
    messages with equal tools, and if it still stands after the same rendered text and says the same there (white
    space aside: JSON may be spelled otherwise). What lies between such replies is encoded piece by piece. So the ids
    depend on the conversation and its replies alone, not on how a session came to it: what an append-only turn adds
    is exactly what encoding everything at once would have given. The end-of-turn id is no part of a reply; the
    template's text brings it back, if it ends turns with that id.

    A reply of ours that comes back without its reasoning is rendered with it. Whether reasoning stays in history is for
    the template to say, not for what clients happen to send back. One that comes back with another reasoning is not
    ours.

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
        conversation, ours = self._recognise(conversation, held)
        prompt = self._render(conversation, conversation.messages, opened=True)
        ids: list[TokenId] = []
        used: dict[bytes, Reply] = {}
        lost: dict[bytes, Reply] = {}
        rewritten: int | None = None
        end = num_known = 0
        for index, (key, known) in ours.items():
            reply = self._locate(known, conversation, index)
            stop = _find(reply, prompt, end)
            if stop is None:
                lost[key] = known
                if rewritten is None and not known.is_lost:
                    rewritten = conversation.sources[index]
                continue
            ids += self._encode_piece(prompt.slice(end, reply.num_prompt_chars), self._tokenizer.position_after(ids))
            num_known = len(ids) + reply.num_computed
            ids += reply.ids
            end = stop
            used[key] = reply
            self.remember(key, reply)
        ids += self._encode_piece(prompt.slice(end), self._tokenizer.position_after(ids))
        if not ids:
            raise TemplateError("the chat template makes nothing of these messages: there is no token to go on from")
        frame, may_think = self._frame(prompt)
        return Encoded(conversation, tuple(ids), prompt, used, lost, rewritten, frame, may_think, num_known)

    def _render(self, conversation: Conversation, messages: Sequence[Message], opened: bool) -> MarkedText:
        return self._template.render(messages, conversation.tools, conversation.settings, add_generation_prompt=opened)

    def _frame(self, prompt: MarkedText) -> tuple[ReasoningFrame | None, bool]:
        """How the reply to a prompt is read, and whether it may begin with reasoning.

        A model that thinks although it shall not is understood all the same.
        """
        tags = self._template.reasoning
        if tags is None:
            return None, False
        opening = tags.opening(prompt)
        return ReasoningFrame(open=tags.open, close=tags.close, is_open=opening == "open"), opening != "shut"

    def _recognise(
        self, conversation: Conversation, held: Mapping[bytes, Reply]
    ) -> tuple[Conversation, dict[int, tuple[bytes, Reply]]]:
        """The conversation with the reasoning it has lost on its way, and the replies of ours in it, by index."""
        chain = Chain.of(conversation.tools, conversation.tenant)
        messages: list[Message] = []
        ours: dict[int, tuple[bytes, Reply]] = {}
        for index, message in enumerate(map(self._unfolded, conversation.messages)):
            key = chain.add(message)
            reply = (held.get(key) or self._replies.get(key)) if message.role == "assistant" else None
            if reply is not None and without_space(message.reasoning) in ("", without_space(reply.reasoning)):
                ours[index] = key, reply
                messages.append(msgspec.structs.replace(message, reasoning=reply.reasoning))
            else:
                messages.append(message)
        return replace(conversation, messages=tuple(messages)), ours

    def _unfolded(self, message: Message) -> Message:
        """An assistant's message whose client left the reasoning in its content, with its tags."""
        tags = self._template.reasoning
        if tags is None or message.role != "assistant" or not message.content.lstrip().startswith(tags.open):
            return message
        said = ReplyForm(self._tokenizer, None, ReasoningFrame(open=tags.open, close=tags.close)).meaning(
            message.content
        )
        if not said.has_closed or message.reasoning:
            return message
        return msgspec.structs.replace(message, content=said.content, reasoning=said.reasoning)

    def settle(self, encoded: Encoded) -> None:
        """A turn went on from this: what the template has written otherwise is no news any more."""
        for key, reply in encoded.lost.items():
            self.remember(key, replace(reply, is_lost=True))

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
        written = self._render(conversation, (*before, message), opened=False)
        placeholder = Message(role="assistant", content=_PLACEHOLDER)
        framed = self._render(conversation, (*before, placeholder), opened=False)
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
        return (
            replace(reply, body=body) if self._says(reply.frame, body.plain(), message, conversation.tools) else reply
        )

    def _says(self, frame: ReasoningFrame | None, body: str, message: Message, tools: tuple[ToolSpec, ...]) -> bool:
        """Whether text means the message, white space aside."""
        formats = (self._tool_format,) if message.tool_calls else (None, self._tool_format)
        for tool_format in formats:
            said = ReplyForm(self._tokenizer, tool_format, frame, tools).meaning(body)
            if (
                without_space(said.reasoning) == without_space(message.reasoning)
                and without_space(said.content) == without_space(message.content)
                and [(c.name, c.arguments) for c in said.calls] == [(c.name, c.arguments) for c in message.tool_calls]
            ):
                return True
        return False


def _find(reply: Reply, prompt: MarkedText, end: int) -> int | None:
    """Where the reply ends in the prompt; None if it does not stand in its place, after `end`."""
    start = reply.num_prompt_chars
    if reply.body is None or start < end or digest_of(prompt, start) != reply.prompt_digest:
        return None
    body = reply.body.text.replace(reply.body.mark, prompt.mark)
    return start + len(body) if prompt.text.startswith(body, start) else None
