"""The console script. Imports as little as it can, so that Ctrl-C during start-up ends quietly too."""

from __future__ import annotations

import os
import sys
import threading

INTERRUPTED = 130  # what shells expect of a program ended by Ctrl-C


def main() -> None:
    try:
        from tenuto.cli import main as run

        run()
        code: object = 0
    except KeyboardInterrupt:
        code = INTERRUPTED
    except SystemExit as ending:
        code = ending.code
    leave(code)


def leave(code: object) -> None:
    """End the process with what `sys.exit` was given.

    A thread may still be inside native code: a step, a grammar, a file that loads. Python stops such a thread as it
    takes itself apart, which some libraries answer with a crash; so it is not taken apart then.
    """
    if threading.active_count() == 1 or not (code is None or isinstance(code, int)):
        sys.exit(code)  # type: ignore[arg-type]
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # the reader has gone, or it is closed
            continue
    os._exit(code or 0)
