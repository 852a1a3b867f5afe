"""Feeds a text to a compiled grammar, token by token, as the engine would."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from embedded_tokenizer import embedded_tokenizer
from tenuto.ids import TokenId
from tenuto.protocol.grammar import GrammarSpec, TokenMask
from tenuto.text.grammar import LLGuidanceCompiler


@dataclass(frozen=True)
class Driven:
    ids: tuple[TokenId, ...]
    num_forced: int
    may_end: bool
    finished: bool


def allowed(mask: TokenMask, token: int) -> bool:
    return bool(mask[token // 32] >> (token % 32) & 1)


def drive(compiler: LLGuidanceCompiler, spec: GrammarSpec, text: str) -> Driven | None:
    """None if the grammar does not admit the text. Forced ids are taken without asking."""
    tokenizer = embedded_tokenizer()
    grammar = compiler.compile(spec)
    whole = text.encode()
    ids: list[TokenId] = []
    done = b""
    num_forced = 0
    while True:
        for token in grammar.forced():
            assert allowed(grammar.mask(), token) and grammar.accept(token)
            ids.append(token)
            done += tokenizer.text_bytes(token)
            num_forced += 1
        if not whole.startswith(done):
            return None
        mask = grammar.mask()
        if done == whole:
            may_end = all(allowed(mask, eos) for eos in tokenizer.eos_ids)
            return Driven(tuple(ids), num_forced, may_end, grammar.finished)
        token = next_token(ids, done, text)
        assert allowed(mask, token) == grammar.fork().accept(token)
        if not grammar.accept(token):
            return None
        ids.append(token)
        done += tokenizer.text_bytes(token)


@lru_cache(maxsize=16)
def _canonical(text: str) -> list[TokenId]:
    return embedded_tokenizer().encode(text)


def next_token(ids: list[TokenId], done: bytes, text: str) -> TokenId:
    tokenizer = embedded_tokenizer()
    canonical = _canonical(text)
    if canonical[: len(ids)] == ids:
        return canonical[len(ids)]
    return tokenizer.encode(text.encode()[len(done) :].decode())[0]
