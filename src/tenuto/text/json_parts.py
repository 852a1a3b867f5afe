"""The parts of a tokenizer.json around its model: which are supported, and what they mean for us.

Only kinds that are listed here are let through to the library: the file is untrusted, and a part that we do not know
might cost without bound or mean something that the rest of this room does not heed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tenuto.errors import UnsupportedModel
from tenuto.text.byte_level import byte_of, bytes_of
from tenuto.text.cuts import CutRule, before_spaces, between_words, never, outside
from tenuto.text.pretokenizers import is_known_pattern, splits_words
from tenuto.text.vocabulary import Prefix

Part = Mapping[str, Any]
BytesOf = Callable[[str], bytes]

_NORMALIZERS = {
    *("NFC", "NFD", "NFKC", "NFKD", "Nmt", "Lowercase", "StripAccents", "BertNormalizer", "Precompiled"),
    *("Strip", "Prepend", "Replace"),
}
_PRE_TOKENIZERS = {
    *("ByteLevel", "Split", "Digits", "Metaspace", "BertPreTokenizer", "Whitespace", "WhitespaceSplit", "Punctuation"),
}
# Normalizers that change no character because of what stands on the other side of a cut.
_CUT_SAFE = {"NFC", "NFD", "NFKC", "NFKD", "Nmt", "Lowercase", "StripAccents", "BertNormalizer", "Precompiled"}
_MAX_PATTERN_CHARS = 10_000
_MAX_GROWTH = 64  # how many times longer its replacements may make a text


def steps(part: Part | None, nested: str) -> Iterator[Part]:
    """The parts of a sequence, nested ones too; the part itself if it is none."""
    if part is None:
        return
    if part["type"] == "Sequence":
        for inner in part[nested]:
            yield from steps(inner, nested)
    else:
        yield part


def check_parts(data: Part) -> None:
    """Raises:
    UnsupportedModel: a part that we do not know, or that could make texts grow without bound; names it.
    """
    growth = 1
    for what, nested, known in (
        ("normalizer", "normalizers", _NORMALIZERS),
        ("pre_tokenizer", "pretokenizers", _PRE_TOKENIZERS),
    ):
        for step in steps(data.get(what), nested):
            if step["type"] not in known:
                raise UnsupportedModel(f"{what} {step['type']!r:.40} is not supported")
            pattern = step.get("pattern") or {}
            source = pattern.get("Regex") or pattern.get("String") or ""
            if len(source) > _MAX_PATTERN_CHARS:
                raise UnsupportedModel(f"{what} {step['type']} has a pattern of {len(source)} characters")
            if step["type"] == "Replace":
                growth *= max(1, len(step["content"]) + ("Regex" in pattern or not source))
            if step["type"] == "Prepend":
                growth *= max(1, len(step["prepend"]))
            if step["type"] == "ByteLevel":
                growth *= 2  # a byte becomes a character of one or two bytes, each time
    if growth > _MAX_GROWTH:
        raise UnsupportedModel(f"the tokenizer can make a text {growth} times longer; {_MAX_GROWTH} times is allowed")


def prefix_rule(data: Part) -> Prefix:
    """Where the file says that a space goes before text."""
    if any(step["type"] == "Prepend" for step in steps(data.get("normalizer"), "normalizers")):
        return "sections"
    for step in steps(data.get("pre_tokenizer"), "pretokenizers"):
        if step["type"] == "ByteLevel" and step.get("add_prefix_space"):
            return "sections"
        if step["type"] == "Metaspace":
            scheme = step.get("prepend_scheme") or ("always" if step.get("add_prefix_space", True) else "never")
            if scheme != "never":
                return "first" if scheme == "first" else "sections"
    return "never"


def without_prefix(data: Part) -> dict[str, Any]:
    """The same file, but nothing is put before a text."""
    return {
        **data,
        "normalizer": _mapped(data.get("normalizer"), "normalizers", _bare),
        "pre_tokenizer": _mapped(data.get("pre_tokenizer"), "pretokenizers", _bare),
    }


def _bare(step: Part) -> Part | None:
    if step["type"] == "Prepend":
        return None
    if step["type"] == "Metaspace":
        return {**step, "prepend_scheme": "never", "add_prefix_space": False}
    return {**step, "add_prefix_space": False} if step["type"] == "ByteLevel" else step


def _mapped(part: Part | None, nested: str, change: Callable[[Part], Part | None]) -> Part | None:
    if part is None:
        return None
    changed = [after for step in steps(part, nested) if (after := change(step)) is not None]
    return {"type": "Sequence", nested: changed}


def cut_rule(data: Part, strangers: CutRule, spelling: Sequence[Part]) -> CutRule:
    """Where text may be cut.

    Args:
        strangers: the rule for a model that sees the text as it is; it knows of the spelling.
        spelling: added tokens that plain text can contain.
    """
    normalizers = list(steps(data.get("normalizer"), "normalizers"))
    pre_tokenizers = [s for s in steps(data.get("pre_tokenizer"), "pretokenizers") if not _splits_at_spaces_only(s)]
    spaces_only = all(
        s["type"] == "Prepend" or (s["type"] == "Replace" and (s["pattern"], s["content"]) == ({"String": " "}, "▁"))
        for s in normalizers
    )
    if any(t.get("single_word") or t.get("lstrip") or t.get("rstrip") for t in spelling):
        return never
    if spelling and prefix_rule(data) == "sections":
        return never  # the text after each of them has a prefix of its own, which parts would lack
    if not pre_tokenizers:
        return strangers if spaces_only else never
    if not all(s["type"] in _CUT_SAFE or spaces_only for s in normalizers):
        return never
    rules = [_rule_of(step) for step in pre_tokenizers]
    best = next((rule for rule in (between_words, before_spaces) if rule in rules), never)
    return never if never in rules else outside((t["content"] for t in spelling), best)


def _splits_at_spaces_only(step: Part) -> bool:
    """Gemma's pre-tokenizer, whose pattern never matches since spaces are gone by then; Metaspace without split."""
    if step["type"] == "Split":
        return bool(step.get("pattern") == {"String": " "})
    return step["type"] == "Metaspace" and step.get("split") is False and step.get("replacement") == "▁"


def _rule_of(step: Part) -> CutRule | None:
    """Where a pre-tokenizer splits any text; None if it splits elsewhere, which does not matter; `never` if unknown."""
    match step:
        case {"type": "Split", "behavior": "Isolated", "pattern": {"Regex": pattern}}:
            return between_words if splits_words(pattern) else None if is_known_pattern(pattern) else never
        case {"type": "Split"}:
            return never
        case {"type": "ByteLevel"}:
            return between_words if step.get("use_regex", True) else None
        case {"type": "Metaspace", "split": False}:
            return never
        case {"type": "Metaspace" | "BertPreTokenizer" | "Whitespace" | "WhitespaceSplit"}:
            return before_spaces
        case _:
            return None


def decoding(data: Part) -> tuple[BytesOf, bool]:
    """How a token becomes bytes, and whether the space that a text begins with is left out.

    Raises:
        UnsupportedModel: a decoder that cannot work token by token; names it.
    """
    strips = False
    fused = False
    decoders = list(steps(data.get("decoder"), "decoders"))
    kinds = [step["type"] for step in decoders]
    if kinds == ["ByteLevel"]:
        return bytes_of, False
    replaced: list[tuple[str, str]] = []
    word_piece: Part | None = None
    for step in decoders:
        match step:
            case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)} if not fused:
                if not old or len(new) > _MAX_GROWTH:
                    raise UnsupportedModel("decoder Replace of nothing, or by a long text, is not supported")
                replaced.append((old, new))
            case {"type": "ByteFallback"}:
                pass  # all tokens <0x..> are bytes
            case {"type": "Fuse"}:
                fused = True
            case {"type": "Strip", "content": " ", "start": 1, "stop": 0} if fused:
                strips = True
            case {"type": "Metaspace", "replacement": str(mark)} if len(mark) == 1:
                replaced.append((mark, " "))
                scheme = step.get("prepend_scheme") or ("always" if step.get("add_prefix_space", True) else "never")
                strips = scheme != "never"
            case {"type": "WordPiece"}:
                word_piece = step
                strips = True
            case _:
                raise UnsupportedModel(f"decoder {step['type']!r:.40} is not supported there")
    byte_fallback = "ByteFallback" in kinds

    def token_bytes(token: str) -> bytes:
        if byte_fallback and (byte := byte_of(token)) is not None:
            return bytes([byte])
        for old, new in replaced:
            token = token.replace(old, new)
        return (token if word_piece is None else _word_piece(token, word_piece)).encode("utf-8")

    return token_bytes, strips


_CLEANED = (
    *((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m")),
    *((" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re")),
)


def _word_piece(token: str, decoder: Part) -> str:
    prefix = decoder.get("prefix", "##")
    text = token.removeprefix(prefix) if token.startswith(prefix) else " " + token
    for old, new in _CLEANED if decoder.get("cleanup", True) else ():
        text = text.replace(old, new)
    return text
