"""Devices, processes and precision of training, and advice when memory runs out."""

from __future__ import annotations

import atexit
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from consilience.core.errors import InputError, TrainingError
from consilience.encoders.conv import Conv

if TYPE_CHECKING:
    from lightning_fabric import Fabric

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


def resolve_device(device: str) -> torch.device:
    """Return the device of a name; "auto" is the GPU if there is one.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError:
        raise InputError(f"unknown device {device!r}: use 'auto', 'cpu', 'cuda', 'cuda:1', 'mps'") from None
    if resolved.type == "cuda" and (resolved.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device {device!r} is not available: torch finds {torch.cuda.device_count()} CUDA devices")
    return resolved


def device_name(device: torch.device) -> str:
    """Return the name of a device for results: the name of the GPU, or the kind of device.

    >>> device_name(torch.device("cpu"))
    'cpu'
    """
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def build_fabric(device: str, devices: int, nodes: int, strategy: str, precision: str) -> Fabric:
    """Return Lightning Fabric for these settings; on one machine it starts the processes of several devices itself."""
    from lightning_fabric import Fabric
    from lightning_fabric.strategies import DDPStrategy

    # Its messages ("Using bfloat16 …") only repeat the settings.
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    chosen = resolve_device(device)
    if chosen.index is not None and devices > 1:
        raise InputError(f"training: device {device!r} is one device; use {chosen.type!r} with devices={devices}")
    how: Any = strategy
    if strategy == "auto" and devices * nodes > 1:
        # Spawned processes work in a test and in a script; torchrun and SLURM start their own.
        start: Any = "spawn" if nodes == 1 and "LOCAL_RANK" not in os.environ else "popen"
        # A modality may be missing from all samples of one process, whose parameters then have no gradient.
        how = DDPStrategy(start_method=start, find_unused_parameters=True)
    where: Any = devices if chosen.index is None else [chosen.index]
    kind: Any = _FABRIC_PRECISIONS[precision]
    return Fabric(accelerator=chosen.type, devices=where, num_nodes=nodes, strategy=how, precision=kind)


def launch(fabric: Fabric, work: Callable[..., Any], *arguments: Any) -> Any:
    """Call work(fabric, *arguments) in every process and return the result of the first one.

    A spawned process returns its result in a file, so it may only hold tensors and plain values: a queue would block
    for ever on results larger than a pipe while the parent waits for its children.
    """
    port = os.environ.get("MASTER_PORT")
    with tempfile.TemporaryDirectory(prefix="consilience-") as folder:
        handover = Path(folder) / "result.pt"
        try:
            result = fabric.launch(_call, work, os.getpid(), handover, *arguments)  # type: ignore[arg-type]
        except (torch.multiprocessing.ProcessRaisedException, torch.multiprocessing.ProcessExitedException) as error:
            last = str(error).strip().splitlines()[-1]
            raise TrainingError(f"training on {fabric.world_size} processes failed: {last}") from error
        finally:
            if port is None:  # chosen for this launch only
                os.environ.pop("MASTER_PORT", None)
        return torch.load(handover, map_location="cpu", weights_only=True) if handover.exists() else result


def _call(fabric: Fabric, work: Callable[..., Any], parent: int, handover: Path, *arguments: Any) -> Any:
    if os.getpid() == parent:
        return work(fabric, *arguments)
    leave = _Leave()
    atexit.register(leave)  # the last one registered is the first to run
    result = work(fabric, *arguments)
    if fabric.is_global_zero:
        torch.save(result, handover)
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
