"""Scores in the form of the completions API: parallel lists, with places in the text."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

from tenuto.protocol.chat import ScoredToken, TokenScore
from tenuto.server.replies import finite_logprob


class OldLogprobs:
    """Of one choice, from its first token on."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._offset = 0

    def wire(self, scores: Sequence[TokenScore]) -> dict[str, list[Any]]:
        """The next tokens. A token that goes on with a character begins where that character does."""
        reply: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for score in scores:
            reply["tokens"].append(_name(score.token))
            reply["token_logprobs"].append(finite_logprob(score.token.logprob))
            top = {_name(token): finite_logprob(token.logprob) for token in (*score.top, score.token)}
            reply["top_logprobs"].append(top)
            reply["text_offset"].append(self._offset)
            self._offset += len(self._decoder.decode(score.token.data))
        return reply


def _name(token: ScoredToken) -> str:
    """Different for different tokens, also where they stand for parts of a character."""
    try:
        return token.data.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.data)


def joined(pieces: Sequence[dict[str, list[Any]]]) -> dict[str, list[Any]]:
    """The whole of what was told in pieces."""
    return {name: [one for piece in pieces for one in piece[name]] for name in OldLogprobs().wire(())}
