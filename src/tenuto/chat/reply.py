"""The ids of one reply, as they come, to events; and which of them the session may keep."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence

from tenuto.chat.scores import ScoreBook
from tenuto.chat.stop_strings import StopMatcher
from tenuto.ids import CallId, IdSource, TokenId
from tenuto.protocol.chat import ModelEvent, TextDelta, ToolCallDelta, ToolCallFinished, ToolCallStarted
from tenuto.protocol.engine import TokenLogprob
from tenuto.protocol.messages import Message, ToolCall
from tenuto.text.detokenizer import Detokenizer
from tenuto.text.tokenizer import Tokenizer
from tenuto.text.tool_format import CallArguments, CallFinished, CallStarted, ParsedPiece, Text, ToolCallFormat

_MAX_TAG_TOKENS = 16  # no closing tag has more
_MAX_PART_CHARS = 32  # nor has a part of a character or of a tag, which is text where a reply ends there


class ReplyReader:
    """Detokenizes, parses tool calls and matches stop strings, in this order.

    Stop strings are looked for in the text for the user only, never in a call, not even one that is cut off. A
    character that the end cuts in two is dropped. Text of a call that the end cuts off is text for the user. With
    `parallel_tool_calls` off, whatever follows the first call is dropped.

    Args:
        tool_format: None where no tools are declared: then everything is text.
        ids: draws the call ids.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        tool_format: ToolCallFormat | None,
        stops: Sequence[str],
        ids: IdSource,
        parallel_tool_calls: bool,
    ) -> None:
        self._tokenizer = tokenizer
        self._tool_format = tool_format
        self._call_ids = ids
        self._parallel = parallel_tool_calls
        self._detokenizer = Detokenizer(tokenizer)
        self._parser = tool_format.parser() if tool_format is not None else None
        self._stop = StopMatcher(stops)
        self._scores = ScoreBook(tokenizer)
        self._ids: list[TokenId] = []
        self._num_call_ids: int | None = None  # ids until the only call allowed was there
        self._dropped = False  # something came after it
        self._half_character = False
        self._num_before_text = 0  # ids until the last call was there: only text can have followed
        self._kept: tuple[list[TokenId], list[TokenId]] | None = None  # once it is known what the reply keeps
        self._num_settled = 0  # ids that the reply keeps whatever follows; they may be scored
        self._content: list[str] = []
        self._calls: list[ToolCall] = []
        self._open: tuple[CallId, str] | None = None  # the call that is being written
        self._num_started = 0  # also calls that then broke off: no two share an index

    @property
    def stopped(self) -> bool:
        """A stop string was found: the reply is over, and nothing after it matters."""
        return self._stop.matched

    @property
    def message(self) -> Message:
        return Message(role="assistant", content="".join(self._content), tool_calls=tuple(self._calls))

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
                yield from self._scores.release(self._num_settled)
            yield from events

    def _push(self, token: TokenId) -> list[ModelEvent]:
        self._ids.append(token)
        text = self._detokenizer.push(token)
        events = self._read(self._parse(text)) if text else []
        if any(isinstance(event, ToolCallFinished) for event in events):
            self._num_before_text = len(self._ids)
        if self._calls and not self._parallel and self._num_call_ids is None:
            self._num_call_ids = len(self._ids)
        if self.stopped:
            self._num_settled = len(self.kept_ids()[0])
        elif not (self.is_complete or self._stop.is_holding) and (text or not self._tokenizer.token_bytes(token)):
            self._num_settled = len(self._ids)
        return events

    def finish(self) -> list[ModelEvent]:
        """The events of what was held back. Not after a stop string."""
        self._half_character = bool(self._detokenizer.finish())
        events = self._read(self._parser.finish() if self._parser is not None else [])
        events += self._text(self._stop.flush())
        return self._scores.release(len(self.kept_ids()[0])) + events

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
                return self._text(self._stop.flush() + text)
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
                return [ToolCallFinished(index=self._num_started - 1, call=call)]

    def _text(self, text: str) -> list[ModelEvent]:
        if not text:
            return []
        self._content.append(text)
        return [TextDelta(text=text)]

    def kept_ids(self) -> tuple[list[TokenId], list[TokenId]]:
        """The ids that say what was emitted and no more: (of those sampled, the first so many; to be added to them).

        A stop string, or half a character at the end, may begin within a token. That token goes, and what was emitted
        of it is encoded anew.
        """
        if self._dropped:
            return self._ids[: self._end_of_call()], []
        if not self.stopped and not self._half_character:
            return self._ids, []
        if self._kept is None:
            self._kept = self._cut_back("".join(self._content))
        return self._kept

    def _cut_back(self, content: str) -> tuple[list[TokenId], list[TokenId]]:
        """After the last call the text only grows, but for parts of characters and tags: so look for the place by
        halves, each look reads the whole reply, and then step by step."""
        ids = range(self._num_before_text, len(self._ids) + 1)
        found = bisect.bisect_right(
            ids, len(content) + _MAX_PART_CHARS, key=lambda num: len(self._meaning_of(self._ids[:num])[0])
        )
        for num_kept in range(min(self._num_before_text + found, len(self._ids)), 0, -1):
            said, _ = self._meaning_of(self._ids[:num_kept])
            if content.startswith(said):
                return self._ids[:num_kept], self._tokenizer.encode(content[len(said) :], "inside")
        return [], self._tokenizer.encode(content)

    def _end_of_call(self) -> int:
        """Number of ids up to and with the closing tag of the only call: the parser tells of a call before its tag."""
        assert self._num_call_ids is not None
        meaning = ("".join(self._content), 1)
        ends = range(self._num_call_ids, min(self._num_call_ids + _MAX_TAG_TOKENS, len(self._ids)) + 1)
        return max((end for end in ends if self._meaning_of(self._ids[:end]) == meaning), default=self._num_call_ids)

    def _meaning_of(self, ids: Sequence[TokenId]) -> tuple[str, int]:
        """Text for the user and number of calls in these ids, had they been all."""
        text = self._tokenizer.decode(ids, skip_control=True)
        if self._tool_format is None:
            return text, 0
        parser = self._tool_format.parser()
        pieces = [*parser.push(text), *parser.finish()]
        content = "".join(piece.text for piece in pieces if isinstance(piece, Text))
        return content, sum(isinstance(piece, CallFinished) for piece in pieces)
