"""Objects that several processes of one machine read: their arrays are in memory once, and every process maps them."""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from pathlib import Path
from typing import IO, Any

import cloudpickle
import numpy as np


class SharedObjects:
    """Objects in a file in memory that all processes map.

    Processes that inherit `file` read them with `read`, given its descriptor and `parts`. A process that receives this
    object itself, as the argument of a spawned function, reads them with `content`.

    Args:
        content: Anything that can be pickled; functions and classes of a script are pickled by value.
    """

    def __init__(self, content: Any):
        self._content = content
        self._file: IO[bytes] | None = None
        self._parts: list[tuple[int, int]] = []

    @property
    def file(self) -> IO[bytes]:
        """The file, which is written when it is first asked for."""
        if self._file is None:
            self._file = self._write()
        return self._file

    @property
    def parts(self) -> list[tuple[int, int]]:
        """Where each part of the file begins and ends."""
        assert self.file is not None
        return self._parts

    @property
    def content(self) -> Any:
        """The objects."""
        return self._content

    def _write(self) -> IO[bytes]:
        buffers: list[pickle.PickleBuffer] = []
        pickled = io.BytesIO()
        _Pickler(pickled, protocol=5, buffer_callback=buffers.append).dump(self._content)
        in_memory = hasattr(os, "memfd_create")
        file: IO[bytes] = os.fdopen(os.memfd_create("objects"), "w+b") if in_memory else tempfile.NamedTemporaryFile()  # noqa: SIM115
        for part in (pickled.getbuffer(), *(buffer.raw() for buffer in buffers)):
            file.seek(-file.tell() % 64, os.SEEK_CUR)  # aligned, as arrays should be
            start = file.tell()
            file.write(part)
            self._parts.append((start, file.tell()))
        file.flush()
        return file

    @staticmethod
    def read(descriptor: int, parts: list[tuple[int, int]]) -> Any:
        """Return the objects; arrays are writable, and what is written stays in this process."""
        view = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY))
        pickled, *buffers = (view[start:end] for start, end in parts)
        return pickle.loads(pickled, buffers=buffers)

    def close(self) -> None:
        """Give the file back to the system; processes that map it keep what they have."""
        if self._file is not None:
            self._file.close()

    def __getstate__(self) -> dict[str, Any]:
        file = self.file
        # Linux lets the processes of a user open each other's files by number, also those without a name.
        path = f"/proc/{os.getpid()}/fd/{file.fileno()}" if isinstance(file.name, int) else file.name
        return {"path": path, "parts": self._parts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        with Path(state["path"]).open("rb") as file:
            self._content = self.read(file.fileno(), state["parts"])
        self._file, self._parts = None, []


class _Pickler(cloudpickle.Pickler):
    """Pickles functions and classes of a script by value, and a memory-mapped array by the name of its file."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, np.memmap) and isinstance(value.base, mmap.mmap) and value.mode == "r":
            order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
            return np.memmap, (str(value.filename), value.dtype, "r", value.offset, value.shape, order)
        return super().reducer_override(value)
