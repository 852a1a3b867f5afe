"""A model that talks: a small vocabulary, and an executor whose replies are texts, calls, thoughts and nonsense, cut
into tokens at random. What it says follows from the tokens that it reads through the block tables, and from nothing
else, so the same request gets the same reply."""

from __future__ import annotations

import random
import zlib
from functools import lru_cache
from typing import Any

import numpy as np

from embedded_tokenizer import embedded_files
from tenuto.checkpoint import TokenizerFiles
from tenuto.checkpoint.config import GGUFTokenizer
from tenuto.ids import TokenId
from tenuto.testing import FakeExecutor
from tenuto.testing.fake_executor import Row
from tenuto.text.tokenizer import Tokenizer
from tenuto.text.tool_format import TextFormat

NUM_MERGES = 900
CONTROL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>")
TOOL_NAMES = ("weather", "ping", "天气", "add_numbers")
STOPS = ("STOP", "停", "\n\n", "END", "好的", "🌦️")
WORDS = (
    *(
        "hello",
        "the",
        " rain",
        "北京",
        "今天",
        "天气",
        "👨‍👩‍👧",
        "é",
        "한국",
        "🌦️",
        "{",
        "}",
        "[",
        "]",
        '"',
        "\n",
        "\n\n",
        " ",
        "<",
    ),
    *("<tool_call>", "</tool_call>", "<tool_", "STOP", "STO", "停", "END", "好的", "0", "25°C", "\\", "null", "\u2028"),
)
_CONTROL_TYPE = 3


@lru_cache(maxsize=1)
def small_tokenizer() -> Tokenizer:
    """All bytes, the first merges of the embedded model's vocabulary, and control tokens."""
    large = embedded_files().gguf
    assert large is not None
    merges = [merge for merge in large.merges[:NUM_MERGES] if len(merge.split(" ")) == 2]
    plain = [t for t in large.tokens if len(t) == 1]
    tokens = list(dict.fromkeys([*plain, *("".join(merge.split(" ")) for merge in merges)]))
    types = [1] * len(tokens) + [_CONTROL_TYPE] * len(CONTROL)
    files = GGUFTokenizer(
        kind="gpt2",
        pre="smollm",
        tokens=[*tokens, *CONTROL],
        token_types=types,
        merges=merges,
        scores=[],
        add_space_prefix=False,
    )
    return Tokenizer.from_files(TokenizerFiles(gguf=files, eos_ids=(len(tokens) + 1, len(tokens) + 2)))


@lru_cache(maxsize=1)
def _ids_by_bytes() -> dict[bytes, int]:
    tokenizer = small_tokenizer()
    control = set(tokenizer.control.values())
    return {tokenizer.token_bytes(TokenId(i)): i for i in range(tokenizer.vocab_size) if i not in control}


def split(text: bytes, rng: random.Random) -> list[int]:
    """Ids that say the text, some cut inside its characters."""
    known, ids, at = _ids_by_bytes(), [], 0
    while at < len(text):
        fitting = [n for n in range(1, 9) if text[at : at + n] in known and at + n <= len(text)]
        length = rng.choice(fitting)
        ids.append(known[text[at : at + length]])
        at += length
    return ids


def words(rng: random.Random, most: int = 8) -> str:
    return "".join(rng.choice(WORDS) for _ in range(rng.randint(0, most)))


class TalkingExecutor(FakeExecutor):
    """Args:
    tool_format: how it writes calls.
    """

    def __init__(self, tool_format: TextFormat, **options: Any) -> None:
        tokenizer = small_tokenizer()
        super().__init__(vocab_size=tokenizer.vocab_size, **options)
        self._format = tool_format
        self._start = tokenizer.control["<|im_start|>"]
        self._end = tokenizer.control["<|im_end|>"]
        self._think = [tokenizer.control[tag] for tag in ("<think>", "</think>")]
        self._header = 1 + len(tokenizer.encode("assistant\n"))
        self._plans: dict[tuple[int, int], list[int]] = {}

    def choose(self, row: Row) -> TokenId:
        said = row.tokens
        turns = np.flatnonzero(said == np.uint64(self._start))
        begin = min(len(said), int(turns[-1]) + self._header) if len(turns) else min(len(said), 12)
        seed = row.sampling.seed if row.sampling.temperature > 0 else -1
        plan = self._plan(zlib.crc32(said[max(0, begin - 60) : begin].tobytes()), seed)
        place = len(said) - begin
        if not len(turns):  # text that goes on without turns
            return self._allowed(row, plan[place % len(plan)])
        follows = place < len(plan) and said[begin:].tolist() == plan[:place]
        return self._allowed(row, plan[place] if follows else self._end)

    def _allowed(self, row: Row, token: int) -> TokenId:
        """The token, or another one where a grammar has none of it."""
        if row.mask is not None and not row.mask.view(np.uint8)[token >> 3] >> (token & 7) & 1:
            return super().choose(row)
        return TokenId(token)

    def _plan(self, digest: int, seed: int) -> list[int]:
        plan = self._plans.get((digest, seed))
        if plan is None:
            if len(self._plans) > 500:
                self._plans.clear()
            plan = self._plans[digest, seed] = self._drawn(random.Random(f"{digest} {seed}"))
        return plan

    def _drawn(self, rng: random.Random) -> list[int]:
        ids: list[int] = []
        if rng.random() < 0.3:
            text = split(words(rng).encode(), rng)
            ids += [self._think[0], *text, *([self._think[1]] if rng.random() < 0.8 else [])]
        for _ in range(rng.randint(1, 2)):
            ids += self._part(rng)
        return [*ids, *([self._end] if rng.random() < 0.9 else split(b"and so on " * 8, rng))]

    def _part(self, rng: random.Random) -> list[int]:
        kind = rng.choice(("words", "words", "call", "call", "broken call", "json", "noise"))
        if kind == "noise":
            return [rng.randrange(self.vocab_size) for _ in range(rng.randint(1, 6))]
        if kind == "json":
            return split(b'{"a": [1, "x"], "city": "\\u5317\\u4eac"}', rng)
        if kind == "words":
            return split(words(rng).encode(), rng)
        arguments = {"city": words(rng, 2)} if rng.random() < 0.7 else {}
        written = self._format.write([(rng.choice(TOOL_NAMES), arguments)] * rng.randint(1, 2))
        if kind == "broken call":
            at = rng.randint(0, len(written))
            written = written[:at] + words(rng, 2) + written[at + rng.randint(0, 3) :]
        return split(written.encode(), rng)
