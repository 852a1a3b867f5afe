"""Text to token ids and back."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tenuto.checkpoint import TokenizerFiles
from tenuto.errors import InvalidRequest, ModelFileError
from tenuto.ids import TokenId
from tenuto.text import vocabulary as vocabularies
from tenuto.text.marked import MarkedText
from tenuto.text.vocabulary import Vocabulary

# Ends of a turn by the token's very name: many configs name only one of several.
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>")
# Control tokens that a tool-call parser must see, although they may be flagged as special.
_CALL_TAGS = ("<tool_call>", "</tool_call>")


class Tokenizer:
    """Byte-level BPE, from a Hugging Face directory or a GGUF file.

    Bytes that the vocabulary has no token for are dropped when encoding, as the models' own tokenizers do.

    Attributes:
        vocab_size: number of ids; at least the number of tokens, more where a model pads its embedding.
        eos_ids: ids after which a turn is over.
        bos_id: id that starts a text, if the model has one.
        add_bos: whether a text must start with it. The chat template sees to that, never `encode`.
    """

    def __init__(self, vocabulary: Vocabulary, files: TokenizerFiles, vocab_size: int | None = None) -> None:
        num_tokens = len(vocabulary.token_bytes)
        self._vocabulary = vocabulary
        self.vocab_size = num_tokens if vocab_size is None else vocab_size
        for what, i in [("vocabulary", num_tokens - 1), *((t, i) for t, i in vocabulary.control.items())]:
            if i >= self.vocab_size:
                raise ModelFileError(f"tokenizer: id {i} of {what!r} is outside the model's {self.vocab_size} ids")
        for name, ids in (("bos", (files.bos_id,) if files.bos_id is not None else ()), ("eos", files.eos_ids)):
            for i in ids:
                if not 0 <= i < num_tokens:
                    raise ModelFileError(f"tokenizer: {name} id {i} is outside its {num_tokens} tokens")
        turn_ends = [vocabulary.control[t] for t in _TURN_ENDS if t in vocabulary.control]
        self.eos_ids: frozenset[TokenId] = frozenset(map(TokenId, (*files.eos_ids, *turn_ends)))
        self.bos_id = None if files.bos_id is None else TokenId(files.bos_id)
        self.add_bos = files.add_bos and files.bos_id is not None
        self._hidden = vocabulary.special - {vocabulary.control.get(t) for t in _CALL_TAGS}
        self._control_ids = frozenset(vocabulary.control.values())
        self._split = self._splitter()
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
            return cls(vocabularies.from_json(files.json_path), files, vocab_size)
        if files.gguf is not None:
            return cls(vocabularies.from_gguf(files.gguf), files, vocab_size)
        raise ModelFileError("the model has no tokenizer: neither a tokenizer.json nor GGUF metadata")

    def _splitter(self) -> re.Pattern[str] | None:
        """Finds control-token strings, the longest first where several start at one place."""
        vocabulary = self._vocabulary
        alternatives = [
            (r"\s*" if t in vocabulary.strip_left else "")
            + f"({re.escape(t)})"
            + (r"\s*" if t in vocabulary.strip_right else "")
            for t in sorted(vocabulary.control, key=len, reverse=True)
        ]
        return re.compile("|".join(alternatives)) if alternatives else None

    @property
    def control(self) -> dict[str, TokenId]:
        """Strings that mean something to the model when a template writes them, and their ids."""
        return {t: TokenId(i) for t, i in self._vocabulary.control.items()}

    def encode(self, text: MarkedText | str) -> list[TokenId]:
        """A plain str is content: no control token comes of it. In a MarkedText, those of the template do.

        Never adds a token of its own.
        """
        if isinstance(text, str):
            return list(map(TokenId, self._vocabulary.encode_plain(text)))
        ids: list[int] = []
        end = 0
        for found in self._split.finditer(text.text) if self._split else ():
            assert found.lastindex is not None  # every alternative has a group of its own
            ids += self._encode_piece(text.text[end : found.start()], text.mark)
            ids.append(self._vocabulary.control[found[found.lastindex]])
            end = found.end()
        ids += self._encode_piece(text.text[end:], text.mark)
        return list(map(TokenId, ids))

    def _encode_piece(self, piece: str, mark: str) -> list[int]:
        return self._vocabulary.encode_plain(piece.replace(mark, "")) if piece else []

    def encode_with_control(self, text: str) -> list[TokenId]:
        """Control-token strings anywhere in the text become their ids: for text that is trusted as a whole."""
        return list(map(TokenId, self._vocabulary.encode_control(text)))

    def decode(self, ids: Sequence[TokenId], skip_control: bool = False) -> str:
        """The text of the ids; bytes that are no UTF-8 become U+FFFD, one for each maximal invalid part.

        Args:
            skip_control: leave out control tokens, as a `Detokenizer` does.
        """
        pieces = (self.token_bytes(i) if skip_control else self.text_bytes(i) for i in ids)
        return b"".join(pieces).decode("utf-8", errors="replace")

    def token_bytes(self, token: TokenId) -> bytes:
        """The bytes a token adds to the text that users and parsers see: none for a control token."""
        return b"" if token in self._hidden else self.text_bytes(token)

    def text_bytes(self, token: TokenId) -> bytes:
        """The bytes of a token as a template writes it, of a control token too."""
        if not 0 <= token < self.vocab_size:
            raise InvalidRequest(f"token id {token} is outside the vocabulary of {self.vocab_size} ids")
        table = self._vocabulary.token_bytes
        return table[token] if token < len(table) else b""  # padding of the embedding

    def is_control(self, token: TokenId) -> bool:
        """Whether the token means structure; content never encodes to it."""
        return token in self._control_ids

    def is_special(self, token: TokenId) -> bool:
        """Whether the token is flagged as special, or is padding: it has no text of its own."""
        return token in self._vocabulary.special or token >= len(self._vocabulary.token_bytes)

    def text_of(self, token: TokenId) -> str:
        """How a template writes the token, e.g. `<|im_end|>`."""
        return self.text_bytes(token).decode("utf-8", errors="replace")
