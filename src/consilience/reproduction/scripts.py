"""Import Python files by their path: scripts of papers, and sections that a protocol takes from a file."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from consilience.comparison.plan import digest
from consilience.core.errors import InputError


def load_script(path: str | Path) -> ModuleType:
    """Import a Python file by its path, once in each process.

    Args:
        path: The file. It need not be importable by name.

    Returns:
        The module; the same one at every call.
    """
    path = Path(path).resolve()
    name = f"_script_{digest(str(path))}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise InputError(f"{path} is not a Python file")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[name])
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
