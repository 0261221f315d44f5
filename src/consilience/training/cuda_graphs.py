"""Steps of training recorded once and replayed as CUDA graphs.

A small network costs a GPU little time and Python much: every step launches hundreds of kernels one by one. Recorded,
they are launched together, and a step takes as long as the GPU needs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.errors import TrainingError

# A whole step, with the update of the weights; it returns tensors by name, without gradients.
Work = Callable[[Batch], dict[str, Tensor]]
# How many shapes of batches are recorded in an epoch, each with memory of its own; others are not recorded.
MOST_SHAPES = 4


class Recorder:
    """Runs steps on batches: of each shape the first directly, the second while recording, all others replayed.

    What a step reads besides its batch must stay where it is in memory, and what it decides in Python must not change:
    a recorder serves one epoch, in which neither the learning rate nor the terms of the objective change.

    Args:
        work: The step.
        title: What is trained, for error messages.
        stream: Where steps run; the same for all epochs of a training, since libraries keep memory for every stream.
    """

    def __init__(self, work: Work, title: str, stream: torch.cuda.Stream):
        self._work, self._title, self._stream = work, title, stream
        self._seen: set[Hashable] = set()
        self._recordings: dict[Hashable, Recording] = {}

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """Run the step on a batch and return its tensors."""
        shape = shape_of(batch)
        if shape not in self._seen:
            self._seen.add(shape)
            return self._direct(batch)
        if shape not in self._recordings:
            if len(self._recordings) == MOST_SHAPES:
                return self._direct(batch)
            self._recordings[shape] = Recording(self._work, batch, self._title, self._stream)
        return self._recordings[shape](batch)

    def _direct(self, batch: Batch) -> dict[str, Tensor]:
        """Run the step without recording, on the stream that is recorded later: libraries choose kernels for it."""
        waiting = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(waiting)
        with torch.cuda.stream(self._stream):
            tensors = self._work(batch)
        waiting.wait_stream(self._stream)
        return tensors


class Recording:
    """A recorded step, to be replayed on batches of one shape."""

    def __init__(self, work: Work, batch: Batch, title: str, stream: torch.cuda.Stream):
        self._batch = copy_of(batch)
        self._graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream(stream.device)
        try:
            # Only this thread is watched: another one may be reading the next batch.
            with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
                self._tensors = work(self._batch)
        except RuntimeError as error:
            torch.cuda.set_stream(current)  # a recording that fails does not return to it
            # The end of a failed recording fails too, with a message that does not name the cause.
            cause = error.__context__ if isinstance(error.__context__, RuntimeError) else error
            if isinstance(cause, torch.OutOfMemoryError):
                raise cause from None
            reason = str(cause).strip().splitlines()[0]
            raise TrainingError(
                f"training {title}: a step of it cannot be recorded, since it waits for the device or calls something "
                f"that cannot be recorded ({reason}). Train it with cuda_graphs=False in a new process: the random "
                "state of this one may still belong to the recording"
            ) from error

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """Replay the step on a batch and return copies of its tensors."""
        for held, given in zip(tensors_of(self._batch), tensors_of(batch), strict=True):
            held.copy_(given, non_blocking=True)
        self._graph.replay()
        return {name: value.clone() for name, value in self._tensors.items()}  # the next replay overwrites them


def tensors_of(batch: Batch) -> list[Tensor]:
    """Return all tensors of a batch, always in the same order."""
    own = [batch.present, batch.index, batch.weight, *([] if batch.y is None else [batch.y])]
    return [*batch.values.values(), *batch.lengths.values(), *own]


def copy_of(batch: Batch) -> Batch:
    """Return a copy of a batch."""
    return batch.select(torch.arange(len(batch), device=batch.device))


def shape_of(batch: Batch) -> Hashable:
    """Return what two batches must have in common to run the same kernels.

    >>> def batch_of(n):
    ...     whole = torch.ones(n, 1, dtype=torch.bool)
    ...     return Batch({"a": torch.zeros(n, 3)}, whole, index=torch.arange(n), weight=torch.ones(n))
    >>> shape_of(batch_of(4)) == shape_of(batch_of(4)), shape_of(batch_of(4)) == shape_of(batch_of(5))
    (True, False)
    """
    tensors = tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors_of(batch))
    return batch.names, tuple(batch.lengths), batch.complete, batch.y is None, tensors
