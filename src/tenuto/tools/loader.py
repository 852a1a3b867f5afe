"""Loads the tools of a user's Python file. This runs the file, so only a user's explicit word leads here."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path

from tenuto.errors import ConfigError
from tenuto.tools.schema import Tool


def load_tools(path: Path) -> list[Tool]:
    """Every Tool at the file's module level, in order of definition.

    Raises ConfigError if there is no such file, it fails while it runs (with the line), or it holds no tool.
    """
    if not path.is_file():
        raise ConfigError(f"tools file {path}: there is no such file")
    if path.suffix != ".py":
        raise ConfigError(f"tools file {path}: a Python file (.py) is needed")
    module_name = f"tenuto_tools_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    previous = sys.modules.get(module_name)
    sys.modules[module_name] = module  # dataclasses and type hints look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        if previous is None:
            del sys.modules[module_name]
        else:
            sys.modules[module_name] = previous
        raise ConfigError(f"tools file {path}{_line(error, path)}: {type(error).__name__}: {error}") from error
    found = {id(value): value for value in vars(module).values() if isinstance(value, Tool)}
    if not found:
        raise ConfigError(f"tools file {path}: it holds no tool; decorate a function with @tool")
    return list(found.values())


def _line(error: BaseException, path: Path) -> str:
    """Where in the user's file it went wrong, e.g. ", line 7"."""
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}" if error.lineno else ""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f", line {lines[-1]}" if lines else ""
