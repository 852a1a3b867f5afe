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
    """

    def __init__(self, tokenizer: Tokenizer, skip_control: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_control = skip_control
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: TokenId) -> str:
        """The characters that the token completes, possibly none."""
        if self._skip_control:
            return self._decoder.decode(self._tokenizer.token_bytes(token))
        return self._decoder.decode(self._tokenizer.text_bytes(token))

    def finish(self) -> str:
        """What is left at the end: nothing, or one U+FFFD for a character cut in two."""
        return self._decoder.decode(b"", final=True)
