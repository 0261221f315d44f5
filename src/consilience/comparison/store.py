"""The run folder: one file per finished job, written completely or not at all, readable without the others."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from consilience.comparison.plan import EXTENDABLE, Job
from consilience.core.errors import ConsilienceError, InputError, TrainingError
from consilience.core.files import atomic_file, atomic_folder, write_atomically
from consilience.version import __version__

PLAN = "plan.json"
_MARKER = "job.key"  # the file of a published model that names its job
_ABOUT = "about"  # the array of a result file that holds its JSON
# Libraries that figures depend on. Fabric comes in a distribution of its own, or inside one of the two others.
_RECORDED = ("torch", "numpy", "scikit-learn", "lightning-fabric", "lightning", "pytorch-lightning")


class StoreError(ConsilienceError, OSError):
    """The run folder cannot be written: no permission, or no space left."""


@dataclass
class Result:
    """The result of a job: `about` in plain values, and arrays of per-sample predictions by name."""

    about: dict[str, Any]
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether the job raised."""
        return "error" in self.about


class Store:
    """A folder with `plan.json`, `jobs/KEY.npz` (results), `jobs/KEY.lock` (at work), `models/KEY` and `best`."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.jobs = self.folder / "jobs"
        self.models = self.folder / "models"

    def check(self, asked: dict[str, Any]) -> None:
        """Refuse a folder that holds something else, or a comparison made with other settings."""
        existing = self.read_plan()
        if existing is None and self.folder.exists() and not self._only_begun():
            raise InputError(f"{self.folder} exists and holds no comparison: choose another folder with --out")
        if existing is not None and (differences := _differences(existing, asked)):
            raise InputError(
                f"{self.folder} holds a comparison made with other settings: {'; '.join(differences)}. "
                "Choose another folder with --out, or delete this one"
            )

    def _only_begun(self) -> bool:
        """Whether the folder holds only what a comparison leaves that was killed before its plan was written."""
        if not self.folder.is_dir():
            return False
        beyond = [path for path in self.folder.iterdir() if path != self.jobs and path.suffix != ".part"]
        return not beyond and not (self.jobs.is_dir() and any(self.jobs.iterdir()))

    def read_plan(self) -> dict[str, Any] | None:
        """Return the content of `plan.json`, or None where there is no readable plan."""
        try:
            plan = json.loads((self.folder / PLAN).read_text(encoding="utf-8"))
            return plan if {"asked", "jobs"} <= plan.keys() else None
        except (OSError, ValueError, AttributeError):
            return None

    def write_plan(self, plan: dict[str, Any]) -> None:
        """Create the folder, and write `plan.json`."""
        with writing(self.folder):
            self.jobs.mkdir(parents=True, exist_ok=True)
        self.write_text(PLAN, json.dumps(plan, indent=1))

    def write_text(self, name: str, text: str) -> Path:
        """Write a text file of the run folder, completely or not at all."""
        path = self.folder / name
        with writing(self.folder):
            return write_atomically(path, text)

    def has(self, job: Job) -> bool:
        """Return whether there is a file with the job's result, without reading it."""
        return self._path(job).exists()

    def read(self, job: Job) -> Result | None:
        """Return a job's result; None where there is no intact file."""
        try:
            with np.load(self._path(job), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            return Result(json.loads(arrays.pop(_ABOUT).tobytes()), arrays)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    def done(self, job: Job) -> bool:
        """Return whether the job has an intact result and did not fail."""
        result = self.read(job)
        return result is not None and not result.failed

    def read_all(self, jobs: Iterable[Job], name: str) -> dict[str, Result]:
        """Return every job's result by its key; raise a `TrainingError` if one is missing or failed."""
        results = {}
        for job in jobs:
            result = self.read(job)
            if result is None or result.failed:
                why = "it has no readable result" if result is None else result.about["error"]
                raise TrainingError(f"{name} has no result for {job.describe()}: {why}")
            results[job.key] = result
        return results

    def write(self, job: Job, result: Result) -> None:
        """Write a result: to a file beside its place, flushed to disk, then moved."""
        about = np.frombuffer(json.dumps(result.about).encode(), dtype=np.uint8)
        with writing(self.folder), atomic_file(self._path(job)) as part, part.open("wb") as file:
            np.savez(file, **{_ABOUT: about}, **result.arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())

    def discard(self, job: Job) -> None:
        """Remove a result, so that the job is run again."""
        self._path(job).unlink(missing_ok=True)

    @contextlib.contextmanager
    def claim(self, job: Job) -> Iterator[bool]:
        """Lock a job while working on it; yields False if another process has it.

        The lock is the operating system's, so that it ends with the process, however that ends.
        """
        import fcntl

        path = self.jobs / f"{job.key}.lock"
        with writing(self.folder), path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            try:
                yield True
            finally:
                path.unlink(missing_ok=True)

    def model(self, job: Job) -> Path:
        """Return the folder of a job's trained model."""
        return self.models / job.key

    def drop_models(self, jobs: Iterable[Job]) -> None:
        """Delete the models of these jobs."""
        for job in jobs:
            shutil.rmtree(self.model(job), ignore_errors=True)

    def publish(self, job: Job, target: Path) -> None:
        """Copy a job's model to `target`, which is replaced in one move."""
        with writing(self.folder), self._alone("publish"):
            if self.published(job, target):
                return
            with atomic_folder(target) as part:
                shutil.copytree(self.model(job), part, dirs_exist_ok=True)
                (part / _MARKER).write_text(job.key, encoding="utf-8")

    def published(self, job: Job, target: Path) -> bool:
        """Return whether the model in `target` is this job's."""
        marker = target / _MARKER
        return marker.exists() and marker.read_text(encoding="utf-8") == job.key

    @contextlib.contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Wait until no other process does the same."""
        import fcntl

        with (self.folder / f".{name}.lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _path(self, job: Job) -> Path:
        return self.jobs / f"{job.key}.npz"


def _differences(existing: dict[str, Any], asked: dict[str, Any]) -> list[str]:
    """In what a call differs from the comparison in its folder so that finished jobs would not be valid.

    Settings of a method that was not run before, such as a new variant, change no finished job.
    """
    before, now = ({"repeats": 1} | described for described in (existing["asked"], asked))  # 1 repeat is not written
    ran = {job["method"] for job in existing["jobs"]}
    pairs = {name: (before.get(name), value) for name, value in now.items() if name not in (*EXTENDABLE, "settings")}
    for method in sorted(ran):
        old, new = (described.get("settings", {}).get(method, {}) for described in (before, now))
        pairs[f"the settings of {method}"] = (old, new)
    return [f"{name} was {_short(old)}, now {_short(new)}" for name, (old, new) in pairs.items() if old != new]


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn errors of the file system into a `StoreError` of one sentence."""
    try:
        yield
    except OSError as error:
        if isinstance(error, ConsilienceError) or error.errno is None:
            raise
        raise StoreError(f"cannot write to {folder}: {error.strerror}. Results already there are kept") from error


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "…"


def versions_used() -> dict[str, str]:
    """Return the versions of this library, Python and the libraries that numbers depend on, and the platform."""
    return {
        "consilience": __version__,
        "python": platform.python_version(),
        **installed_versions(),
        "platform": platform.platform(terse=True),
    }


def installed_versions() -> dict[str, str]:
    """Return the versions of those libraries that are installed under their own name.

    >>> installed_versions()["torch"].split(".")[0]
    '2'
    """
    found = {}
    for name in _RECORDED:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
