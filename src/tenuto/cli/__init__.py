"""The command line."""

from tenuto.cli.main import main

__all__ = ["main"]
