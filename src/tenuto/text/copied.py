"""Strings that must be copied from the conversation: how the texts are cut, and what a copy may be.

A copied value is a run of whole chunks of one line. In scripts with spaces a chunk is a word, in scripts without it is
a character, and anything else is a chunk of its own, so that "New York's" offers "New York". A copy neither begins
nor ends with white space, quotes, brackets or the punctuation of sentences; signs that are part of values, as in
"$5", "-3" or "/etc/hosts", may stand there.

A schema may ask more of a copied string: lengths, a `pattern`, and what it must `not` contain. With a pattern the
copies are the parts of the text that match it whole, the longest from where each begins, left to right. So where
the text says "next Monday", a pattern of dates offers that and never "Monday" alone. A copy may also be asked to come
from the newest text that holds one: then an earlier question's date is not mistaken for this one's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from tenuto.errors import GrammarError
from tenuto.protocol.messages import COPIED
from tenuto.text.lark_text import literal

# Han, kana, bopomofo, Thai, Lao, Khmer, Myanmar, Tibetan: written without spaces between words.
_SPACELESS = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035"
    + (
        "\u3040-\u30ff\u3100-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
    )
)
_CHUNK = re.compile(rf"['’](?:s|t|re|ve|m|ll|d)\b|[{_SPACELESS}]|[^\W{_SPACELESS}]+|.", re.IGNORECASE | re.DOTALL)
_LINE_ENDS = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029]+")
_SURROGATES = re.compile("[\ud800-\udfff]")

_NOT_AT_EDGE = r"\s\\\"'`.,;:!?()\[\]{}<>|…·‘’“”„«»‹›、。，；：！？（）【】《》〈〉「」『』〔〕～"
_LINE_BREAK = "\n"  # cannot stand in a JSON string, so no copy runs over it

_JSON_CHARACTER = r"([^\\\n]|\\.)"  # one character as it stands in a JSON string: itself, or an escape
_ANNOTATIONS = frozenset({"type", "title", "description", "default", "examples", "deprecated", "$comment", COPIED})

MAX_COPIED_CHARS = 200_000
MAX_MATCHED_CHARS = 4_000  # that a pattern is looked for in; the newest
MAX_MATCHES = 500
_MAX_TEXTS_LOOKED_AT = 32  # for the newest copy


@dataclass(frozen=True)
class CopyRule:
    """What a schema asks of a copied string, besides that it is copied."""

    pattern: str | None = None  # the whole value, a regular expression
    without: str | None = None  # no part of the value matches this
    min_length: int = 1
    max_length: int | None = None
    newest: bool = False  # only from the newest text that holds such a copy

    @classmethod
    def from_schema(cls, schema: Mapping[str, Any], path: str) -> CopyRule:
        """Raises GrammarError, naming the path, for what a copied string cannot be asked."""
        if schema.get(COPIED, True) not in (True, "newest"):
            raise GrammarError(f'{path}.{COPIED} must be true or "newest"')
        known = {"pattern", "not", "minLength", "maxLength"} | _ANNOTATIONS
        others = sorted(schema.keys() - known)
        negated = schema.get("not", {"pattern": None})
        if others or not isinstance(negated, dict) or set(negated) != {"pattern"}:
            what = ", ".join(others) or "a `not` other than of a pattern"
            raise GrammarError(f"{path} is a copied string and cannot use {what} as well")
        rule = cls(
            _pattern(schema.get("pattern"), f"{path}.pattern"),
            _pattern(negated["pattern"], f"{path}.not.pattern"),
            max(1, schema.get("minLength", 1)),
            schema.get("maxLength"),
            schema.get(COPIED) == "newest",
        )
        if rule.pattern is not None and (rule.without or rule.min_length > 1 or rule.max_length):
            raise GrammarError(f"{path} is a copied string with a pattern; put its other conditions into the pattern")
        return rule


def _pattern(source: Any, path: str) -> str | None:
    """A pattern as a grammar takes it: of the whole value, so that anchors at its ends say nothing."""
    if source is None:
        return None
    if not isinstance(source, str) or len(source) > 1_000:
        raise GrammarError(f"{path} must be a regular expression of at most 1000 characters")
    return source.removeprefix("^").removesuffix("$").replace("/", r"\/")


def chunks(texts: Sequence[str], quoted: bool = True) -> list[str]:
    """The texts as chunks, a line break between lines and texts; quoted: of JSON string content, escapes included."""
    cut: list[str] = []
    for line in _lines(texts, MAX_COPIED_CHARS):
        spelled = [json.dumps(chunk, ensure_ascii=False)[1:-1] for chunk in line] if quoted else line
        cut += [*spelled, _LINE_BREAK]
    return cut


def _lines(texts: Sequence[str], max_chars: int) -> Iterator[list[str]]:
    """The chunks of each line that has any.

    Every text counts once. Of texts longer than `max_chars` in all, the last ones count: they are the newest.
    """
    kept: list[str] = []
    room = max_chars
    for text in reversed(list(dict.fromkeys(texts))):
        if room <= 0:
            break
        kept.append(text[-room:])
        room -= len(text)
    for text in reversed(kept):
        for line in _LINE_ENDS.split(_SURROGATES.sub("\ufffd", text)):
            if found := _CHUNK.findall(line):
                yield found


def body(name: str, texts: Sequence[str], rule: CopyRule, quoted: bool = True) -> tuple[str, str] | None:
    """What a copy is in a Lark grammar: the body of a rule, and the terminals that it needs, named after `name`.

    Quoted: as a JSON string. None if nothing in the texts can be copied. Raises GrammarError if a pattern is no
    regular expression.
    """
    choices = [[text] for text in reversed(texts[-_MAX_TEXTS_LOOKED_AT:])] if rule.newest else [texts]
    bodies = (_body(name, choice, rule, quoted) for choice in choices)
    return next((found for found in bodies if found is not None), None)


def _body(name: str, texts: Sequence[str], rule: CopyRule, quoted: bool) -> tuple[str, str] | None:
    if rule.pattern is not None:
        found = matches(rule.pattern, texts)
        values = [json.dumps(match, ensure_ascii=False) if quoted else match for match in found]
        return (" | ".join(map(literal, values)), "") if values else None
    terminals = _terminals(name, texts, rule, quoted)
    if not _can_match(name, terminals):
        return None
    return (rf'"\"" {name} "\""' if quoted else name), terminals


def _terminals(name: str, texts: Sequence[str], rule: CopyRule, quoted: bool) -> str:
    """Terminals that match exactly the copies of the texts; quoted: as content of a JSON string."""
    listed = json.dumps({"substring_chunks": chunks(texts, quoted)}, ensure_ascii=False)
    edge = f"[^{_NOT_AT_EDGE}]"
    parts = {"RUN": f"%regex {listed}", "EDGES": rf"/{edge}([^\n]*{edge})?/"}
    if rule.min_length > 1 or rule.max_length is not None:
        most = "" if rule.max_length is None else rule.max_length
        character = _JSON_CHARACTER if quoted else r"[^\n]"
        parts["LENGTH"] = f"/{character}{{{rule.min_length},{most}}}/"
    if rule.without is not None:
        parts["WITHOUT"] = f"~/(?s:.*)({rule.without})(?s:.*)/"
    lines = [f"{name}: " + " & ".join(f"{name}_{part}" for part in parts)]
    return "\n".join([*lines, *(f"{name}_{part}: {text}" for part, text in parts.items())])


def _byte_matcher(grammar: str) -> LLMatcher:
    """Follows a grammar byte by byte, without a model's vocabulary; in linear time, whatever the expression."""
    matcher = LLMatcher(LLTokenizer("byte"), grammar, log_level=0)
    if matcher.is_error():
        raise GrammarError(f"cannot be compiled: {matcher.get_error().splitlines()[0]}")
    return matcher


def _can_match(name: str, terminals: str) -> bool:
    """Conditions may leave nothing over; then only the end of the text, whose bit lies above the bytes', may come."""
    return any(_byte_matcher(f"start: {name}\n{terminals}").compute_bitmask()[: 256 // 8])


def matches(pattern: str, texts: Sequence[str]) -> list[str]:
    """The parts of the texts that a pattern matches, each once, in order: leftmost, then longest, of whole chunks."""
    matcher = _byte_matcher(f"start: MATCH\nMATCH: /{pattern}/")
    first = matcher.compute_bitmask()
    found: dict[str, None] = {}
    for line in _lines(texts, MAX_MATCHED_CHARS):
        at = 0
        while at < len(line) and len(found) < MAX_MATCHES:
            lead = line[at].encode()[0]
            length = _longest(matcher, line, at) if first[lead // 8] >> (lead % 8) & 1 else 0
            if length:
                found["".join(line[at : at + length])] = None
            at += max(1, length)
    return list(found)


def _longest(matcher: LLMatcher, line: list[str], start: int) -> int:
    """How many chunks from `start` on the longest match has; 0 for none."""
    longest = 0
    matcher.reset()
    for index in range(start, len(line)):
        ids = list(line[index].encode())
        if matcher.validate_tokens(ids) < len(ids):
            break
        matcher.consume_tokens(ids)
        if matcher.is_accepting():
            longest = index + 1 - start
        if matcher.is_stopped():
            break
    return longest
