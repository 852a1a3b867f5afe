"""Whether a model's files are those of yesterday, told without reading them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tenuto.errors import ModelFileError

_PART = re.compile(r"(?P<stem>.+-)[0-9]{5}(?P<of>-of-[0-9]{5}\.gguf)", re.DOTALL)


def files_identity(path: Path) -> str:
    """Names, sizes and times of change of the files that hold a model's weights, as text.

    A checkpoint's `fingerprint` reads only the beginnings of its tensors. Together with this it differs for files that
    were changed further on, as long as the system's times are honest; what `make` and `rsync` go by.

    Raises:
        ModelFileError: a file is gone.
    """
    try:
        return "\n".join(f"{name} {status.st_size} {status.st_mtime_ns}" for name, status in _weight_files(path))
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror or error})") from error


def _weight_files(path: Path) -> list[tuple[str, os.stat_result]]:
    if path.is_dir():
        files = [p for p in path.iterdir() if p.suffix == ".safetensors"]
    elif part := _PART.fullmatch(path.name):
        beginning, end = part["stem"], part["of"]
        files = [p for p in path.parent.iterdir() if p.name.startswith(beginning) and p.name.endswith(end)]
    else:
        files = [path]
    return [(file.name, file.stat()) for file in sorted(files)]  # links are followed: hubs' caches are made of them
