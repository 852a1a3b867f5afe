"""An executor without a model that notices every mistake in the handling of KV.

Each KV slot holds a number that depends on its token, its position and all tokens before it, as real KV does. The
next token is a hash of everything read *through the block table*. So a block that is aliased, evicted too early,
not copied or not written changes the output, and a slot that was never written fails at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tenuto.engine.batch import Batch, KVForm, Output, SeenTokens, SequenceSlice
from tenuto.ids import BlockId, TokenId
from tenuto.protocol.engine import GenerateParams, Pooling, SamplingParams, TokenLogprob
from tenuto.protocol.grammar import TokenMask

_WORD = (1 << 64) - 1
_EVEN, _ODD = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9
POISON = np.uint64(0xDEADDEADDEADDEAD)


def _mix(x: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014)."""
    x = (x ^ (x >> 30)) * _ODD & _WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _WORD
    return x ^ (x >> 31)


class _Positions:
    """Odd multipliers per position and their inverses, grown on demand."""

    def __init__(self) -> None:
        self.odd = self.inverse = np.zeros(0, dtype=np.uint64)

    def upto(self, length: int) -> NDArray[np.uint64]:
        if length > len(self.odd):
            self.odd = np.arange(1, 2 * length + 64, dtype=np.uint64) * np.uint64(_EVEN) | np.uint64(1)
            self.odd ^= self.odd >> np.uint64(29)
            self.odd |= np.uint64(1)
            self.inverse = self.odd.copy()  # modulo 2^64, by Newton's method: right in 3 bits, then in 6, 12, 24, ...
            for _ in range(5):
                self.inverse *= np.uint64(2) - self.odd * self.inverse
        return self.odd[:length]


_POSITIONS = _Positions()


def _kv(tokens: Sequence[TokenId], start: int, carry: int) -> NDArray[np.uint64]:
    """The KV values of tokens from position `start` on; `carry` is the value at `start - 1`, 0 at the beginning."""
    odd = _POSITIONS.upto(start + len(tokens))[start:]
    values = (np.array(tokens, dtype=np.uint64) + np.uint64(1)) * odd
    values = np.cumsum(values, dtype=np.uint64)
    values += np.uint64(carry)
    return values


def _digest(kv: NDArray[np.uint64]) -> int:
    # Python integers here: a scalar of numpy would warn of the overflow that is meant.
    return int((kv * _POSITIONS.upto(len(kv))).sum(dtype=np.uint64))


def _tokens(kv: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """What the KV of a whole sequence says its tokens are: `_kv` undone."""
    odd = _POSITIONS.upto(len(kv))
    return np.diff(kv, prepend=np.uint64(0)) * _POSITIONS.inverse[: len(odd)] - np.uint64(1)


def _repeated(tokens: NDArray[np.uint64]) -> int | None:
    """What followed the last token when it stood here before."""
    before = np.flatnonzero(tokens[:-1] == tokens[-1:])
    return int(tokens[before[-1] + 1]) if len(before) else None


class Row(NamedTuple):
    """All that one choice depends on."""

    kv: NDArray[np.uint64]  # of all tokens before it, as read
    sampling: SamplingParams
    mask: TokenMask | None
    seen: SeenTokens | None

    @property
    def tokens(self) -> NDArray[np.uint64]:
        """All tokens before it, as the KV that was read says."""
        return _tokens(self.kv)


def _choose(row: Row, vocab_size: int) -> TokenId:
    """A hash of the KV, the random number and the counts of the ids so far; of four choices, three repeat, if they may,
    what the sequence says itself, so that there are drafts to accept and to reject.
    """
    digest, sampling, position = _digest(row.kv), row.sampling, len(row.kv)
    if sampling.temperature > 0:
        digest ^= _mix(sampling.seed * _EVEN + position & _WORD)
    for token, bias in sampling.logit_bias:
        digest ^= _mix(token * _ODD + int(bias * 8) & _WORD)
    if row.seen is not None:
        for token, count in zip(row.seen.ids.tolist(), row.seen.counts.tolist(), strict=True):
            digest ^= _mix((token + 1) * _EVEN + (count + 1) * _ODD & _WORD)  # in whatever order they come
    number = _mix(digest)
    allowed = np.arange(vocab_size)
    if row.mask is not None:
        allowed = np.flatnonzero(np.unpackbits(row.mask.view(np.uint8), bitorder="little")[:vocab_size])
    repeated = _repeated(_tokens(row.kv)) if number >> 62 else None
    if repeated is not None and repeated in allowed:
        return TokenId(repeated)
    return TokenId(int(allowed[number % len(allowed)]))


def _score(digest: int, token: TokenId, num_top: int, vocab_size: int) -> TokenLogprob:
    """A log-probability that depends on the KV and the chosen id, but, as the real one, on no parameter."""
    numbers = [_mix(digest + token + place & _WORD) for place in range(num_top + 1)]
    top = tuple((TokenId(number % vocab_size), -(number % 4096) / 256) for number in numbers[1:])
    return TokenLogprob(logprob=-(numbers[0] % 4096) / 256, top=top)


def expected_next(
    tokens: Sequence[TokenId],
    vocab_size: int,
    params: GenerateParams = GenerateParams(),
    mask: TokenMask | None = None,
    num_prompt: int = 0,
) -> TokenId:
    """The token that follows `tokens`, computed from the tokens alone: what a correct engine must produce.

    Args:
        num_prompt: of the tokens, those that were known when the call began.
    """
    seen = _seen(tokens, params.sampling, num_prompt)
    return _choose(Row(_kv(tokens, 0, 0), params.sampling, mask, seen), vocab_size)


def expected_logprob(
    tokens: Sequence[TokenId], vocab_size: int, params: GenerateParams, token: TokenId
) -> TokenLogprob | None:
    """The log-probability of `token`, sampled after `tokens`; None if it was not asked for."""
    if params.logprobs is None:
        return None
    return _score(_digest(_kv(tokens, 0, 0)), token, params.logprobs, vocab_size)


def _seen(tokens: Sequence[TokenId], sampling: SamplingParams, num_prompt: int) -> SeenTokens | None:
    """Counted from the start, as penalties are defined."""
    if not sampling.has_penalties:
        return None
    counts = Counter(tokens[num_prompt:])
    ids = [*counts, *(set(tokens[:num_prompt]) - counts.keys() if sampling.repetition_penalty != 1 else ())]
    return SeenTokens(np.array(ids, dtype=np.int64), np.array([counts[i] for i in ids], dtype=np.int64))


NUM_STATES = 4  # numbers in a fake hidden state


def _states(kv: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Fake hidden states that depend on all tokens up to their own: whole numbers, so that sums are exact."""
    shifts = np.arange(NUM_STATES, dtype=np.uint64) * np.uint64(16)
    return ((kv[:, None] >> shifts) & np.uint64(0xFFFF)).astype(np.float64)


def expected_pooled(tokens: Sequence[TokenId], pooling: Pooling) -> NDArray[np.float32]:
    """What `embed` must give for `tokens`, computed from the tokens alone."""
    states = _states(_kv(tokens, 0, 0))
    pooled: NDArray[np.float64] = {"first": states[0], "last": states[-1], "mean": states.sum(0) / len(tokens)}[pooling]
    return pooled.astype(np.float32)


class FakeExecutor:
    """Fake KV slots in one array of `num_blocks * block_size` numbers.

    Args:
        free_blocks: called before each step; what it lists is filled with poison.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        vocab_size: int,
        *,
        free_blocks: Callable[[], Iterable[BlockId]] | None = None,
    ) -> None:
        self.block_size = block_size
        self.vocab_size = vocab_size
        self.num_steps = 0
        self._kv = np.full(num_blocks * block_size, POISON, dtype=np.uint64)
        self._free_blocks = free_blocks
        self._offsets = np.arange(block_size)

    def poison(self, blocks: Iterable[BlockId]) -> None:
        """Fill blocks with a value that must never be read."""
        self._kv.reshape(-1, self.block_size)[list(blocks)] = POISON

    @property
    def kv_form(self) -> KVForm:
        return KVForm("fake", 8)

    def read_kv(self, slots: Sequence[int]) -> bytes:
        """Raises AssertionError for a slot that was never written."""
        read = self._kv[list(slots)]
        assert not (read == POISON).any(), "a slot is read that was never written, or freed"
        return read.astype("<u8").tobytes()

    def write_kv(self, slots: Sequence[int], data: bytes) -> None:
        self._kv[list(slots)] = np.frombuffer(data, dtype="<u8")

    def execute(self, batch: Batch) -> Output:
        """Raises AssertionError for a batch that reads what was never written, or writes a slot twice."""
        self.num_steps += 1
        if self._free_blocks is not None:
            self.poison(self._free_blocks())
        rows = self._kv.reshape(-1, self.block_size)
        sources = {copy.target: rows[copy.source].copy() for copy in batch.copies}
        assert len(sources) == len(batch.copies), "two copies have the same target"
        assert sources.keys().isdisjoint(copy.source for copy in batch.copies), "a copy's source is another's target"
        for target, row in sources.items():
            rows[target] = row
        written: set[BlockId] = set()
        ids: list[TokenId | None] = []
        num_accepted: dict[int, int] = {}
        logprobs: dict[int, tuple[TokenLogprob, ...]] = {}
        states: dict[int, NDArray[np.float64]] = {}
        for index, piece in enumerate(batch.slices):
            read = self._compute(piece, written)
            if piece.states is not None:
                wanted = _states(read)[piece.start + piece.states.start : piece.start + piece.states.end]
                states[index] = wanted.sum(0) + (0 if piece.states.carry is None else piece.states.carry)
            if not piece.samples:
                ids.append(None)
                continue
            chosen, scores = self._verify(piece, read)
            ids.append(chosen[-1])
            if len(chosen) > 1:
                num_accepted[index] = len(chosen) - 1
            if scores:
                logprobs[index] = scores
        return Output(tuple(ids), num_accepted=num_accepted, logprobs=logprobs, states=states)

    def _verify(self, piece: SequenceSlice, read: NDArray[np.uint64]) -> tuple[list[TokenId], tuple[TokenLogprob, ...]]:
        """Choose after the known tokens and after each right draft; the ids and their scores."""
        chosen: list[TokenId] = []
        scores: list[TokenLogprob] = []
        for place, draft in enumerate((*piece.drafts, None)):
            kv = read[: piece.start + piece.num_known + place]
            row = Row(kv, piece.sampling, piece.mask_after(place), piece.seen_after(place))
            token = self.choose(row)
            chosen.append(token)
            if piece.logprobs is not None:
                scores.append(_score(_digest(kv), token, piece.logprobs, self.vocab_size))
            if token != draft:
                break
        return chosen, tuple(scores)

    def choose(self, row: Row) -> TokenId:
        """The next token. A subclass may say something else, as long as it depends on the row alone."""
        return _choose(row, self.vocab_size)

    def _compute(self, piece: SequenceSlice, written: set[BlockId]) -> NDArray[np.uint64]:
        """Write the KV of a slice; the KV of the whole sequence, as read through its block table."""
        size, start, end = self.block_size, piece.start, piece.end
        table = piece.block_table
        blocks = set(table[start // size :])
        assert blocks.isdisjoint(written), "two slices write the same block"
        written |= blocks
        slots = (np.array(table)[:, None] * size + self._offsets).ravel()[:end]
        carry = int(self._kv[slots[start - 1]]) if start else 0
        self._kv[slots[start:]] = _kv(piece.token_ids, start, carry)
        read = self._kv[slots]
        assert not (read == POISON).any(), f"{piece.request} reads a slot that was never written, or freed"
        return read
