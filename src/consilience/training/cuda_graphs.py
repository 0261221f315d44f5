"""Steps of training recorded once and replayed as CUDA graphs.

A small network costs a GPU little and Python much: hundreds of kernels are launched one by one at every step. Recorded,
they are launched together, and the step takes as long as the GPU needs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.errors import TrainingError

# A whole step, the update of the weights included, and what it found: tensors by name, free of gradients.
Work = Callable[[Batch], dict[str, Tensor]]
# Shapes of batches that are recorded in an epoch, each with memory of its own; others run as they are.
MOST_SHAPES = 4


class Recorder:
    """Does some work on batches: of each shape the first as it is, the second recorded, and all others replayed.

    stream: where, the same for all epochs of a training, since libraries keep memory for every stream.

    What the work reads besides its batch must lie where it lay, and what it decides in Python must stay as it was: a
    recorder serves one epoch, in which neither the learning rate nor the terms of the objective change.
    """

    def __init__(self, work: Work, title: str, stream: torch.cuda.Stream):
        self._work, self._title, self._stream = work, title, stream
        self._seen: set[Hashable] = set()
        self._recordings: dict[Hashable, Recording] = {}

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """The work's findings on a batch, in memory of their own."""
        shape = shape_of(batch)
        if shape not in self._seen:
            self._seen.add(shape)
            return self._alone(batch)
        if shape not in self._recordings:
            if len(self._recordings) == MOST_SHAPES:
                return self._alone(batch)
            self._recordings[shape] = Recording(self._work, batch, self._title, self._stream)
        return self._recordings[shape](batch)

    def _alone(self, batch: Batch) -> dict[str, Tensor]:
        """The work itself, on the stream that is recorded later: libraries choose their kernels for it."""
        waiting = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(waiting)
        with torch.cuda.stream(self._stream):
            found = self._work(batch)
        waiting.wait_stream(self._stream)
        return found


class Recording:
    """The work on one batch, to be replayed on others of its shape."""

    def __init__(self, work: Work, batch: Batch, title: str, stream: torch.cuda.Stream):
        self._batch = copy_of(batch)
        self._graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream(stream.device)
        try:
            # Only this thread is watched: another one may be reading the next batch.
            with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
                self._found = work(self._batch)
        except RuntimeError as error:
            torch.cuda.set_stream(current)  # which a recording that breaks off does not return to
            # The end of a broken recording fails too, and says nothing of the cause.
            cause = error.__context__ if isinstance(error.__context__, RuntimeError) else error
            if isinstance(cause, torch.OutOfMemoryError):
                raise cause from None
            reason = str(cause).strip().splitlines()[0]
            raise TrainingError(
                f"training {title}: a step of it cannot be recorded, since it waits for the device in the middle or "
                f"calls what cannot be recorded ({reason}). Train it with cuda_graphs=False, in a new process: this "
                "one's random numbers may still be in the middle of the recording"
            ) from error

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """The work's findings on a batch, in memory of their own."""
        for held, given in zip(tensors_of(self._batch), tensors_of(batch), strict=True):
            held.copy_(given, non_blocking=True)
        self._graph.replay()
        return {name: value.clone() for name, value in self._found.items()}  # the next replay writes over it


def tensors_of(batch: Batch) -> list[Tensor]:
    """All tensors of a batch, always in the same order."""
    own = [batch.present, batch.index, batch.weight, *([] if batch.y is None else [batch.y])]
    return [*batch.values.values(), *batch.lengths.values(), *own]


def copy_of(batch: Batch) -> Batch:
    """The same batch in memory of its own."""
    return batch.select(torch.arange(len(batch), device=batch.device))


def shape_of(batch: Batch) -> Hashable:
    """What two batches must share so that the same kernels serve both.

    >>> def made(n):
    ...     whole = torch.ones(n, 1, dtype=torch.bool)
    ...     return Batch({"a": torch.zeros(n, 3)}, whole, index=torch.arange(n), weight=torch.ones(n))
    >>> shape_of(made(4)) == shape_of(made(4)), shape_of(made(4)) == shape_of(made(5))
    (True, False)
    """
    tensors = tuple((tuple(one.shape), one.dtype) for one in tensors_of(batch))
    return batch.names, tuple(batch.lengths), batch.complete, batch.y is None, tensors
