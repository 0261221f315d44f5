"""Every limit of the server: declared once, with its range, default and help; the command line derives its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from consilience.core.settings import Interval, check_fields


@dataclass(frozen=True, kw_only=True)
class ServingSettings:
    """Limits of a server. Values are checked when it is built."""

    coverage: Annotated[
        float,
        Interval(0, 1, above=True, below=True),
        "probability with which sets and intervals hold the truth, for models that are calibrated",
    ] = 0.9
    max_rows: Annotated[int, Interval(1), "rows of one request"] = 4096
    max_body: Annotated[float, Interval(0, above=True), "MiB of one request"] = 16.0
    max_memory: Annotated[float, Interval(0, above=True), "MiB of all requests that are read or wait"] = 128.0
    max_waiting: Annotated[int, Interval(1), "requests to one model that wait for their answer"] = 256
    batch_rows: Annotated[int, Interval(1), "rows that are predicted together"] = 256
    batch_wait: Annotated[
        float, Interval(0, 1000), "milliseconds to wait for other requests to a model that are just being received"
    ] = 1.0
    timeout: Annotated[float, Interval(0, above=True), "seconds after which a request is answered with an error"] = 30.0

    def __post_init__(self) -> None:
        check_fields(self, "serve")

    @property
    def body_bytes(self) -> int:
        """The largest request, in bytes."""
        return int(self.max_body * 2**20)

    @property
    def memory_bytes(self) -> int:
        """The bytes of all requests together; one request may always be as large as allowed."""
        return max(int(self.max_memory * 2**20), self.body_bytes)
