"""A grammar without text: per position, the ids that may come, some of them forced. Drawn from a seed."""

from __future__ import annotations

import random

import numpy as np

from tenuto.errors import GrammarError
from tenuto.ids import TokenId
from tenuto.protocol.grammar import GrammarSpec, TokenMask


class ToyGrammar:
    """Implements `TokenGrammar`. `program[i]` lists the ids allowed at position i; a single one is forced.

    Two faults can be built in: at `dead_at` nothing is allowed although more should come, and at `refuse_at` what
    the mask allows is refused.
    """

    def __init__(
        self,
        program: tuple[tuple[TokenId, ...], ...],
        vocab_size: int,
        *,
        dead_at: int | None = None,
        refuse_at: int | None = None,
    ) -> None:
        self.position = 0
        self._program = program
        self._vocab_size = vocab_size
        self._dead_at = dead_at
        self._refuse_at = refuse_at

    def mask(self) -> TokenMask:
        words = np.zeros(-(-self._vocab_size // 32), dtype=np.uint32)
        if self.position == self._dead_at or self.finished:
            return words
        for token in self._program[self.position]:
            words[token // 32] |= np.uint32(1 << (token % 32))
        return words

    def accept(self, token: TokenId) -> bool:
        if self.finished or self.position == self._refuse_at or token not in self._program[self.position]:
            return False
        self.position += 1
        return True

    def forced(self) -> tuple[TokenId, ...]:
        run: list[TokenId] = []
        for index in range(self.position, len(self._program)):
            if len(self._program[index]) > 1 or index in (self._dead_at, self._refuse_at):
                break
            run.append(self._program[index][0])
        return tuple(run)

    def rollback(self, num_tokens: int) -> None:
        assert num_tokens <= self.position
        self.position -= num_tokens

    def fork(self) -> ToyGrammar:
        copy = ToyGrammar(self._program, self._vocab_size, dead_at=self._dead_at, refuse_at=self._refuse_at)
        copy.position = self.position
        return copy

    @property
    def finished(self) -> bool:
        return self.position >= len(self._program)


class ToyGrammarCompiler:
    """Implements `GrammarCompiler`: the source is a seed, or `dead SEED`, `refuse SEED`, `bad`."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size

    def compile(self, spec: GrammarSpec) -> ToyGrammar:
        """Raises GrammarError for the source `bad`."""
        kind, _, seed = spec.source.rpartition(" ")
        if seed == "bad":
            raise GrammarError("toy grammar: this source is meant not to compile")
        rng = random.Random(f"toy grammar {seed}")
        # Few ids, and in half of the grammars the whole again and again, as in lists and rows: what repeats is drafted.
        pool = [TokenId(t) for t in rng.sample(range(self._vocab_size), 12)]
        program: list[tuple[TokenId, ...]] = []
        for _ in range(rng.randint(1, 4)):
            for _ in range(rng.randint(0, 6)):  # a forced run
                program.append((rng.choice(pool),))
            for _ in range(rng.randint(0, 4)):  # free, but not all ids
                program.append(tuple(rng.sample(pool, rng.randint(2, 12))))
        if not program:
            program.append((TokenId(0), TokenId(1)))
        program *= rng.choice((1, 3))
        at = rng.randrange(len(program))
        return ToyGrammar(
            tuple(program),
            self._vocab_size,
            dead_at=at if kind == "dead" else None,
            refuse_at=at if kind == "refuse" else None,
        )
