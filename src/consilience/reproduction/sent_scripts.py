"""A script that is sent to machines which do not have it: the text files of its folder, and of scripts it loaded."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from consilience.core.errors import InputError
from consilience.reproduction.study import SCRIPTS, Settings, load_script

# What is sent: code and settings beside a script and in the folders there, but no data.
_ENDINGS = (".py", ".yaml", ".yml", ".toml", ".json")
_LARGEST = 2**20  # bytes of a file; larger ones are data
_MOST_BYTES = 2**24
_MOST_FILES = 2_000
# Where this process has written the scripts that it was sent, by their content.
_WRITTEN: dict[int, Path] = {}


@dataclass(frozen=True)
class SentFunction:
    """A function of a script with the files that it needs; called as `measure` of a job, on any machine.

    Attributes:
        script: The file of the function, relative to the folder that all files have in common.
        name: Of the function.
        files: Relative path → content.
    """

    script: str
    name: str
    files: dict[str, bytes]

    @classmethod
    def of(cls, study: str, function: Callable[..., Any]) -> SentFunction:
        """Collect the files of a function at the top level of a file.

        Raises:
            InputError: It is no such function, or its folder holds too much to be sent.
        """
        code, name = getattr(function, "__code__", None), getattr(function, "__qualname__", "")
        if code is None or not name.isidentifier():
            raise InputError(f"{study}: on a cluster, measure must be a function at the top level of a file")
        script = Path(code.co_filename).resolve()
        folders = list(dict.fromkeys(path.parent for path in (script, *_loaded_by(function.__module__))))
        root = Path(os.path.commonpath(folders))
        paths = {path for folder in folders for path in _texts(folder)}
        files = {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted({script, *paths})}
        if len(files) > _MOST_FILES or sum(map(len, files.values())) > _MOST_BYTES:
            raise InputError(
                f"{study}: the folder of {script.name} holds {len(files)} files of code and settings, too much to be "
                "sent to a cluster with it: move the script into a folder of its own"
            )
        return cls(script.relative_to(root).as_posix(), name, files)

    def __call__(self, cell: Any, shared: Settings, store: Any) -> Any:
        """Measure a cell."""
        return self._function(cell.settings, shared)

    @cached_property
    def _function(self) -> Callable[..., Any]:
        return getattr(load_script(self._folder() / self.script), self.name)

    def _folder(self) -> Path:
        """The folder with the files, written once by each process and removed when it ends."""
        known = hash(tuple(sorted(self.files.items())))
        if known not in _WRITTEN:
            folder = Path(tempfile.mkdtemp(prefix="consilience-script-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            for name, content in self.files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            _WRITTEN[known] = folder
        return _WRITTEN[known]


def _loaded_by(name: str) -> list[Path]:
    """The files of the scripts that a module has loaded, and of those that these have loaded."""
    seen, waiting = {name}, [name]
    while waiting:
        for value in vars(sys.modules[waiting.pop()]).values():
            # A module, or something of one: a function, a class, or an object of a class.
            inner = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(inner, str) and inner.startswith(SCRIPTS) and inner not in seen:
                seen.add(inner)
                waiting.append(inner)
    return [Path(str(sys.modules[inner].__file__)) for inner in sorted(seen) if inner.startswith(SCRIPTS)]


def _texts(folder: Path) -> Iterator[Path]:
    """The files of code and settings in a folder and in the folders in it."""
    for inner in (folder, *sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())):
        if inner.name.startswith((".", "__")):
            continue
        for path in inner.iterdir():
            if path.suffix in _ENDINGS and path.is_file() and path.stat().st_size <= _LARGEST:
                yield path.resolve()
