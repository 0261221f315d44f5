"""The scripts in `papers/`, loaded by their paths."""

from pathlib import Path
from types import ModuleType

from consilience.reproduction.study import load_script

PAPERS = Path(__file__).parents[1] / "papers"


def script(name: str) -> ModuleType:
    """The script of this name; the same module at every call."""
    return load_script(PAPERS / f"{name}.py")
