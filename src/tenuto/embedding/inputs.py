"""A request's texts to the ids a model reads: prompt, tokens, frame, and what is done about too long ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tenuto.errors import ContextLengthError, InvalidRequest
from tenuto.ids import TokenId
from tenuto.protocol.embedding import EmbedRequest
from tenuto.text.frame import Frame, FramedText
from tenuto.text.tokenizer import Tokenizer

_FIX = "shorten the text, or ask for it to be cut (`truncate`)"


@dataclass(frozen=True)
class TextRules:
    """How one model wants its texts."""

    tokenizer: Tokenizer
    frame: Frame
    max_model_tokens: int  # longest text, frame included
    lowercase: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None


@dataclass(frozen=True)
class ReadTexts:
    texts: list[FramedText]
    num_truncated: int

    @property
    def num_tokens(self) -> int:
        return sum(len(text.ids) for text in self.texts)


def read_inputs(request: EmbedRequest, rules: TextRules) -> ReadTexts:
    """Encode every input. May take long: belongs beside the event loop.

    Raises:
        InvalidRequest: a prompt that the model does not have, an id outside its vocabulary, an input without tokens.
        ContextLengthError: an input is longer than the model can read, and may not be cut.
    """
    prompt = _prompt(request, rules)
    texts: list[FramedText] = []
    num_truncated = 0
    for index, given in enumerate(request.inputs):
        if isinstance(given, str):
            ids = encode(prompt + given, rules)
            room = rules.max_model_tokens - rules.frame.num_special()
        else:
            ids, room = list(given), rules.max_model_tokens
            _check_ids(ids, index, rules.tokenizer.vocab_size)
        if len(ids) > room:
            if not request.truncate:
                extra = rules.max_model_tokens - room
                raise ContextLengthError(len(ids) + extra, rules.max_model_tokens, f"input {index}", _FIX)
            del ids[room:]
            num_truncated += 1
        text = rules.frame.around(ids) if isinstance(given, str) else FramedText(tuple(ids), (0,) * len(ids))
        if not text.ids:
            raise InvalidRequest(f"input {index} has no tokens", f"inputs[{index}]")
        texts.append(text)
    return ReadTexts(texts, num_truncated)


def read_pairs(query: str, documents: Sequence[str], rules: TextRules, *, truncate: bool) -> ReadTexts:
    """Encode a query with each of the documents; only documents are ever cut.

    Raises:
        ContextLengthError: query and document are longer than the model can read, and the document may not be cut,
            or the query alone leaves no room for one.
    """
    asked = encode(query, rules)
    room = rules.max_model_tokens - rules.frame.num_special(pair=True) - len(asked)
    if room < 1:
        total = rules.max_model_tokens - room + 1
        raise ContextLengthError(total, rules.max_model_tokens, "the query with a document", "shorten the query")
    texts: list[FramedText] = []
    num_truncated = 0
    for index, document in enumerate(documents):
        ids = encode(document, rules)
        if len(ids) > room:
            if not truncate:
                total = len(ids) + rules.max_model_tokens - room
                raise ContextLengthError(total, rules.max_model_tokens, f"the query with document {index}", _FIX)
            del ids[room:]
            num_truncated += 1
        texts.append(rules.frame.around(asked, ids))
    return ReadTexts(texts, num_truncated)


def encode(text: str, rules: TextRules) -> list[TokenId]:
    return rules.tokenizer.encode(text.lower() if rules.lowercase else text)


def _prompt(request: EmbedRequest, rules: TextRules) -> str:
    if request.instruction is not None:
        if request.prompt is not None:
            raise InvalidRequest("give either a prompt's name or an instruction, not both", "instruction")
        return request.instruction
    name = rules.default_prompt if request.prompt is None else request.prompt
    if name is None:
        return ""
    if name not in rules.prompts:
        known = ", ".join(rules.prompts) or "none"
        raise InvalidRequest(f"the model has no prompt {name!r:.80}; its prompts are: {known}", "prompt")
    return rules.prompts[name]


def _check_ids(ids: Sequence[TokenId], index: int, vocab_size: int) -> None:
    for token in ids:
        if not 0 <= token < vocab_size:
            raise InvalidRequest(
                f"input {index}: token id {token} is out of range: the vocabulary has {vocab_size}", f"inputs[{index}]"
            )
