"""Where a text may be cut so that its parts encode to the same ids as the whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

# Whether the ids of a text are those of its part before an offset, followed by those of its part from there on.
CutRule = Callable[[str, int], bool]  # (text, offset), neither end

_CHINESE_PUNCTUATION = frozenset("，。！？；：、")
PART_CHARS = 65_536
_BACK = 8_192  # how far back from the end of a part a cut is looked for first


def before_spaces(text: str, at: int) -> bool:
    """For vocabularies whose pre-tokenizer ends a piece before a space, whatever comes before or after."""
    return text[at] == " " and not text[at - 1].isspace()


def between_words(text: str, at: int) -> bool:
    """For byte-level vocabularies that split text by one of the patterns in `pretokenizers`.

    None of the alternatives in those goes from a non-space on to a space, from a letter on to Chinese punctuation, or
    from a line break on to anything but white space (and "/"). All look ahead only from white space; a single line
    break is a piece whether something follows it or not.
    """
    left, right = text[at - 1], text[at]
    if right == " ":
        return not left.isspace()
    if right in _CHINESE_PUNCTUATION:
        return left.isalpha()
    return left == "\n" and right != "/" and not right.isspace() and at >= 2 and not text[at - 2].isspace()


def outside(tokens: Iterable[str], rule: CutRule) -> CutRule:
    """The rule, unless it would cut one of these tokens, which stand as a whole in any text."""
    return never if any(rule(f"a{token}a", at) for token in tokens for at in range(2, len(token) + 1)) else rule


def never(text: str, at: int) -> bool:
    """For vocabularies of which nothing is known."""
    return False


class BetweenStrangers:
    """For vocabularies without a pre-tokenizer: a cut between two characters that no token holds side by side.

    BPE merges and Unigram's lattice see nothing but tokens, so neither can reach over such a place. Both characters
    must be tokens of their own, since a run of unknown ones may become a single unknown token.

    Args:
        tokens: all tokens that text can become, as the vocabulary spells them.
        space: how it spells a space.
    """

    def __init__(self, tokens: Callable[[], Collection[str]], space: str) -> None:
        self._tokens = tokens
        self._space = space
        self._pairs: set[str] | None = None  # made when a long text first asks: it takes a second for 262,144 tokens
        self._known: set[str] = set()

    def __call__(self, text: str, at: int) -> bool:
        if self._pairs is None:
            tokens = self._tokens()
            self._known = {t for t in tokens if len(t) == 1}
            self._pairs = {t[i : i + 2] for t in tokens for i in range(len(t) - 1)}
        left, right = (self._space if c == " " else c for c in text[at - 1 : at + 1])
        return left in self._known and right in self._known and left + right not in self._pairs


def parts_of(text: str, can_cut: CutRule, part_chars: int = PART_CHARS) -> Iterator[str]:
    """The text in parts of about `part_chars`, longer where there is no place to cut."""
    start = 0
    while len(text) - start > part_chars:
        cut = _find_cut(text, start, start + part_chars, can_cut)
        if cut is None:
            break
        yield text[start:cut]
        start = cut
    if start < len(text) or not text:
        yield text[start:]


def _find_cut(text: str, start: int, near: int, can_cut: CutRule) -> int | None:
    """A cut after `start`: a little before `near` if possible, else the first one behind it."""
    if can_cut is never:
        return None
    for at in range(near, max(start, near - _BACK), -1):
        if can_cut(text, at):
            return at
    return next((at for at in range(near + 1, len(text)) if can_cut(text, at)), None)
