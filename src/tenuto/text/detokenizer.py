"""Token ids to text as they come: whole characters only."""

from __future__ import annotations

import codecs

from tenuto.ids import TokenId
from tenuto.text.tokenizer import Tokenizer


class Detokenizer:
    """One stream of ids. The pieces concatenate to `tokenizer.decode(ids, skip_control=True)`.

    At most 3 bytes, the beginning of a character, are held back, so the cost of an id does not depend on how many
    came before. An invalid byte sequence becomes one U+FFFD for each maximal part (Unicode 3.9, "substitution of
    maximal subparts"); so does a character that is cut off by the end.

    Args:
        skip_control: leave out control tokens; False shows them, for logs.
        markers: show those control tokens that mark tool calls, for their parsers.
        at_start: the ids begin a turn, so the space that some vocabularies put before text is left out, as their own
            decoders do. False for ids that go on with a text: its spaces are its own.
    """

    def __init__(
        self, tokenizer: Tokenizer, skip_control: bool = True, at_start: bool = True, markers: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_control = skip_control
        self._markers = markers
        self._strips_space = at_start and tokenizer.strips_space
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: TokenId) -> str:
        """The characters that the token completes, possibly none."""
        shown = self._tokenizer
        piece = shown.token_bytes(token, self._markers) if self._skip_control else shown.text_bytes(token)
        if self._strips_space and piece:
            piece = piece.removeprefix(b" ")
            self._strips_space = False
        return self._decoder.decode(piece)

    @property
    def is_holding(self) -> bool:
        """What came last is the beginning of a character."""
        return bool(self._decoder.getstate()[0])

    def finish(self) -> str:
        """What is left at the end: nothing, or one U+FFFD for a character cut in two."""
        return self._decoder.decode(b"", final=True)
