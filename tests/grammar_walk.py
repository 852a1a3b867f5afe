"""Random walks: what a model might write under a grammar if it knew nothing but the mask."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from embedded_tokenizer import embedded_tokenizer
from tenuto.ids import TokenId
from tenuto.protocol.grammar import TokenGrammar, TokenMask


def allowed_ids(mask: TokenMask) -> NDArray[np.intp]:
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))


def allows(mask: TokenMask, token: int) -> bool:
    return bool(mask[token // 32] >> (token % 32) & 1)


_NUDGES = "abzx.0195A-:@é北\\/"  # what the patterns of the test schemas wait for
_CLOSING = (b'"', b"}", b"]", b'"}', b'"]', b", ", b",")


def random_walk(
    grammar: TokenGrammar, rng: random.Random, max_tokens: int, hurry_after: int = 25
) -> list[TokenId] | None:
    """The ids of a finished text, without the end id; None if it did not end in time.

    After `hurry_after` tokens it closes what is open wherever it may, so that most walks end.
    """
    tokenizer = embedded_tokenizer()
    closing = [tokenizer.encode(c.decode())[0] for c in _CLOSING]
    nudging = [tokenizer.encode(c)[0] for c in _NUDGES]
    ids: list[TokenId] = []
    while len(ids) < max_tokens:
        for token in grammar.forced():
            assert grammar.accept(token), "what is forced is allowed"
            ids.append(token)
        if grammar.finished:
            return ids
        mask = grammar.mask()
        is_late = len(ids) > hurry_after
        may_end = any(allows(mask, eos) for eos in tokenizer.eos_ids)
        choices = allowed_ids(mask)
        if may_end and (is_late or len(choices) <= len(tokenizer.eos_ids) or rng.random() < 0.3):
            return ids
        hurried = [c for c in closing if allows(mask, c)] if is_late or rng.random() < 0.2 else []
        nudges = [c for c in nudging if allows(mask, c)] if is_late else []
        others = [rng.choice(nudges)] if nudges and rng.random() < 0.7 else []
        others += [c for c in map(int, rng.choices(choices, k=4)) if c not in tokenizer.eos_ids]
        others = others or [int(c) for c in choices if int(c) not in tokenizer.eos_ids]
        assert others, "the grammar allows nothing, and does not say it is finished"
        token = TokenId(hurried[0] if hurried else others[0])
        assert grammar.accept(token), "what the mask allows is accepted"
        ids.append(token)
    return None
