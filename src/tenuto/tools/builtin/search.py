"""The local search tool: finds passages in the text files of one directory, in English and Chinese.

Nothing outside the directory is ever opened: the walk does not follow links, files are opened relative to the open
directory they were found in and not through links, and only regular files are read.
"""

from __future__ import annotations

import math
import os
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pydantic

from tenuto.errors import ConfigError, InvalidArguments
from tenuto.tools.schema import Copied, Example, Tool, tool

_SUFFIX_WORDS = ".md .txt .rst .py .json .jsonl .csv .tsv .toml .yaml .yml .html .log .ini .cfg"
_SUFFIXES = frozenset(_SUFFIX_WORDS.split())
_MAX_PASSAGE_CHARS = 600
_CJK = r"\u3400-\u4dbf\u4e00-\u9fff\u3040-\u30ff\uac00-\ud7af"
_WORDS = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_IS_CJK = re.compile(rf"[{_CJK}]")


@dataclass(frozen=True)
class SearchLimits:
    max_files: int = 2000
    max_file_bytes: int = 512 * 1024  # of larger files the beginning is read
    max_total_bytes: int = 16 * 1024 * 1024
    max_depth: int = 12
    max_results: int = 2  # told to the model
    max_text_chars: int = 600  # of the whole result, so that a small model can read it


@dataclass(frozen=True)
class Passage:
    file: str  # relative to the root
    line: int  # of its first line, from 1
    text: str
    terms: frozenset[str]  # the question's terms in it


@dataclass(frozen=True)
class SearchResult:
    passages: tuple[Passage, ...]  # the best first
    notes: tuple[str, ...]  # what a limit left unread, or that nothing was found


Query = Annotated[Copied[str], pydantic.Field(json_schema_extra={"minLength": 2})]

_EXAMPLES = (
    Example("查找文档 日志", {"query": "日志"}, "log.md:3: 日志写到标准输出。", "log.md:3: 日志写到标准输出。"),
    Example(
        "Search the docs for batch size",
        {"query": "batch size"},
        "batch.md:7: The batch size is set in the config.",
        "batch.md:7: The batch size is set in the config.",
    ),
)


def search_tool(root: Path, limits: SearchLimits = SearchLimits()) -> Tool:
    """The tool `search(query)` over the text files under `root`. Raises ConfigError if that is no directory."""
    if not root.is_dir():
        raise ConfigError(f"search directory {root}: there is no such directory")

    @tool(name="search", deadline_s=20.0, examples=_EXAMPLES)
    def find(query: Query) -> str:
        """search the documents"""
        return as_text(search(root, query, limits.max_results, limits), terms(query), limits.max_text_chars)

    return find


def as_text(found: SearchResult, wanted: set[str], max_chars: int) -> str:
    """One line a passage, "file:line: snippet", of which each gets its share of `max_chars`, and the notes."""
    share = max(40, max_chars // max(1, len(found.passages)))
    lines = []
    for passage in found.passages:
        place = f"{passage.file}:{passage.line}: "
        lines.append(place + _snippet(" ".join(passage.text.split()), wanted, max(20, share - len(place))))
    return "\n".join([*lines, *found.notes])


def _snippet(text: str, wanted: set[str], max_chars: int) -> str:
    """The part of the text around the first wanted term, cut at both ends if need be."""
    if len(text) <= max_chars:
        return text
    lower = text.lower()
    places = [at for term in wanted if (at := lower.find(term)) >= 0]
    start = max(0, min(min(places, default=0) - max_chars // 4, len(text) - max_chars))
    cut = text[start : start + max_chars]
    return ("..." if start else "") + cut + ("..." if start + max_chars < len(text) else "")


def search(root: Path, query: str, max_results: int, limits: SearchLimits) -> SearchResult:
    """The best passages by the summed weight of the distinct query terms in them, rarer terms weighing more.

    Raises InvalidArguments for a query without words.
    """
    wanted = terms(query)
    if not wanted:
        raise InvalidArguments("argument 'query': it holds no words to look for")
    found: list[Passage] = []
    num_passages = 0
    notes: list[str] = []
    for name, content in _files(root, limits, notes):
        for line, text in _passages(content):
            num_passages += 1
            present = wanted & terms(text)
            if present:
                found.append(Passage(name, line, text, frozenset(present)))
    frequency = Counter(term for passage in found for term in passage.terms)

    def rank(passage: Passage) -> tuple[float, int, str, int]:
        score = sum(math.log(1 + num_passages / frequency[term]) for term in passage.terms)
        return (-score, len(passage.text), passage.file, passage.line)

    best = sorted(found, key=rank)[:max_results]
    if not best:
        notes.append(f"没有找到：{query}" if _IS_CJK.search(query) else f"Nothing found: {query}")
    return SearchResult(tuple(best), tuple(notes))


def terms(text: str) -> set[str]:
    """Lower-case words; runs of Chinese, Japanese or Korean characters as pairs of neighbours."""
    found: set[str] = set()
    for run in _WORDS.findall(unicodedata.normalize("NFKC", text).lower()):
        if _IS_CJK.match(run):
            found.update([run] if len(run) == 1 else (run[at : at + 2] for at in range(len(run) - 1)))
        else:
            found.add(run)
    return found


def _files(root: Path, limits: SearchLimits, notes: list[str]) -> Iterator[tuple[str, str]]:
    """Relative name and text of each readable text file, in a fixed order, within the limits."""
    base = os.path.realpath(root)  # the root itself may be a link: the user named it
    num_files = num_bytes = 0
    for folder, folders, files, directory in os.fwalk(base, follow_symlinks=False):
        parts = os.path.relpath(folder, base).split(os.sep)
        folders[:] = sorted(f for f in folders if not f.startswith(".")) if len(parts) < limits.max_depth else []
        for file in sorted(files):
            if file.startswith(".") or os.path.splitext(file)[1].lower() not in _SUFFIXES:
                continue
            if num_files >= limits.max_files or num_bytes >= limits.max_total_bytes:
                notes.append(f"only the first {num_files} files were searched")
                return
            content = _read(file, directory, limits.max_file_bytes)
            if content is not None:
                num_files += 1
                num_bytes += len(content)
                yield os.path.relpath(os.path.join(folder, file), base), content.decode("utf-8", "replace")


def _read(file: str, directory: int, max_bytes: int) -> bytes | None:
    """A regular file's first bytes; None for a link, a device, or what cannot be opened."""
    try:
        # O_NONBLOCK: opening a named pipe must not wait for a writer.
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as opened:
        return opened.read(max_bytes) if stat.S_ISREG(os.fstat(handle).st_mode) else None


def _passages(content: str) -> Iterator[tuple[int, str]]:
    """First line number and text of each paragraph, long ones in parts."""
    line = 1
    for paragraph in re.split(r"(\n\s*\n)", content):
        for at in range(0, len(paragraph), _MAX_PASSAGE_CHARS):
            text = paragraph[at : at + _MAX_PASSAGE_CHARS].strip()
            if text:
                yield line + paragraph.count("\n", 0, at), text
        line += paragraph.count("\n")
