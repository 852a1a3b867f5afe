from __future__ import annotations

import os
from pathlib import Path

import pytest

from tenuto.errors import ConfigError, InvalidArguments
from tenuto.tools.builtin.search import SearchLimits, SearchResult, search, search_tool, terms

LIMITS = SearchLimits()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    base = tmp_path / "data"
    (base / "深").mkdir(parents=True)
    (base / "guide.md").write_text(
        "# Guide\n\nThe cache holds blocks.\n\nA lease keeps a block for a while.\n", "utf-8"
    )
    (base / "深" / "手册.txt").write_text("第一段：安装。\n\n第二段：缓存命中率很高。\n\n第三段：缓存。\n", "utf-8")
    (base / "noise.txt").write_text("block block block\n\nnothing here\n", "utf-8")
    return base


def found(root: Path, query: str, max_results: int = 3) -> list[tuple[str, int]]:
    return [(p.file, p.line) for p in search(root, query, max_results, LIMITS).passages]


def test_passages_are_found_with_file_and_line(root):
    assert found(root, "lease block")[0] == ("guide.md", 5)
    assert found(root, "缓存命中率")[0] == (os.path.join("深", "手册.txt"), 3)
    assert found(root, "block", 1) == [("noise.txt", 1)]
    (best, *_) = search(root, "Lease", 3, LIMITS).passages
    assert best.text == "A lease keeps a block for a while."


def test_nothing_found_says_so_and_no_words_is_refused(root):
    assert search(root, "zebra", 3, LIMITS) == SearchResult((), ("Nothing found: zebra",))
    assert search(root, "斑马", 3, LIMITS) == SearchResult((), ("没有找到：斑马",))
    with pytest.raises(InvalidArguments, match="query"):
        search(root, " ?! ", 3, LIMITS)


def test_terms_are_words_and_pairs_of_chinese_characters():
    assert terms("KV缓存命中 Cache-2") == {"kv", "缓存", "存命", "命中", "cache", "2"}
    assert terms("我 Ａ") == {"我", "a"}


def test_nothing_outside_the_directory_is_read(root, tmp_path):
    secret = tmp_path / "data_secret"
    secret.mkdir()
    (secret / "key.txt").write_text("canary")
    (root / "dir").symlink_to(secret)
    (root / "file.txt").symlink_to(secret / "key.txt")
    (root / "up.txt").symlink_to("../data_secret/key.txt")
    (root / ".hidden.txt").write_text("canary")
    assert found(root, "canary") == []


def test_a_root_that_is_a_link_works(root, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(root)
    assert found(link, "lease") == [("guide.md", 5)]


def test_pipes_devices_and_binary_files_do_not_stop_it(root):
    os.mkfifo(root / "pipe.txt")
    (root / "binary.txt").write_bytes(b"\xff\xfe lease \x00")
    (root / "picture.png").write_bytes(b"lease")
    assert ("guide.md", 5) in found(root, "lease")
    assert all(file != "picture.png" for file, _ in found(root, "lease", 10))


def test_limits_are_kept_and_told(root):
    answer = search(root, "block", 3, SearchLimits(max_files=1))
    assert {p.file for p in answer.passages} == {"guide.md"}
    assert answer.notes == ("only the first 1 files were searched",)
    assert search(root, "缓存", 3, SearchLimits(max_depth=1)).passages == ()
    assert search(root, "lease", 3, SearchLimits(max_file_bytes=20)).passages == ()


def test_a_long_paragraph_comes_in_parts(root):
    (root / "long.md").write_text("x\n" * 2000 + "needle\n")
    (only,) = search(root, "needle", 3, LIMITS).passages
    assert only.line > 1500 and len(only.text) <= 600


def test_the_tool_answers_in_lines_short_enough_for_a_small_model(root):
    (root / "long.md").write_text("filler " * 60 + "needle here " + "more " * 60, "utf-8")
    (root / "wide.md").write_text("needle\nand\n  more " + "words " * 80, "utf-8")
    tool = search_tool(root)
    text = tool(**tool.check({"query": "needle"}))
    lines = text.splitlines()
    assert len(text) <= 620 and len(lines) == 2
    assert {line.split(": ")[0] for line in lines} == {"long.md:1", "wide.md:1"}
    assert all("needle" in line for line in lines)
    assert tool(**tool.check({"query": "缓存命中率"})).startswith(os.path.join("深", "手册.txt") + ":3: 第二段")
    assert tool(**tool.check({"query": "斑马"})) == "没有找到：斑马"


def test_the_tool_checks_its_directory(root, tmp_path):
    assert list(search_tool(root).parameters["properties"]) == ["query"]
    with pytest.raises(ConfigError, match="no such directory"):
        search_tool(tmp_path / "none")
