"""A vocabulary from a GGUF file's metadata."""

from __future__ import annotations

import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from tenuto.checkpoint import GGUFTokenizer
from tenuto.checkpoint.sentencepiece_format import CONTROL, UNKNOWN, USER_DEFINED, SentencePieceModel
from tenuto.errors import ModelFileError, UnsupportedModel
from tenuto.text.byte_level import bytes_of
from tenuto.text.cuts import before_spaces, between_words, outside
from tenuto.text.library_tokenizer import LibraryTokenizer, library_errors
from tenuto.text.pretokenizers import splitting
from tenuto.text.sentencepiece import SPACE, from_sentencepiece
from tenuto.text.vocabulary import IMPOSSIBLE, Vocabulary, is_markup


def from_gguf(files: GGUFTokenizer) -> Vocabulary:
    """
    Raises:
        UnsupportedModel: another kind of tokenizer, or an unknown pre-tokenizer; names it.
        ModelFileError: the lists do not fit each other.
    """
    with library_errors(_where(files)):
        if len(files.token_types) != len(files.tokens):
            raise ModelFileError(
                f"the tokenizer has {len(files.tokens)} tokens, but {len(files.token_types)} token types"
            )
        match files.kind:
            case "gpt2":
                return _byte_level(files)
            case "llama" | "t5":
                return _sentencepiece(files)
            case "bert":
                return _word_piece(files)
            case _:
                raise UnsupportedModel(
                    f"tokenizer kind {files.kind!r:.80} is not supported; gpt2 (byte-level BPE), llama "
                    "(SentencePiece), t5 (Unigram) and bert (WordPiece) are"
                )


def _where(files: GGUFTokenizer) -> str:
    return "the GGUF file" if files.path is None else str(files.path)


def _control(files: GGUFTokenizer) -> dict[str, int]:
    typed = zip(range(len(files.tokens)), files.tokens, files.token_types, strict=True)
    return {t: i for i, t, kind in typed if kind in (CONTROL, UNKNOWN) or (kind == USER_DEFINED and is_markup(t))}


def _special(files: GGUFTokenizer) -> frozenset[int]:
    return frozenset(i for i, kind in enumerate(files.token_types) if kind in (CONTROL, UNKNOWN))


def _byte_level(files: GGUFTokenizer) -> Vocabulary:
    how = splitting(files.pre)
    ids = _ids(files)
    control = _control(files)
    spelling = [
        t for t, kind in zip(files.tokens, files.token_types, strict=True) if kind == USER_DEFINED and t not in control
    ]
    merges = [tuple(merge.split(" ")) for merge in files.merges]
    if any(len(merge) != 2 for merge in merges):
        raise ModelFileError("a merge of the tokenizer is not a pair of tokens")
    if any(a not in ids or b not in ids or a + b not in ids for a, b in merges):
        raise ModelFileError("a merge of the tokenizer names tokens that its vocabulary lacks")
    vocabulary = {t: i for t, i in ids.items() if t not in control}
    kept = [(a, b) for a, b in merges if a in vocabulary and b in vocabulary and a + b in vocabulary]
    built = tokenizers.Tokenizer(models.BPE(vocabulary, kept, ignore_merges=how.ignore_merges))
    built.pre_tokenizer = how.pre_tokenizer()
    if (normalizer := how.normalizer()) is not None:
        built.normalizer = normalizer
    built.add_tokens([AddedToken(t, normalized=False) for t in spelling])
    added = {*control, *spelling}
    return Vocabulary(
        library=LibraryTokenizer(built, built, where=_where(files), can_cut=outside(spelling, between_words)),
        token_bytes=tuple(t.encode("utf-8") if t in added else bytes_of(t) for t in files.tokens),
        control=control,
        special=_special(files),
    )


def _ids(files: GGUFTokenizer) -> dict[str, int]:
    ids = {t: i for i, t in enumerate(files.tokens)}
    if len(ids) != len(files.tokens):
        raise ModelFileError("the tokenizer lists the same token twice")
    return ids


def _sentencepiece(files: GGUFTokenizer) -> Vocabulary:
    if not files.scores:
        raise ModelFileError(f"the tokenizer is of kind {files.kind!r}, but has no scores")
    model = SentencePieceModel(
        kind="bpe" if files.kind == "llama" else "unigram",
        tokens=files.tokens,
        scores=files.scores,
        types=files.token_types,
        unknown_id=next((i for i, kind in enumerate(files.token_types) if kind == UNKNOWN), None),
        add_dummy_prefix=files.add_space_prefix,
        remove_extra_whitespaces=files.remove_extra_whitespaces,
        charsmap=files.charsmap,
    )
    # As llama.cpp, whose format this is: a space goes before the text after each control token.
    return from_sentencepiece(model, where=_where(files), prefix="sections")


def _word_piece(files: GGUFTokenizer) -> Vocabulary:
    """BERT's, lower-cased. GGUF writes the beginning of a word as U+2581 where BERT marks what goes on with ##."""
    control = _control(files)
    ordinary = {i: t for i, t in enumerate(files.tokens) if t not in control}
    spelled = {t.removeprefix(SPACE) if t.startswith(SPACE) else f"##{t}": i for i, t in ordinary.items()}
    unknown = next((i for i, t in enumerate(files.tokens) if t == "[UNK]"), None)
    if unknown is None or len(spelled) != len(ordinary):
        raise ModelFileError("the tokenizer is of kind 'bert', but has no [UNK] token, or lists the same token twice")
    model = models.WordPiece({**spelled, IMPOSSIBLE: unknown}, unk_token=IMPOSSIBLE, max_input_chars_per_word=100)
    built = tokenizers.Tokenizer(model)
    built.normalizer = normalizers.BertNormalizer(lowercase=True)
    built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return Vocabulary(
        library=LibraryTokenizer(built, built, where=_where(files), can_cut=before_spaces),
        token_bytes=tuple((t if t in control else t.replace(SPACE, " ")).encode("utf-8") for t in files.tokens),
        control=control,
        special=_special(files),
        strips_space=True,
    )
