"""The command line face: `consilience COMMAND …`."""

from consilience.cli.main import main

__all__ = ["main"]
