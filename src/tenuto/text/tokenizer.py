"""Text to token ids and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tenuto.checkpoint import TokenizerFiles
from tenuto.errors import InvalidRequest, ModelFileError
from tenuto.ids import TokenId
from tenuto.text.control_strings import ControlStrings
from tenuto.text.formats.markers import MARKERS
from tenuto.text.gguf_vocabulary import from_gguf
from tenuto.text.marked import MarkedText, choose_mark
from tenuto.text.reasoning import KNOWN_TAGS
from tenuto.text.sentencepiece import from_sentencepiece_file
from tenuto.text.tokenizer_json import from_json
from tenuto.text.vocabulary import Vocabulary

# Where text stands: at the beginning of everything, right after a control token, or after other text. Vocabularies of
# SentencePiece's kind put a space before text at some of these.
Position = Literal["start", "after_control", "inside"]

# Ends of a turn by the token's very name: many configs name only one of several.
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>")


class Tokenizer:
    """Text to ids and back, as the model was trained: byte-level BPE, SentencePiece's BPE and Unigram, WordPiece.

    What the vocabulary has no token for becomes its unknown token, or is dropped, as the models' own tokenizers do.
    May be used from several threads.

    Attributes:
        vocab_size: number of ids; at least the number of tokens, more where a model pads its embedding.
        eos_ids: ids after which a turn is over.
        bos_id: id that starts a text, if the model has one.
        add_bos: whether a text must start with it. The chat template sees to that, never `encode`.
        strips_space: whether decoding leaves out a space at the beginning, which encoding had put there.
        max_token_bytes: length of the longest token.
        call_markers: control tokens that mark tool calls: parsers must see them, users must not.
    """

    def __init__(self, vocabulary: Vocabulary, files: TokenizerFiles, vocab_size: int | None = None) -> None:
        num_tokens = len(vocabulary.token_bytes)
        self._vocabulary = vocabulary
        self.vocab_size = num_tokens if vocab_size is None else vocab_size
        for what, i in [("vocabulary", num_tokens - 1), *((t, i) for t, i in vocabulary.control.items())]:
            if i >= self.vocab_size:
                raise ModelFileError(
                    f"tokenizer: id {i} of {what!r:.80} is outside the model's {self.vocab_size} ids; "
                    "is it the tokenizer of another model?"
                )
        for name, ids in (("bos", (files.bos_id,) if files.bos_id is not None else ()), ("eos", files.eos_ids)):
            for i in ids:
                if not 0 <= i < num_tokens:
                    raise ModelFileError(f"tokenizer: {name} id {i} is outside its {num_tokens} tokens")
        turn_ends = [vocabulary.control[t] for t in _TURN_ENDS if t in vocabulary.control]
        self.eos_ids: frozenset[TokenId] = frozenset(map(TokenId, (*files.eos_ids, *turn_ends)))
        self.bos_id = None if files.bos_id is None else TokenId(files.bos_id)
        self.add_bos = files.add_bos and files.bos_id is not None
        # Ids that every text begins with.
        self.opening = (self.bos_id,) if self.add_bos and self.bos_id is not None else ()
        self.strips_space = vocabulary.strips_space
        # Those around reasoning are always shown: it is told apart from the answer wherever a chat is read.
        self._hidden = vocabulary.special - {vocabulary.control.get(tag) for pair in KNOWN_TAGS for tag in pair}
        self.call_markers = frozenset(t for t in MARKERS if vocabulary.control.get(t) in vocabulary.special)
        self._hidden_from_parsers = self._hidden - {vocabulary.control[t] for t in self.call_markers}
        self._control_ids = frozenset(vocabulary.control.values())
        self._control_strings = ControlStrings(vocabulary.control)
        self.max_token_bytes = max(map(len, vocabulary.token_bytes), default=1)

    @classmethod
    def from_files(cls, files: TokenizerFiles, vocab_size: int | None = None) -> Tokenizer:
        """Args:
            vocab_size: the model's, where its embedding has more rows than the tokenizer has tokens.

        Raises:
            ModelFileError: the files cannot be read, or name ids that do not exist.
            UnsupportedModel: a kind of tokenizer or pre-tokenizer that we do not have.
        """
        if files.json_path is not None:
            return cls(from_json(files.json_path, vocab_size), files, vocab_size)
        if files.sentencepiece is not None:
            return cls(from_sentencepiece_file(files.sentencepiece, vocab_size), files, vocab_size)
        if files.gguf is not None:
            return cls(from_gguf(files.gguf), files, vocab_size)
        raise ModelFileError("the model has no tokenizer: neither tokenizer.json, tokenizer.model nor GGUF metadata")

    @property
    def control(self) -> dict[str, TokenId]:
        """Strings that mean something to the model when a template writes them, and their ids."""
        return {t: TokenId(i) for t, i in self._vocabulary.control.items()}

    def encode(self, text: MarkedText | str, position: Position = "start") -> list[TokenId]:
        """A plain str is content: no control token comes of it. In a MarkedText, those of the template do.

        Never adds a token of its own. Where the vocabulary puts a space before text, so do the ids: whatever way a
        text is cut at control tokens, the ids of its parts are those of the whole.

        Args:
            position: where the text stands in what the model reads.
        """
        if isinstance(text, str):
            return self._encode_plain(text, position)
        ids: list[TokenId] = []
        vocabulary = self._vocabulary
        for piece, string in self._control_strings.split(text.text, vocabulary.strip_left, vocabulary.strip_right):
            ids += self._encode_plain(piece.replace(text.mark, ""), position)
            if string is not None:
                ids.append(TokenId(vocabulary.control[string]))
                position = "after_control"
        return ids

    def _encode_plain(self, text: str, position: Position) -> list[TokenId]:
        rule = self._vocabulary.prefix
        prefixed = (position == "start" and rule != "never") or (position == "after_control" and rule == "sections")
        return list(map(TokenId, self._vocabulary.library.encode(text, prefixed)))

    def encode_with_control(self, text: str) -> list[TokenId]:
        """Control-token strings anywhere in the text become their ids: for text that is trusted as a whole."""
        return self.encode(MarkedText(text, choose_mark([text])))

    def opened(self, ids: Sequence[TokenId]) -> tuple[TokenId, ...]:
        """The ids of a whole text, with those before them that every text begins with, unless they stand there."""
        opening, ids = self.opening, tuple(ids)
        return ids if ids[: len(opening)] == opening else (*opening, *ids)

    def position_after(self, ids: Sequence[TokenId]) -> Position:
        """Where text stands that follows these ids."""
        if not ids:
            return "start"
        return "after_control" if self.is_control(ids[-1]) else "inside"

    def decode(self, ids: Sequence[TokenId], skip_control: bool = False, markers: bool = False) -> str:
        """The text of the ids; bytes that are no UTF-8 become U+FFFD, one for each maximal invalid part.

        The space that the vocabulary puts before text is left out at the beginning.

        Args:
            skip_control: leave out control tokens, as a `Detokenizer` does.
            markers: but not those that mark tool calls.
        """
        text = b"".join(self.token_bytes(i, markers) if skip_control else self.text_bytes(i) for i in ids)
        return (text.removeprefix(b" ") if self.strips_space else text).decode("utf-8", errors="replace")

    def token_bytes(self, token: TokenId, markers: bool = False) -> bytes:
        """The bytes a token adds to the text that users see: none for a control token.

        Args:
            markers: the text that parsers of tool calls see: those control tokens that mark calls are in it.
        """
        hidden = self._hidden_from_parsers if markers else self._hidden
        return b"" if token in hidden else self.text_bytes(token)

    def text_bytes(self, token: TokenId) -> bytes:
        """The bytes of a token as a template writes it, of a control token too."""
        if not 0 <= token < self.vocab_size:
            raise InvalidRequest(f"token id {token} is outside the vocabulary of {self.vocab_size} ids")
        table = self._vocabulary.token_bytes
        return table[token] if token < len(table) else b""  # padding of the embedding

    def is_control(self, token: TokenId) -> bool:
        """Whether the token means structure; content never encodes to it."""
        return token in self._control_ids

    def text_of(self, token: TokenId) -> str:
        """How a template writes the token, e.g. `<|im_end|>`."""
        return self.text_bytes(token).decode("utf-8", errors="replace")
