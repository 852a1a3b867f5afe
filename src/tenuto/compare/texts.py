"""The texts that settings are compared on: prose and code that come along, or a user's own."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from tenuto.errors import ConfigError

NAMES = ("prose", "code")
_MAX_BYTES = 16 * 2**20  # far more than any context holds; a mistyped path to a model is not read


@dataclass(frozen=True)
class Text:
    name: str
    content: str


def shipped_texts() -> tuple[Text, ...]:
    """Prose (English and Chinese) and code, each of about 9,000 tokens in the embedded model's vocabulary."""
    folder = resources.files("tenuto.compare") / "texts"
    return tuple(Text(name, (folder / f"{name}.txt").read_text(encoding="utf-8")) for name in NAMES)


def read_text(path: Path) -> Text:
    """Raises ConfigError: the file cannot be read, is too large, empty, or no UTF-8."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"text {path}: larger than {_MAX_BYTES >> 20} MiB; give the part to compare on")
        content = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"text {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"text {path}: not UTF-8 (byte {error.start})") from error
    if not content.strip():
        raise ConfigError(f"text {path}: the file is empty")
    return Text(str(path), content)
