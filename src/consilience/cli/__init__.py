"""The command line: `consilience COMMAND …`."""

from consilience.cli.main import main

__all__ = ["main"]
