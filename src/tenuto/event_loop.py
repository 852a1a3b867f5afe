"""Which event loop drives what is in a hurry."""

from __future__ import annotations

from importlib.util import find_spec


def loop_options() -> dict[str, bool]:
    """For `anyio.run`: uvloop, where the system has it; one pass of it costs half of what asyncio's own does."""
    return {"use_uvloop": find_spec("uvloop") is not None}
