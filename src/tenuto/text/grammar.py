"""Grammars compiled against a vocabulary, by llguidance."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict

import msgspec
import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from tenuto.errors import GrammarError
from tenuto.ids import TokenId
from tenuto.protocol.grammar import GrammarSpec, ReasoningFrame, TokenGrammar, TokenMask
from tenuto.text.after_reasoning import AfterReasoning, ReasoningWords
from tenuto.text.formats.markers import MARKERS
from tenuto.text.json_schema import normalise, parse_schema
from tenuto.text.json_schema_compile import library_fault
from tenuto.text.lark_check import checked_lark
from tenuto.text.marked import ControlMarker, MarkedText, choose_mark
from tenuto.text.reasoning import KNOWN_TAGS
from tenuto.text.rule_body import rule_body
from tenuto.text.tokenizer import Tokenizer
from tenuto.text.tool_grammar import COMPACT

_MAX_SOURCE_CHARS = 2_000_000
# What the library says in words of its own → what a caller can do something about.
_LEADS_NOWHERE = "no text fits it from here on: a rule only leads back to itself, or terms joined by & exclude others"
_TOO_MANY_WAYS = "it allows too many ways at once, or goes on for ever; use longer strings, and rules that can end"
_FAULTS = (("NoExtension", _LEADS_NOWHERE), ("parser error: Too many items", _TOO_MANY_WAYS))
_MAX_KEPT = 16  # grammars; a large one, with a long text to copy from, takes some tens of MB


class _VocabularyForLibrary:
    """The vocabulary in the shape that llguidance asks for. Calls of it tokenise what a grammar forces."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        ids = [TokenId(i) for i in range(tokenizer.vocab_size)]
        eos = sorted(tokenizer.eos_ids)
        self._tokenizer = tokenizer
        # Call tags that are tokens of their own are what a model expects; other control strings are content here.
        self._marker = ControlMarker(c for c in tokenizer.control if c not in MARKERS)
        self.eos_token_id = eos[0]
        self.bos_token_id = tokenizer.bos_id
        self.tokens = [tokenizer.text_bytes(i) for i in ids]
        # Thinking is over when a grammar begins, so its tags cannot be tokens of the text.
        tags = {tokenizer.control.get(tag) for pair in KNOWN_TAGS for tag in pair}
        self.special_token_ids = [i for i in ids if i in tags or not tokenizer.token_bytes(i, markers=True)]

    def __call__(self, text: bytes | str) -> list[TokenId]:
        # As bytes the library asks only for what is whole characters; the rest it tokenises greedily itself.
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        mark = choose_mark([decoded])
        return self._tokenizer.encode(MarkedText(self._marker.mark(decoded, mark), mark), "inside")


class LLGuidanceCompiler:
    """Implements `protocol.GrammarCompiler` for one vocabulary.

    Args:
        tokenizer: must have an end-of-sequence id.

    Raises:
        GrammarError: the vocabulary has none, so that no grammar could end.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        if not tokenizer.eos_ids:
            raise GrammarError("the tokenizer names no end-of-sequence id; grammars need one to end with")
        self._num_words = (tokenizer.vocab_size + 31) // 32
        self._tokenizer = LLTokenizer(
            TokenizerWrapper(_VocabularyForLibrary(tokenizer)),
            n_vocab=tokenizer.vocab_size,
            eos_token=sorted(tokenizer.eos_ids),
        )
        self._vocabulary = tokenizer
        self._words: dict[tuple[str, str], ReasoningWords] = {}  # a model has one pair of tags
        self._compiled: OrderedDict[GrammarSpec, CompiledGrammar] = OrderedDict()
        self._lock = threading.Lock()
        # The library's defaults, except for the grammar's size, which a long conversation to copy from exceeds, and the
        # items of a step: objects of a thousand optional properties need some. Steps then take 0.2 s at worst.
        self._limits = LLParserLimits(max_grammar_size=2_000_000, max_items_in_row=6_000)

    def compile(self, spec: GrammarSpec) -> TokenGrammar:
        """A fresh matcher. May be called from several threads.

        The last few grammars are kept with their first mask computed, so that an agent whose tools stay the same does
        not wait for them again.

        Raises:
            GrammarError: with the library's own reason, which says where and why.
        """
        if spec.reasoning is not None:
            words = self._words_of(spec.reasoning)
            alone = msgspec.structs.replace(spec, reasoning=None)
            return AfterReasoning(self._fresh(alone), words, spec.reasoning.is_open)
        return self._fresh(spec)

    def _words_of(self, frame: ReasoningFrame) -> ReasoningWords:
        tags = (frame.open, frame.close)
        words = self._words.get(tags) or ReasoningWords(self._vocabulary, frame)
        self._words = {tags: words}
        return words

    def _fresh(self, spec: GrammarSpec) -> CompiledGrammar:
        with self._lock:
            known = self._compiled.get(spec)
            if known is not None:
                self._compiled.move_to_end(spec)
                return known.fork()
        compiled = self._compile(spec)
        compiled.mask()
        with self._lock:
            self._compiled[spec] = compiled
            while len(self._compiled) > _MAX_KEPT:
                self._compiled.popitem(last=False)
            return compiled.fork()

    def _compile(self, spec: GrammarSpec) -> CompiledGrammar:
        if len(spec.source) > _MAX_SOURCE_CHARS:
            raise GrammarError(f"the grammar has {len(spec.source)} characters, more than {_MAX_SOURCE_CHARS}")
        matcher = LLMatcher(self._tokenizer, _library_grammar(spec), log_level=0, limits=self._limits)
        if matcher.is_error():
            fault = library_fault(normalise(parse_schema(spec.source)).schema) if spec.kind == "json_schema" else None
            raise GrammarError(f"the grammar cannot be compiled: {fault or _reason(matcher)}")
        return CompiledGrammar(matcher, self._num_words)


class CompiledGrammar:
    """Implements `protocol.TokenGrammar`. Not thread-safe."""

    def __init__(self, matcher: LLMatcher, num_words: int) -> None:
        self._matcher = matcher
        self._num_words = num_words

    def mask(self) -> TokenMask:
        """The tokens allowed next; at the end only end-of-sequence ids.

        Raises:
            GrammarError: following the grammar costs more than the library's limits allow.
        """
        mask = np.zeros(self._num_words, dtype=np.uint32)
        self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        self._check()
        return mask

    def accept(self, token: TokenId) -> bool:
        accepted = self._matcher.try_consume_tokens([token]) == 1
        self._check()
        return accepted

    def forced(self) -> tuple[TokenId, ...]:
        ids = tuple(map(TokenId, self._matcher.compute_ff_tokens()))
        self._check()
        return ids

    def rollback(self, num_tokens: int) -> None:
        if num_tokens and not self._matcher.rollback(num_tokens):
            raise AssertionError(f"cannot undo {num_tokens} tokens: {_reason(self._matcher)}")

    def fork(self) -> CompiledGrammar:
        return CompiledGrammar(self._matcher.deep_copy(), self._num_words)

    @property
    def finished(self) -> bool:
        return bool(self._matcher.is_stopped())

    def _check(self) -> None:
        if self._matcher.is_error():
            raise GrammarError(f"the grammar cannot be followed: {_reason(self._matcher)}")


def _reason(matcher: LLMatcher) -> str:
    """The library's message without its dump of state and grammar, or ours for it."""
    said = re.split(r"\n\s*<|\n\n", str(matcher.get_error()))[0].strip()[:500]
    return next((fault for begin, fault in _FAULTS if said.startswith(begin)), said)


def _library_grammar(spec: GrammarSpec) -> str:
    """The spec, checked, as the library takes it. Raises GrammarError."""
    if spec.kind == "json_schema":
        return str(LLMatcher.grammar_from_json_schema(normalise(parse_schema(spec.source)).schema, overrides=COMPACT))
    source = checked_lark(spec.source) if spec.kind == "lark" else f"start: {rule_body(spec)}"
    return str(LLMatcher.grammar_from_lark(source))
