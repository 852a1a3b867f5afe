"""What a model thinks before it answers, told apart from the answer as it streams.

Thinking stands once, at the beginning of a reply, between a pair of tags that the model was trained on. The template
may have written the opening tag already; or the whole block, empty, so that there is no thinking. A tag that comes
later, or a closing one alone, is text like any other: what has been sent as an answer cannot be taken back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from tenuto.text.marked import MarkedText

Opening: TypeAlias = Literal["open", "free", "shut"]
"""How a prompt leaves a reply: in the middle of thinking, free to think first, or past it."""


class ReasoningTags(NamedTuple):
    """The strings around what a model thinks."""

    open: str
    close: str

    def opening(self, prompt: MarkedText) -> Opening:
        """How a rendered prompt leaves the reply. Tags that content holds are marked, and do not count."""
        end = prompt.text.rstrip()
        if end.endswith(self.open):
            return "open"
        return "shut" if end.endswith(self.close) else "free"


KNOWN_TAGS = (
    ReasoningTags("<think>", "</think>"),  # DeepSeek, Qwen, GLM, SmolLM3 and most others
    ReasoningTags("[THINK]", "[/THINK]"),  # Mistral
    ReasoningTags("<seed:think>", "</seed:think>"),
    ReasoningTags("<|START_THINKING|>", "<|END_THINKING|>"),  # Cohere
    ReasoningTags("◁think▷", "◁/think▷"),  # Kimi
    ReasoningTags("<thinking>", "</thinking>"),
    ReasoningTags("<reasoning>", "</reasoning>"),
)


def reasoning_tags(template: str | None, control: Iterable[str]) -> ReasoningTags | None:
    """The pair that a model uses; None if it does not think.

    It is the one whose closing tag the model's template writes or looks for, or else the one whose tags are both tokens
    of their own in its vocabulary.
    """
    tokens = set(control)
    for tags in KNOWN_TAGS:
        if template is not None and tags.close in template:
            return tags
    return next((tags for tags in KNOWN_TAGS if tokens.issuperset(tags)), None)


_MAX_SPACE = 64  # before an opening tag; after more of it, nothing opens


class Split(NamedTuple):
    """Of one piece of text: what belongs to the thinking, then what belongs to the answer."""

    reasoning: str
    text: str


class ReasoningSplitter:
    """One reply's text. What comes out does not depend on how it is cut into pieces.

    White space around the thinking belongs to neither. Thinking that never closes is thinking to the end.

    Args:
        is_open: the prompt ends in the middle of thinking.
    """

    def __init__(self, tags: ReasoningTags, is_open: bool) -> None:
        self._tags = tags
        self._state: Literal["before", "thinking", "after", "text"] = "thinking" if is_open else "before"
        self._held = ""  # not yet decided: the beginning of a tag, with the white space before an opening one
        self._space: list[str] = []  # at the end of the thinking so far: its own only if it goes on
        self._has_thoughts = False
        self.has_closed = False  # there was thinking, and it is over

    @property
    def is_deciding(self) -> bool:
        """What came so far may turn out to be the beginning of thinking, or text."""
        return self._state == "before"

    @property
    def is_thinking(self) -> bool:
        return self._state == "thinking"

    def push(self, text: str) -> Split:
        """What the text adds. Holds back the beginning of a tag, and white space that may end the thinking."""
        text, self._held = self._held + text, ""
        reasoning = ""
        if self._state == "before":
            text = self._open(text)
        if self._state == "thinking":
            reasoning, text = self._think(text)
        if self._state == "after":
            text = text.lstrip()
            self._state = "text" if text else "after"
        return Split(reasoning, text)

    def finish(self) -> Split:
        """The text is over: what was held back is what it looked like so far."""
        held, self._held = self._held, ""
        if self._state == "thinking":
            return Split(self._say(held), "")
        self._state = "text"
        return Split("", held)

    def _open(self, text: str) -> str:
        """The text after the opening tag; the whole text where no tag can come any more; nothing if that is open."""
        begin = text.lstrip()
        if len(text) - len(begin) <= _MAX_SPACE:
            if begin.startswith(self._tags.open):
                self._state = "thinking"
                return begin[len(self._tags.open) :]
            if self._tags.open.startswith(begin):
                self._held = text
                return ""
        self._state = "text"
        return text

    def _think(self, text: str) -> tuple[str, str]:
        """What belongs to the thinking, and what follows it."""
        close = self._tags.close
        found = text.find(close)
        if found >= 0:
            self._state, self.has_closed = "after", True
            return self._say(text[:found]), text[found + len(close) :]
        num_held = next((n for n in range(min(len(close) - 1, len(text)), 0, -1) if text.endswith(close[:n])), 0)
        self._held = text[len(text) - num_held :]
        return self._say(text[: len(text) - num_held]), ""

    def _say(self, text: str) -> str:
        """The thinking's next characters, without white space at its beginning and, for now, at its end."""
        if not self._has_thoughts:
            text = text.lstrip()
        body = text.rstrip()
        if not body:
            self._space.append(text)
            return ""
        said = "".join(self._space) + body
        self._space, self._has_thoughts = [text[len(body) :]], True
        return said
