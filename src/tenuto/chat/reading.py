"""What a reply says, read at once: the same as its events say piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tenuto.ids import TokenId
from tenuto.protocol.grammar import ReasoningFrame
from tenuto.protocol.messages import ToolSpec
from tenuto.text.reasoning import ReasoningSplitter, ReasoningTags, Split
from tenuto.text.tokenizer import Tokenizer
from tenuto.text.tool_format import CallFinished, Text, ToolCallFormat, ToolCallParser


class Meaning(NamedTuple):
    """Of a reply, or of its beginning as if it were all."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[CallFinished, ...] = ()
    has_opened: bool = False  # there is reasoning, be it empty
    has_closed: bool = False  # and it is over


@dataclass(frozen=True)
class ReplyForm:
    """How replies to one prompt are read: first the reasoning, then text and calls.

    Args:
        tool_format: None where no tools are declared: then everything after the reasoning is text.
        frame: None where the model does not think.
        tools: those declared.
    """

    tokenizer: Tokenizer
    tool_format: ToolCallFormat | None
    frame: ReasoningFrame | None
    tools: tuple[ToolSpec, ...] = ()

    def splitter(self) -> ReasoningSplitter | None:
        """A fresh one, for one reply."""
        if self.frame is None:
            return None
        return ReasoningSplitter(ReasoningTags(self.frame.open, self.frame.close), self.frame.is_open)

    def parser(self) -> ToolCallParser | None:
        """A fresh one, for one reply."""
        return None if self.tool_format is None else self.tool_format.parser(self.tools or None)

    def meaning_of(self, ids: Sequence[TokenId]) -> Meaning:
        return self.meaning(self.tokenizer.decode(ids, skip_control=True, markers=self.tool_format is not None))

    def meaning(self, text: str) -> Meaning:
        splitter, parser = self.splitter(), self.parser()
        reasoning = ""
        if splitter is not None:
            reasoning, text = Split(*map("".join, zip(splitter.push(text), splitter.finish(), strict=True)))
        has_closed = splitter is not None and splitter.has_closed
        has_opened = has_closed or (splitter is not None and splitter.is_thinking)
        if parser is None:
            return Meaning(reasoning, text, (), has_opened, has_closed)
        pieces = [*parser.push(text), *parser.finish()]
        content = "".join(piece.text for piece in pieces if isinstance(piece, Text))
        calls = tuple(piece for piece in pieces if isinstance(piece, CallFinished))
        return Meaning(reasoning, content, calls, has_opened, has_closed)

    def missing(self, whole: Meaning, said: Meaning) -> list[TokenId]:
        """Ids that go on from a beginning of a reply to all of its reasoning and content, spelled anew."""
        ids: list[TokenId] = []
        encode = self.tokenizer.encode
        frame = self.frame
        if frame is not None and whole.has_opened and not said.has_opened:
            ids += self.tokenizer.encode_with_control(frame.open)
        ids += encode(whole.reasoning[len(said.reasoning) :], "inside")
        if frame is not None and whole.has_closed and not said.has_closed:
            ids += self.tokenizer.encode_with_control(frame.close)
        return ids + encode(whole.content[len(said.content) :], "inside")
