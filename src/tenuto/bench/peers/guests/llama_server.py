"""Serves a GGUF model with llama.cpp's own server until standard input ends.

    python llama_server.py JOB.json

JOB.json: {"model": file, "settings": {name of a parameter: value}}.

Prints one JSON object when it is ready: {"url": address, "versions": {name: version}}.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import xllamacpp


def parameters(job: dict[str, Any]) -> Any:
    """Dotted names reach into parameters of parameters; a string for an enumeration names its member."""
    params = xllamacpp.CommonParams()
    for name, value in {"model.path": job["model"], **job["settings"]}.items():
        *path, last = name.split(".")
        target = params
        for part in path:
            target = getattr(target, part)
        if not hasattr(target, last):
            raise SystemExit(f"this llama.cpp has no setting {name}")
        kind = type(getattr(target, last))
        named = isinstance(value, str) and hasattr(kind, value)
        setattr(target, last, getattr(kind, value) if named else value)
    return params


def main() -> None:
    server = xllamacpp.Server(parameters(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
    versions = {"xllamacpp": version("xllamacpp"), "llama.cpp": str(xllamacpp.BUILD_INFO)}
    print(json.dumps({"url": server.listening_address, "versions": versions}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
