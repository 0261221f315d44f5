"""Run jobs on a Ray cluster whose machines share no folder: results and models come back, and are written here.

The machines need this library in the same version, and nothing else: data that this process can read are sent to them.
Each job runs in a folder of its own on its machine, which is removed afterwards.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import cloudpickle

from consilience.comparison.job import Measure, work
from consilience.comparison.plan import Job, Plan, Source
from consilience.comparison.store import Result, Store, writing
from consilience.core.errors import ConsilienceError, InputError, SplitWarning, TableWarning, TrainingError
from consilience.core.file_names import path_inside
from consilience.core.files import atomic_folder

logger = logging.getLogger("consilience")

_ATTEMPTS = 3  # of a job whose process or machine is lost
_AHEAD = 2  # jobs that wait for each processor, so that none is idle
_POLL_SECONDS = 0.5

# What the process of a machine has unpacked, by its digest: data and the caches of a script stay for the next job.
_UNPACKED: dict[str, Any] = {}


@dataclass(frozen=True)
class Returned:
    """What comes back of a job: its outcome, its result, and the files of its model by their path in its folder."""

    outcome: str
    result: Result
    model: dict[str, bytes]


class RayPool:
    """The machines of a Ray cluster as a pool of processes; jobs that were lost with one are run again.

    Args:
        measuring: Runs one job; None: a job of a comparison.
        plan: For `measuring`.
        store: The run folder, which only this process writes to.
    """

    def __init__(self, measuring: Measure | None, plan: Any, store: Store):
        self.store, self._measuring, self._plan = store, measuring, plan
        self._deaths: Counter[str] = Counter()
        self._ray: Any = None

    def _start(self) -> None:
        """Connect to the cluster, and send it what all jobs need."""
        self._ray = _connected()
        packed = cloudpickle.dumps((self._measuring, _with_data(self._plan)))
        self._digest = hashlib.sha256(packed).hexdigest()
        self._packed = self._ray.put(packed)
        # One try each: Ray would repeat a job without a word.
        options: dict[str, Any] = {"num_cpus": 1, "max_retries": 0}
        if isinstance(self._plan, Plan) and str(self._plan.training.get("device", "")).startswith("cuda"):
            if not self._ray.cluster_resources().get("GPU"):
                logger.warning("compare: device 'cuda', but no machine of the Ray cluster has a GPU: jobs wait for one")
            options["num_gpus"] = 1  # Ray hides the GPUs from a job that asks for none
        self._run = self._ray.remote(**options)(_run)

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, str]]:
        """Yield each job with its outcome, in the order in which they end; their results are written before.

        A job whose process or machine is lost is run again after all others, at most twice; then it has failed.
        """
        waiting, running = deque(jobs), dict[Any, tuple[Job, ExitStack]]()
        if waiting and self._ray is None:  # a finished comparison needs no cluster
            self._start()
        try:
            while waiting or running:
                while waiting and len(running) < self._places():
                    job, claimed = waiting.popleft(), ExitStack()
                    if not claimed.enter_context(self.store.claim(job)):
                        claimed.close()
                        yield job, "elsewhere"
                        continue
                    if self.store.done(job):  # another process has ended it meanwhile
                        claimed.close()
                        yield job, "done"
                        continue
                    running[self._run.remote(self._packed, self._digest, job)] = job, claimed
                ended, _ = self._ray.wait(list(running), timeout=_POLL_SECONDS) if running else ([], [])
                for reference in ended:
                    job, claimed = running.pop(reference)
                    with claimed:
                        outcome = self._collect(reference, job)
                    if outcome is None:
                        waiting.append(job)
                    else:
                        yield job, outcome
        finally:
            for reference, (_, claimed) in running.items():
                self._ray.cancel(reference, force=True)
                claimed.close()

    def _places(self) -> int:
        """How many jobs are on their way at once: as many as there are processors, and some that wait for these."""
        return _AHEAD * max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def _collect(self, reference: Any, job: Job) -> str | None:
        """Write what came back of a job; returns its outcome, or None if it was lost and is to be run again."""
        try:
            returned: Returned = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            # As it was raised: the message of `as_instanceof_cause()` is the whole traceback of the machine.
            if isinstance(error.cause, ConsilienceError):
                raise error.cause from None
            raise TrainingError(f"a machine of the cluster: {str(error).strip().splitlines()[-1]}") from error
        except self._ray.exceptions.RayError as error:  # its process or its machine has ended
            self._deaths[job.key] += 1
            reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
            if self._deaths[job.key] < _ATTEMPTS:
                logger.warning("%s was lost (%s); the job is run again", job.describe(), reason)
                return None
            told = f"in each of {_ATTEMPTS} attempts the process or machine of the job was lost: {reason}"
            self.store.write(job, Result({"error": f"TrainingError: {told}", "traceback": ""}))
            return "failed"
        if returned.model:
            self._write_model(job, returned.model)
        self.store.write(job, returned.result)  # last: a job with a result has its model
        return returned.outcome

    def _write_model(self, job: Job, files: dict[str, bytes]) -> None:
        target = self.store.model(job)
        self.store.drop_models([job])  # of a folder that was copied in part
        with writing(self.store.folder):
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_folder(target) as part:
                for name, content in files.items():
                    if ".." in PurePosixPath(name).parts or PurePosixPath(name).is_absolute():
                        raise InputError(f"the model of {job.describe()} came back with the file {name!r}")
                    path = path_inside(part, *PurePosixPath(name).parts)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)


def _run(packed: bytes, digest: str, job: Job) -> Returned:
    """Run a job on a machine of the cluster, in a folder of its own."""
    if digest not in _UNPACKED:
        _UNPACKED.clear()  # data of another comparison
        _UNPACKED[digest] = cloudpickle.loads(packed)
    measuring, plan = _UNPACKED[digest]
    with tempfile.TemporaryDirectory(prefix="consilience-job-") as folder:
        store = Store(folder)
        store.jobs.mkdir()
        outcome = work(job, plan, store, measuring=measuring)
        result, model = store.read(job), store.model(job)
        assert result is not None
        files = {path.relative_to(model).as_posix(): path.read_bytes() for path in model.rglob("*") if path.is_file()}
        return Returned(outcome, result, files)


def _connected() -> Any:
    """Ray, connected to the cluster of RAY_ADDRESS, or to one on this machine."""
    try:
        import ray
    except ImportError as error:
        raise InputError("compare: --cluster ray needs Ray: pip install 'consilience[ray]'") from error
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    return ray


def _with_data(plan: Any) -> Any:
    """The plan for machines that have none of the files: every set of a comparison is loaded here, and sent."""
    if not isinstance(plan, Plan):
        return plan
    return replace(plan, sources=tuple(_loaded(source) for source in plan.sources))


def _loaded(source: Source) -> Source:
    # A set on disk or in shards stays where it is: it may be larger than memory.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SplitWarning)  # the report has it
        warnings.simplefilter("ignore", TableWarning)  # the plan has said it
        data = source.load()
    if data.samples.on_disk and source.is_path and not str(source.name).startswith("/"):
        source = replace(source, name=source.name if "://" in source.name else str(Path(source.name).absolute()))
    return source if data.samples.on_disk else replace(source, data=data, called=source.label)
