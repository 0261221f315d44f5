"""Requests that arrive together are predicted together: one thread for each model, with a queue of bounded length."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from consilience.core.samples import Samples
from consilience.serving.answers import Answer
from consilience.serving.refusals import Refusal, overloaded
from consilience.serving.served_model import ServedModel
from consilience.serving.serving_settings import ServingSettings


@dataclass
class Job:
    """One request: how its samples are read, and where its answer goes.

    Attributes:
        read: Returns the samples and what reading them warned of; called in the thread of the model.
        rows: Their number, as far as it is known before reading.
        deadline: When, on the clock of `time.monotonic`, nobody waits for the answer any more.
        answer: What the request waits for.
    """

    read: Callable[[], tuple[Samples, tuple[str, ...]]]
    rows: int
    deadline: float
    answer: Future[Answer] = field(default_factory=Future)


class Batcher:
    """Predicts the requests to one model, those that wait at the same time in one batch.

    A batch is begun as soon as no other request to the model is being received, or `batch_wait` later, or when it has
    `batch_rows` rows. While it is predicted, the next one gathers.

    Args:
        model: The model.
        settings: Limits.
        on_batch: Called before a batch is answered, with its samples, the number of
            requests, and the seconds it took.
    """

    def __init__(
        self,
        model: ServedModel,
        settings: ServingSettings,
        on_batch: Callable[[list[Samples], int, float], None] = lambda samples, requests, seconds: None,
    ):
        self.model, self.settings, self.on_batch = model, settings, on_batch
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._arriving = 0
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"model {model.name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many requests wait to be predicted."""
        return len(self._waiting)

    def arrive(self) -> bool:
        """Count a request that is being received; `leave` or `submit` must follow.

        Returns:
            False if the model has been replaced; then nothing is counted.
        """
        with self._changed:
            if self._closed:
                return False
            self._arriving += 1
            return True

    def leave(self) -> None:
        """Count a request as received that ends without a job."""
        with self._changed:
            self._arriving -= 1
            self._changed.notify()

    def submit(self, job: Job) -> None:
        """Queue a request that has arrived.

        Raises:
            Refusal: The queue is full (503).
        """
        with self._changed:
            self._arriving -= 1
            self._changed.notify()
            if len(self._waiting) >= self.settings.max_waiting:
                raise overloaded(f"{len(self._waiting)} requests to model {self.model.name!r} wait already")
            self._waiting.append(job)

    def close(self, wait: float | None = None) -> None:
        """Predict what waits and what is being received, then end the thread; wait: at most so many seconds for it."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if wait is not None:
            self._thread.join(wait)

    def _work(self) -> None:
        while jobs := self._gather():
            try:
                self._predict(jobs)
            except BaseException as error:  # whatever happens, the thread goes on and nobody waits in vain
                for job in jobs:
                    if not job.answer.done():
                        job.answer.set_exception(error)

    def _gather(self) -> list[Job]:
        """The requests of the next batch; none when there will be no further ones."""
        with self._changed:
            while not self._waiting:
                if self._closed and not self._arriving:
                    return []
                self._changed.wait()
            ready = time.monotonic() + self.settings.batch_wait / 1000
            while self._arriving > 0 and not self._closed and self._rows() < self.settings.batch_rows:
                if (left := ready - time.monotonic()) <= 0:
                    break
                self._changed.wait(left)
            jobs = [self._waiting.popleft()]
            rows = jobs[0].rows
            while self._waiting and rows + self._waiting[0].rows <= self.settings.batch_rows:
                jobs.append(self._waiting.popleft())
                rows += jobs[-1].rows
            return jobs

    def _rows(self) -> int:
        return sum(job.rows for job in self._waiting)

    def _predict(self, jobs: list[Job]) -> None:
        began = time.monotonic()
        read: list[tuple[Job, Samples, tuple[str, ...]]] = []
        for job in jobs:
            if time.monotonic() > job.deadline or not job.answer.set_running_or_notify_cancel():
                if not job.answer.done():
                    job.answer.set_exception(Refusal(504, "the request waited too long for its turn"))
                continue
            try:
                read.append((job, *job.read()))
            except Exception as error:
                job.answer.set_exception(error)
        if not read:
            return
        answers: list[Any] = self.model.predict_together([samples for _, samples, _ in read])
        predicted = [part for (_, part, _), answer in zip(read, answers) if not isinstance(answer, Exception)]
        self.on_batch(predicted, len(predicted), time.monotonic() - began)
        for (job, _, said), answer in zip(read, answers):
            if isinstance(answer, Exception):
                job.answer.set_exception(answer)
            else:
                job.answer.set_result(answer.warning(said) if said else answer)
