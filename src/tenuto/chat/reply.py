"""The ids of one reply, as they come, to events; and which of them the session may keep."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence

from tenuto.chat.reading import Meaning, ReplyForm
from tenuto.chat.scores import ScoreBook
from tenuto.chat.stop_strings import StopMatcher
from tenuto.ids import CallId, IdSource, TokenId
from tenuto.protocol.chat import ModelEvent, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallFinished, ToolCallStarted
from tenuto.protocol.engine import TokenLogprob
from tenuto.protocol.messages import Message, ToolCall
from tenuto.text.detokenizer import Detokenizer
from tenuto.text.tool_format import CallArguments, CallFinished, CallStarted, ParsedPiece, Text

_MAX_TAG_TOKENS = 16  # no closing tag has more
_MAX_PART_CHARS = 32  # nor has a part of a character or of a tag, which is text where a reply ends there


class ReplyReader:
    """Detokenizes, takes out the reasoning, parses tool calls and matches stop strings, in this order.

    Stop strings are looked for in the text for the user only, never in reasoning nor in a call, not even one that is
    cut off. A character that the end cuts in two is dropped. A call that the token limit cuts off stays what was sent
    of it, without a ToolCallFinished; one that the model broke off itself is text for the user. With
    `parallel_tool_calls` off, whatever follows the first call is dropped.

    Args:
        ids: draws the call ids.
    """

    def __init__(self, form: ReplyForm, stops: Sequence[str], ids: IdSource, parallel_tool_calls: bool) -> None:
        self._form = form
        self._tokenizer = form.tokenizer
        self._call_ids = ids
        self._parallel = parallel_tool_calls
        self._detokenizer = Detokenizer(form.tokenizer, markers=form.tool_format is not None)
        self._splitter = form.splitter()
        self._parser = form.parser()
        self._stop = StopMatcher(stops)
        self._scores = ScoreBook(form.tokenizer)
        self._ids: list[TokenId] = []
        self._num_call_ids: int | None = None  # ids until the only call allowed was there
        self._dropped = False  # something came after it
        self._half_character = False
        self._is_cut = self._has_cut_call = False  # by the token limit
        self._num_before_text = 0  # ids until reasoning and the last call were there: only text can have followed
        self.num_reasoning = 0  # ids of the reasoning, its tags among them
        self._kept: tuple[list[TokenId], list[TokenId]] | None = None  # once it is known what the reply keeps
        self._num_settled = 0  # ids that the reply keeps whatever follows; they may be scored
        self._thoughts: list[str] = []
        self._content: list[str] = []
        self._calls: list[ToolCall] = []
        self._open: tuple[CallId, str] | None = None  # the call that is being written
        self._num_said_before = 0  # pieces of text before the last call
        self._num_started = 0  # also calls that then broke off: no two share an index

    @property
    def stopped(self) -> bool:
        """A stop string was found: the reply is over, and nothing after it matters."""
        return self._stop.matched

    @property
    def message(self) -> Message:
        return Message(
            role="assistant",
            content="".join(self._content),
            reasoning="".join(self._thoughts),
            tool_calls=tuple(self._calls),
        )

    @property
    def is_complete(self) -> bool:
        """Nothing can follow: a stop string was found, or the only call allowed was made."""
        return self.stopped or self._num_call_ids is not None

    def push_all(self, ids: Sequence[TokenId], logprobs: Sequence[TokenLogprob] = ()) -> Iterator[ModelEvent]:
        """The events that ids complete, up to a stop string. Not for the id that ends the turn.

        Args:
            logprobs: one for each id, or none at all.
        """
        assert len(logprobs) in (0, len(ids))
        for place, token in enumerate(ids):
            if self.stopped:
                return
            events = self._push(token)
            if logprobs:
                self._scores.add(token, logprobs[place])
                yield from self._scores.release(self._num_settled, self.num_reasoning)
            yield from events

    def _push(self, token: TokenId) -> list[ModelEvent]:
        self._ids.append(token)
        text = self._detokenizer.push(token)
        events = self._take(text) if text else []
        if any(isinstance(event, ToolCallFinished) for event in events):
            self._num_before_text = len(self._ids)
        if self._calls and not self._parallel and self._num_call_ids is None:
            self._num_call_ids = len(self._ids)
        if self.stopped:
            self._num_settled = len(self.kept_ids()[0])
        elif not (self.is_complete or self._is_undecided) and (
            text or not self._tokenizer.token_bytes(token, markers=True)
        ):
            self._num_settled = len(self._ids)
        return events

    @property
    def _is_undecided(self) -> bool:
        """What came last may be the beginning of a stop string, or of reasoning."""
        return self._stop.is_holding or (self._splitter is not None and self._splitter.is_deciding)

    def _take(self, text: str) -> list[ModelEvent]:
        splitter = self._splitter
        if splitter is None:
            return self._read(self._parse(text))
        was_closed = splitter.has_closed
        thought, text = splitter.push(text)
        if splitter.is_thinking or splitter.has_closed > was_closed:
            self.num_reasoning = self._num_before_text = len(self._ids)
        return self._think(thought) + (self._read(self._parse(text)) if text else [])

    def finish(self, is_cut: bool = False) -> list[ModelEvent]:
        """The events of what was held back. Not after a stop string.

        Args:
            is_cut: by the token limit: the model wanted to say more.
        """
        self._half_character = bool(self._detokenizer.finish())
        self._is_cut = is_cut
        events: list[ModelEvent] = []
        if self._splitter is not None:
            thought, text = self._splitter.finish()
            events += self._think(thought) + (self._read(self._parse(text)) if text else [])
        events += self._read(self._whole_tags(self._parser.finish() if self._parser is not None else []))
        events += self._text(self._stop.flush())
        num_out = len(self._ids if self._has_cut_call else self.kept_ids()[0])
        return self._scores.release(num_out, self.num_reasoning) + events

    def _whole_tags(self, pieces: Sequence[ParsedPiece]) -> Sequence[ParsedPiece]:
        """Without what is left of a last call's closing tag that the token limit cut in two."""
        if self._is_cut and self._calls and len(self._content) == self._num_said_before:
            self._has_cut_call = self._has_cut_call or bool(pieces)
            return [piece for piece in pieces if not isinstance(piece, Text) or piece.is_cut_call]
        return pieces

    def _think(self, text: str) -> list[ModelEvent]:
        if not text:
            return []
        self._thoughts.append(text)
        return [ReasoningDelta(text=text)]

    def _parse(self, text: str) -> Sequence[ParsedPiece]:
        return self._parser.push(text) if self._parser is not None else [Text(text)]

    def _read(self, pieces: Iterable[ParsedPiece]) -> list[ModelEvent]:
        events: list[ModelEvent] = []
        for piece in pieces:
            if self.stopped:
                break
            if self._calls and not self._parallel:
                self._dropped = True
                break
            events += self._event(piece)
        return events

    def _event(self, piece: ParsedPiece) -> list[ModelEvent]:
        match piece:
            case Text(text, is_cut_call=True):
                # Its arguments so far are out, or there was no more of it than the beginning of its frame.
                self._has_cut_call = self._is_cut
                return self._text(self._stop.flush() + ("" if self._is_cut else text))
            case Text(text):
                return self._text(self._stop.push(text))
            case CallStarted(name):
                before = self._text(self._stop.flush())
                self._open = (self._call_ids.call(), name)
                self._num_started += 1
                return [*before, ToolCallStarted(index=self._num_started - 1, id=self._open[0], name=name)]
            case CallArguments(text):
                return [ToolCallDelta(index=self._num_started - 1, arguments=text)]
            case CallFinished(name, arguments):
                assert self._open is not None, "a call finishes after it started"
                call = ToolCall(id=self._open[0], name=name, arguments=arguments)
                self._open = None
                self._calls.append(call)
                self._num_said_before = len(self._content)
                return [ToolCallFinished(index=self._num_started - 1, call=call)]

    def _text(self, text: str) -> list[ModelEvent]:
        if not text:
            return []
        self._content.append(text)
        return [TextDelta(text=text)]

    def kept_ids(self) -> tuple[list[TokenId], list[TokenId]]:
        """The ids that say what was emitted and no more: (of those sampled, the first so many; to be added to them).

        A stop string, or half a character at the end, may begin within a token. That token goes, and what was emitted
        of it is encoded anew. A call that was cut off goes too: no message can hold it, so it never comes back.
        """
        if self._dropped:
            return self._ids[: self._end_of_call()], []
        if not (self.stopped or self._half_character or self._has_cut_call):
            return self._ids, []
        if self._kept is None:
            self._kept = self._cut_back(self._meaning())
        return self._kept

    def _meaning(self) -> Meaning:
        """What was emitted."""
        splitter = self._splitter
        has_closed = splitter is not None and splitter.has_closed
        has_opened = has_closed or (splitter is not None and splitter.is_thinking)
        return Meaning("".join(self._thoughts), "".join(self._content), (), has_opened, has_closed)

    def _cut_back(self, whole: Meaning) -> tuple[list[TokenId], list[TokenId]]:
        """After the last call the text only grows, but for parts of characters and tags: so look for the place by
        halves, each look reads the whole reply, and then step by step."""
        ids = range(self._num_before_text, len(self._ids) + 1)
        text = whole.reasoning + whole.content
        found = bisect.bisect_right(ids, len(text) + _MAX_PART_CHARS, key=lambda num: len(self._said(num)[1]))
        for num_kept in range(min(self._num_before_text + found, len(self._ids)), 0, -1):
            said, its_text = self._said(num_kept)
            if text.startswith(its_text):
                return self._ids[:num_kept], self._form.missing(whole, said)
        return [], self._form.missing(whole, Meaning())

    def _said(self, num_ids: int) -> tuple[Meaning, str]:
        """What the first ids say, had they been all."""
        said = self._form.meaning_of(self._ids[:num_ids])
        return said, said.reasoning + said.content

    def _end_of_call(self) -> int:
        """Number of ids up to and with the closing tag of the only call: the parser tells of a call before its tag."""
        assert self._num_call_ids is not None
        text = "".join(self._content)
        ends = range(self._num_call_ids, min(self._num_call_ids + _MAX_TAG_TOKENS, len(self._ids)) + 1)

        def ends_with_call(end: int) -> bool:
            said = self._form.meaning_of(self._ids[:end])
            return said.content == text and len(said.calls) == 1

        return max(filter(ends_with_call, ends), default=self._num_call_ids)
