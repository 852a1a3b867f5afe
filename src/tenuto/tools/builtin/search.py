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
from typing import Annotated, Any

import pydantic

from tenuto.errors import ConfigError, InvalidArguments
from tenuto.tools.schema import Tool, tool

_SUFFIX_WORDS = ".md .txt .rst .py .json .jsonl .csv .tsv .toml .yaml .yml .html .log .ini .cfg"
_SUFFIXES = frozenset(_SUFFIX_WORDS.split())
_MAX_PASSAGE_CHARS = 600
_MAX_RESULTS = 10
_CJK = r"\u3400-\u4dbf\u4e00-\u9fff\u3040-\u30ff\uac00-\ud7af"
_WORDS = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_IS_CJK = re.compile(rf"[{_CJK}]")


@dataclass(frozen=True)
class SearchLimits:
    max_files: int = 2000
    max_file_bytes: int = 512 * 1024  # of larger files the beginning is read
    max_total_bytes: int = 16 * 1024 * 1024
    max_depth: int = 12


@dataclass(frozen=True)
class Passage:
    file: str  # relative to the root
    line: int  # of its first line, from 1
    text: str
    terms: frozenset[str]  # the question's terms in it


def search_tool(root: Path, limits: SearchLimits = SearchLimits()) -> Tool:
    """The tool `search(query)` over the text files under `root`. Raises ConfigError if that is no directory."""
    if not root.is_dir():
        raise ConfigError(f"search directory {root}: there is no such directory")

    @tool(name="search", deadline_s=20.0)
    def find(query: str, max_results: Annotated[int, pydantic.Field(ge=1, le=_MAX_RESULTS)] = 3) -> dict[str, Any]:
        """Search the local documents. 搜索文档。

        Args:
            query: words to look for
            max_results: most passages to return
        """
        return search(root, query, max_results, limits)

    return find


def search(root: Path, query: str, max_results: int, limits: SearchLimits) -> dict[str, Any]:
    """The best passages by the summed weight of the distinct query terms in them, rarer terms weighing more.

    Returns {"results": [{"file", "line", "text"}]}, with a "note" if a limit left files unread or nothing was found.
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
    answer: dict[str, Any] = {"results": [{"file": p.file, "line": p.line, "text": p.text} for p in best]}
    if not best:
        notes.append("nothing was found; try other words")
    return {**answer, "note": "; ".join(notes)} if notes else answer


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
