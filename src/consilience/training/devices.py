"""Devices, processes and precision of training, and memory that is kept or runs out."""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from consilience.core.errors import InputError, TrainingError
from consilience.core.files import write_atomically
from consilience.core.seeding import seeded
from consilience.core.shared_objects import SharedObjects
from consilience.encoders.conv import Conv
from consilience.training.one_device import OneDevice
from consilience.training.training_settings import ResolvedSettings, TrainingSettings

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_Module = TypeVar("_Module", bound=nn.Module)
# Our names of precisions → Fabric's.
_FABRIC_PRECISIONS = {
    "32": "32-true",
    "64": "64-true",
    "16": "16-mixed",
    "bf16": "bf16-mixed",
    "16-mixed": "16-mixed",
    "bf16-mixed": "bf16-mixed",
    "bf16-true": "bf16-true",
}
# Precisions in which the weights themselves change type, and so must the inputs.
INPUT_TYPES = {"64": torch.float64, "bf16-true": torch.bfloat16}
# Of GNU's malloc.h: how much may be free at the end of the heap, and from which size on a piece is mapped alone, and
# returned to the system as soon as it is freed. 32 MiB is the largest value of the second that every version accepts
# (and where its own adaptive rule ends); that rule then leaves twice as much free.
_TRIM_THRESHOLD, _MOST_FREE, _USUALLY_FREE = -1, 2**31 - 1, 2**26
_MMAP_THRESHOLD, _LARGE = -3, 2**25
# Seconds after which free memory is returned to the system; in a large process the search for it takes 0.1 s.
TRIM_AFTER = 1.0

_memory_lock = Lock()
_memory_blocks = 0


def resolve_device(device: str) -> torch.device:
    """Return the device of a name; "auto" is the GPU if there is one.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except (RuntimeError, TypeError):
        raise InputError(f"unknown device {device!r}: use 'auto', 'cpu', 'cuda', 'cuda:1', 'mps'") from None
    if resolved.type == "cuda" and (resolved.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device {device!r} is not available: torch finds {torch.cuda.device_count()} CUDA devices")
    return resolved


def moved_to(module: _Module, device: torch.device) -> _Module:
    """Return a module on a device. One that is there already is not touched, since another thread may be using it.

    `Module.to` sets the weights of recurrent layers anew even where nothing moves.
    """
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.device.type != device.type or (device.index is not None and tensor.device.index != device.index):
            return module.to(device)
    return module


def device_name(device: torch.device) -> str:
    """Return the name of a device for results: the name of the GPU, or the kind of device.

    >>> device_name(torch.device("cpu"))
    'cpu'
    """
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def needs_fabric(settings: TrainingSettings) -> bool:
    """Return whether training with these settings needs Lightning Fabric; one process on the CPU in float32 does not.

    >>> needs_fabric(TrainingSettings(device="cpu")), needs_fabric(TrainingSettings(device="cpu", precision="bf16"))
    (False, True)
    """
    several = settings.devices * settings.nodes > 1 or settings.strategy != "auto"
    return several or settings.precision != "32" or resolve_device(settings.device).type != "cpu"


def build_fabric(settings: TrainingSettings) -> Fabric | OneDevice:
    """Return what trains with these settings; on one machine Fabric starts the processes of several devices itself."""
    if not needs_fabric(settings):
        return OneDevice()
    from lightning_fabric import Fabric
    from lightning_fabric.strategies import DDPStrategy

    # Its messages ("Using bfloat16 …") only repeat the settings.
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    chosen, devices, nodes = resolve_device(settings.device), settings.devices, settings.nodes
    if chosen.index is not None and devices > 1:
        raise InputError(
            f"training: device {settings.device!r} is one device; use {chosen.type!r} with devices={devices}"
        )
    how: Any = settings.strategy
    if how == "auto" and devices * nodes > 1:
        # Spawned processes work in a test and in a script; torchrun and SLURM start their own.
        start: Any = "spawn" if nodes == 1 and "LOCAL_RANK" not in os.environ else "popen"
        # A modality may be missing from all samples of one process, whose parameters then have no gradient.
        how = DDPStrategy(start_method=start, find_unused_parameters=True)
    where: Any = devices if chosen.index is None else [chosen.index]
    kind: Any = _FABRIC_PRECISIONS[settings.precision]
    return Fabric(accelerator=chosen.type, devices=where, num_nodes=nodes, strategy=how, precision=kind)


def launch(fabric: Fabric | OneDevice, work: Callable[..., Any], *arguments: Any) -> Any:
    """Call work(fabric, *arguments) in every process and return the result of the first one.

    Spawned processes map the arrays of the arguments, which are in memory once. A spawned process returns its result in
    a file, so it may only hold tensors and plain values: a queue would block for ever on results larger than a pipe
    while the parent waits for its children.
    """
    port = os.environ.get("MASTER_PORT")
    with tempfile.TemporaryDirectory(prefix="consilience-") as folder:
        handover, shared = Path(folder) / "result.pt", SharedObjects(arguments)
        try:
            result = fabric.launch(_call, work, os.getpid(), handover, shared)  # type: ignore[arg-type]
        except (torch.multiprocessing.ProcessRaisedException, torch.multiprocessing.ProcessExitedException) as error:
            last = str(error).strip().splitlines()[-1]
            raise TrainingError(f"training on {fabric.world_size} processes failed: {last}") from error
        finally:
            shared.close()
            if port is None:  # chosen for this launch only
                os.environ.pop("MASTER_PORT", None)
        return torch.load(handover, map_location="cpu", weights_only=True) if handover.exists() else result


def _call(
    fabric: Fabric | OneDevice, work: Callable[..., Any], parent: int, handover: Path, shared: SharedObjects
) -> Any:
    if os.getpid() == parent:
        return work(fabric, *shared.content)
    leave = _Leave()
    atexit.register(leave)  # the last one registered is the first to run
    result = work(fabric, *shared.content)
    if fabric.is_global_zero:
        write_atomically(handover, lambda file: torch.save(result, file))
    leave.status = 0
    return None


class _Leave:
    """Ends a spawned process without shutting the interpreter down.

    During that shutdown a thread of the process group may still be freeing a tensor. Python ends such a thread in the
    middle of C++ code, which aborts the process (pytorch/pytorch issue 190489): a training that had succeeded was
    sometimes reported as aborted.
    """

    status = 1

    def __call__(self) -> None:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        os._exit(self.status)


@contextmanager
def training_context(settings: ResolvedSettings, device: torch.device, seed: int) -> Iterator[None]:
    """Within a block, have the default dtype, random state and memory that training with these settings needs."""
    with (
        seeded(seed, device),  # first: the default dtype too is that of all threads
        default_type(torch.float64 if settings.precision == "64" else None),
        memory_advice(settings.batch_size, settings.precision),
        kept_memory(settings.keep_memory and device.type == "cpu"),
    ):
        yield


@contextmanager
def default_type(dtype: torch.dtype | None) -> Iterator[None]:
    """Set torch's default dtype within a block: Fabric converts outputs to it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def memory_advice(batch_size: int, precision: str) -> Iterator[None]:
    """Turn errors of exhausted memory into one that says which settings need less."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        out_of_memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
        if not out_of_memory:
            raise
        lighter = "" if precision.startswith("bf16") else ", or precision='bf16' (about half the memory)"
        smaller = (
            f"batch_size={batch_size // 2} with accumulate=2 (the same steps)" if batch_size > 1 else "a smaller set"
        )
        raise TrainingError(
            f"out of memory with batch_size={batch_size} and precision={precision!r}: try {smaller}{lighter}, or "
            "resident=False, which does not keep the data on the device"
        ) from error


def lay_out(module: nn.Module, how: torch.memory_format) -> None:
    """Change the memory format of this library's own convolutions, and so of their outputs.

    The user's own modules stay as they are: they may use `view`, which depends on the memory format.
    """
    for part in module.modules():
        if isinstance(part, Conv):
            part.to(memory_format=how)  # type: ignore[call-overload]


def epoch_seed(seed: int, phase: int, epoch: int) -> int:
    """Return the seed of an epoch. Since each epoch has its own, checkpoints need no random state."""
    return (seed * 1_000_003 + phase * 10_007 + epoch) % 2**63


@contextmanager
def kept_memory(enabled: bool = True) -> Iterator[bool]:
    """Keep freed memory in the process within a block; return it to the system after a block that took long.

    A training step frees memory that the next one allocates again. If the C library returns it to the system in
    between, the system clears every page again, which takes a fifth of the time of recurrent encoders on a CPU. GNU's
    library can be set to keep the memory that the main thread frees; with other libraries, on a GPU and in other
    threads nothing changes. Yields whether the library keeps memory.
    """
    library = _gnu_library() if enabled else None
    if library is None:
        yield False
        return
    began = time.monotonic()
    _keep(library, 1)
    try:
        yield True
    finally:
        if not _keep(library, -1) and time.monotonic() - began > TRIM_AFTER:
            library.malloc_trim(0)


def _keep(library: ctypes.CDLL, more: int) -> int:
    """The number of open blocks after this change. With none, the library's usual setting is restored."""
    global _memory_blocks
    with _memory_lock:
        _memory_blocks += more
        library.mallopt(_TRIM_THRESHOLD, _MOST_FREE if _memory_blocks else _USUALLY_FREE)
        return _memory_blocks


@cache
def _gnu_library() -> ctypes.CDLL | None:
    """GNU's C library, set to map only large pieces alone; None if there is another one, or it refuses."""
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):  # Windows has no library of the process itself
        return None
    if not all(hasattr(library, name) for name in ("gnu_get_libc_version", "mallopt", "malloc_trim")):
        return None
    return library if library.mallopt(_MMAP_THRESHOLD, _LARGE) else None
