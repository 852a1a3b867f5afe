"""A tokenizer of the `tokenizers` library, called so that hostile files and long texts do no harm."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import tokenizers

from tenuto.errors import ModelFileError
from tenuto.text.cuts import CutRule, never, parts_of

_SURROGATES = re.compile("[\ud800-\udfff]")


@contextmanager
def library_errors(where: str) -> Iterator[None]:
    """Whatever goes wrong with a file's content becomes a ModelFileError that names the file.

    That includes the library's panics, which are no `Exception`.

    Args:
        where: names the file, in the message.
    """
    try:
        yield
    except ModelFileError as error:
        if str(error).startswith(where):
            raise
        raise type(error)(f"{where}: {error}") from error
    except Exception as error:
        raise ModelFileError(f"{where}: not a tokenizer we can read: {error!s:.300}") from error
    except BaseException as error:
        if type(error).__module__ != "pyo3_runtime":
            raise
        raise ModelFileError(f"{where}: the tokenizer is corrupt: {error!s:.300}") from error


class LibraryTokenizer:
    """Text to ids, without control tokens: the library's tokenizer must not know any.

    Args:
        bare: encodes text that goes on from earlier text.
        prefixed: encodes text that a space is put before; the same as `bare` where the vocabulary has no such rule.
        can_cut: where long text may be cut. Offsets, which the library keeps for each byte of a text, would take
            800 times its size.
        where: names the file, in messages.
        prepare: applied to the whole text, and to whether it is to be prefixed, before anything else.
    """

    def __init__(
        self,
        bare: tokenizers.Tokenizer,
        prefixed: tokenizers.Tokenizer,
        *,
        where: str,
        can_cut: CutRule = never,
        prepare: Callable[[str, bool], str] | None = None,
    ) -> None:
        self._bare = bare
        self._prefixed = prefixed
        self._where = where
        self._can_cut = can_cut
        self._prepare = prepare

    def encode(self, text: str, prefixed: bool) -> list[int]:
        """
        Raises:
            ModelFileError: the library gives up, e.g. over a pattern of the file that costs too much.
        """
        if not text:
            return []
        # A lone surrogate, which JSON can carry into a str, has no bytes that a vocabulary could spell.
        text = _SURROGATES.sub("\ufffd", text)
        if self._prepare is not None:
            text = self._prepare(text, prefixed)
        ids: list[int] = []
        tokenizer = self._prefixed if prefixed else self._bare
        for part in parts_of(text, self._can_cut):
            with library_errors(self._where):
                # A batch of one: unlike `encode`, it lets other threads run meanwhile. `fast` keeps no offsets.
                ids += tokenizer.encode_batch_fast([part], add_special_tokens=False)[0].ids
            tokenizer = self._bare
        return ids
