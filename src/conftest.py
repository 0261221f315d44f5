"""Collecting doctests must not run a module of the library twice."""

import importlib
from pathlib import Path

SOURCE = Path(__file__).parent


def pytest_collect_file(file_path: Path) -> None:
    """Import a module by its name before pytest does from its file.

    pytest imports a file's package first and then runs the file, even where the package has already imported it: the
    methods or experiments in it would be registered twice.
    """
    if file_path.suffix == ".py" and file_path.stem not in ("__main__", "conftest"):
        parts = file_path.relative_to(SOURCE).with_suffix("").parts
        importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
