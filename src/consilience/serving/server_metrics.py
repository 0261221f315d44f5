"""What the server counts: requests, errors, latencies, batches, rows, and what monitors watch."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from consilience.serving.prometheus import Histogram, Metric, exposition

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


class ServerMetrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.requests = Metric("consilience_requests_total", "Requests answered.", ["route", "status"])
        self.errors = Metric("consilience_errors_total", "Requests answered with an error.", ["route", "status"])
        self.latency = Histogram(
            "consilience_request_seconds", "Seconds from the request line to the last byte.", _SECONDS, ["route"]
        )
        self.in_flight = Metric("consilience_requests_in_flight", "Requests being answered.", kind="gauge")
        self.rows = Metric("consilience_rows_total", "Rows predicted.", ["model"])
        self.batch_rows = Histogram("consilience_batch_rows", "Rows predicted together.", _SIZES, ["model"])
        self.batch_requests = Histogram("consilience_batch_requests", "Requests predicted together.", _SIZES, ["model"])
        self.batch_seconds = Histogram(
            "consilience_batch_seconds", "Seconds to read and predict a batch.", _SECONDS, ["model"]
        )
        self.missing = Metric(
            "consilience_missing_total", "Rows in which a modality was missing.", ["model", "modality"]
        )
        self.waiting = Metric("consilience_waiting_requests", "Requests that wait.", ["model"], "gauge")
        self.model = Metric("consilience_model_info", "The models that are served.", ["model", "version"], "gauge")
        self.reloads = Metric("consilience_reloads_total", "Attempts to load a model anew.", ["model", "result"])
        self.watched: Callable[[], Iterable[Metric]] = tuple

    def text(self) -> str:
        """Return everything in the format of Prometheus."""
        own = [metric for metric in vars(self).values() if isinstance(metric, Metric | Histogram)]
        return exposition([*own, *self.watched()])
