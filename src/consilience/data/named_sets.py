"""The named data sets: their descriptions, licences, required files and registry."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from consilience.core.errors import InputError, MissingDataError
from consilience.core.registry import Registry
from consilience.core.settings import check_settings, checked, settings_of
from consilience.data.dataset import DataSet

DATA_VARIABLE = "CONSILIENCE_DATA"


@dataclass(frozen=True)
class Files:
    """The files of a data set, and where to get them.

    Attributes:
        folder: The folder below data_dir.
        names: Of the files; a name that ends in a slash is a folder of files.
        what: What the files are, for error messages.
        origin: Where to get them.
        licence: Of the data.
    """

    folder: str
    names: tuple[str, ...]
    what: str
    origin: str
    licence: str

    def check(self, found: Path) -> None:
        """Raise an error that says what to get if a file is not in this folder."""
        missing = [
            name
            for name in self.names
            if not ((found / name).is_dir() if name.endswith("/") else (found / name).is_file())
        ]
        if missing:
            raise self.missing(missing, f"was not found in {found}")

    def missing(self, names: Sequence[str], why: str) -> MissingDataError:
        """The error for missing files: what to get, from where, under which licence, where to put it."""
        return MissingDataError(
            f"{self.what} {why}: get {', '.join(names)} from {self.origin} (licence: {self.licence}), put "
            f"{'it' if len(names) == 1 else 'them'} into DIR/{self.folder} and give DIR as data_dir, or in the "
            f"environment variable {DATA_VARIABLE}. To find it, search the web for: {self.what} download"
        )


def source_files(source: str, *names: str) -> Files:
    """Return the files of an entry of `sets/sources.toml`, which says where the files of the named sets come from.

    >>> source_files("hydraulic", "cycles_1hz.npz").licence
    'CC BY 4.0'
    """
    return Files(names=names, **_sources()[source])


@cache
def _sources() -> dict[str, dict[str, str]]:
    return tomllib.loads((Path(__file__).parent / "sets" / "sources.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class NamedSet:
    """A data set that can be loaded by name."""

    name: str
    description: str
    licence: str
    make: Callable[..., DataSet]
    files: Files | None = None

    @property
    def built_in(self) -> bool:
        """Whether it needs no files."""
        return self.files is None

    @property
    def options(self) -> tuple[str, ...]:
        """The names of its options."""
        return tuple(settings_of(self.make))

    def load(self, data_dir: str | os.PathLike[str] | None, options: Mapping[str, Any]) -> DataSet:
        """Load the set with these options, from its files if it needs any."""
        options = check_settings(f"data set {self.name!r}", self.make, options, noun="option")
        arguments = [] if self.files is None else [find_folder(self.files, data_dir)]
        try:
            data = self.make(*arguments, **options)
        except InputError as error:
            if type(error) is not InputError or str(error).startswith("data set"):
                raise
            raise InputError(f"data set {self.name!r}: {error}") from error
        reading = {**data.reading, "options": dict(options)}
        return replace(data, name=self.name, description=self.description, licence=self.licence, reading=reading)

    def available(self, data_dir: str | os.PathLike[str] | None = None) -> bool:
        """Whether it can be loaded now: it needs no files, or they are in their folder."""
        try:
            return self.files is None or find_folder(self.files, data_dir).is_dir()
        except MissingDataError:
            return False


def find_folder(files: Files, data_dir: str | os.PathLike[str] | None) -> Path:
    """The folder of these files, below `data_dir` or the environment variable CONSILIENCE_DATA."""
    root = data_dir if data_dir is not None else os.environ.get(DATA_VARIABLE)
    if not root:
        raise files.missing(files.names, "does not come with the library")
    folder = Path(root) / files.folder
    files.check(folder)
    return folder


_Make = TypeVar("_Make", bound=Callable[..., DataSet])
DATA_SETS: Registry[NamedSet] = Registry("data set", packages=("consilience.data.sets",), group="consilience.data_sets")


def register(name: str, *, description: str, licence: str = "", files: Files | None = None) -> Callable[[_Make], _Make]:
    """Return a decorator that registers a function as a named data set.

    The function takes the options of the set as keyword-only arguments and, if there are `files`, their folder first.

    Args:
        name: Lower-case words joined by hyphens.
        description: One line.
        licence: Of the data, if there are no files.
        files: The files that the set is read from.
    """

    def enter(make: _Make) -> _Make:
        make = checked(make)
        DATA_SETS.add(name, NamedSet(name, description, files.licence if files else licence, make, files))
        return make

    return enter


def registry() -> dict[str, NamedSet]:
    """All named data sets, in alphabetical order."""
    return dict(DATA_SETS)


def data_names() -> list[str]:
    """The names of the data sets that `load_data` knows.

    Example:
        >>> data_names()[:3]
        ['av-mnist', 'avmnist-predictions', 'breast-tcga']
    """
    return DATA_SETS.names()


def list_sets(data_dir: str | os.PathLike[str] | None = None) -> list[dict[str, Any]]:
    """Every named set in JSON values, without reading any data; `available` is whether its files are there.

    Example:
        >>> [entry["name"] for entry in list_sets() if entry["built_in"]]
        ['captions', 'digits', 'gaussians', 'progressive-synthetic', 'sequences']
    """
    return [
        {
            "name": name,
            "description": entry.description,
            "licence": entry.licence,
            "built_in": entry.built_in,
            "available": entry.available(data_dir),
        }
        for name, entry in DATA_SETS.items()
    ]
