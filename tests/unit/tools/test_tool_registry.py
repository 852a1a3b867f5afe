from __future__ import annotations

import dataclasses
import sys

import pytest

from tenuto.errors import ConfigError, UnknownTool
from tenuto.tools import ToolRegistry, load_tools, tool


@tool
def first(x: int) -> int:
    """第一。"""
    return x


@tool
def second(x: int) -> int:
    """第二。"""
    return x


def test_tools_keep_their_order_and_are_found_by_name():
    registry = ToolRegistry([second], builtin=[first])
    assert registry.names == ("first", "second")
    assert [spec.description for spec in registry.specs()] == ["第一。", "第二。"]
    assert registry.get("second") is second
    assert len(registry) == 2 and "first" in registry and "third" not in registry


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UnknownTool, match=r"no tool 'serch'; the tools are: first, second"):
        ToolRegistry([first, second]).get("serch")
    with pytest.raises(UnknownTool, match="none"):
        ToolRegistry().get("x" * 10_000)


def test_names_are_unique_and_builtins_cannot_be_taken_over():
    with pytest.raises(ConfigError, match="another tool is already named 'first'"):
        ToolRegistry([first, first])
    impostor = dataclasses.replace(second, name="first")
    with pytest.raises(ConfigError, match="a built-in tool is already named 'first'"):
        ToolRegistry([impostor], builtin=[first])
    with pytest.raises(ConfigError, match="letters, digits"):
        ToolRegistry([dataclasses.replace(second, name="no spaces")])
    with pytest.raises(ConfigError, match="@tool"):
        ToolRegistry([len])


GOOD = '''
from __future__ import annotations
from dataclasses import dataclass
from tenuto.tools import Tool, tool

@dataclass
class Point:
    x: int

@tool
def later(point: Point) -> int:
    """后面的。"""
    return point.x

@tool(name="earlier")
async def other(x: int) -> int:
    """前面的。"""
    return x

alias = later
helper = lambda x: x
'''


def test_a_users_file_gives_its_tools_in_order(tmp_path):
    path = tmp_path / "我的工具.py"
    path.write_text(GOOD, "utf-8")
    tools = load_tools(path)
    assert [t.name for t in tools] == ["later", "earlier"]
    assert tools[0](**tools[0].check({"point": {"x": 3}})) == 3


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("x = 1\n", "holds no tool"),
        ("x = 1\n\nx = nix\n", "line 3: NameError"),
        ("def f(:\n", "line 1: SyntaxError"),
        ("import sys\nsys.exit(3)\n", "line 2: SystemExit"),
        ("from tenuto.tools import tool\n@tool\ndef f(x): ...\n", "ConfigError: tool f: parameter 'x'"),
    ],
)
def test_a_faulty_file_is_refused_with_the_place(tmp_path, source, told):
    path = tmp_path / "faulty.py"
    path.write_text(source)
    with pytest.raises(ConfigError) as raised:
        load_tools(path)
    assert told in str(raised.value) and "faulty.py" in str(raised.value)


def test_a_missing_or_foreign_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        load_tools(tmp_path / "none.py")
    (tmp_path / "tools.txt").write_text("x")
    with pytest.raises(ConfigError, match="Python file"):
        load_tools(tmp_path / "tools.txt")


def test_a_failed_load_leaves_no_module_behind(tmp_path):
    path = tmp_path / "gone.py"
    path.write_text("raise ValueError('坏')\n", "utf-8")
    with pytest.raises(ConfigError, match="坏"):
        load_tools(path)
    assert "tenuto_tools_gone" not in sys.modules
