"""The console script. Imports as little as it can, so that Ctrl-C during start-up ends quietly too."""

from __future__ import annotations

import sys

INTERRUPTED = 130  # what shells expect of a program ended by Ctrl-C


def main() -> None:
    try:
        from tenuto.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
