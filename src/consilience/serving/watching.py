"""Monitors of served models: what clients send is watched in a thread of its own, which never delays an answer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any

from consilience.core.samples import Samples
from consilience.estimators import Monitor
from consilience.serving.prometheus import Metric
from consilience.serving.served_model import ServedModel

# Batches that wait to be watched; further ones are counted and left out.
_MOST_WAITING = 64


class Watcher:
    """Gives the rows that a model predicts to a `Monitor`, in the order in which they were predicted.

    Args:
        model: The model.
        reference: A file of rows of the time when the model worked, on which it was not trained.
        false_alarms: As for `Monitor`.
        on_alarm: Called with each alarm.
    """

    def __init__(
        self, model: ServedModel, reference: str, false_alarms: float, on_alarm: Callable[[str, Any], None]
    ) -> None:
        self.model, self.on_alarm = model, on_alarm
        self.monitor = Monitor(model.model, model.model.read(reference), false_alarms=false_alarms)
        self.state = self.monitor.state
        self.shares = self.monitor.class_shares()
        self.dropped = 0
        self.alarms = 0
        self.failed = 0
        self._waiting: queue.Queue[list[Samples] | None] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._work, name=f"monitor {model.name}", daemon=True)
        self._thread.start()

    def watch(self, samples: list[Samples]) -> None:
        """Queue rows, or count them as left out if too many wait."""
        try:
            self._waiting.put_nowait(samples)
        except queue.Full:
            self.dropped += sum(map(len, samples))

    @property
    def watched(self) -> bool:
        """Whether nothing waits and nothing is being watched."""
        return not self._waiting.unfinished_tasks

    def close(self, wait: float | None = None) -> None:
        """End the thread after what waits; wait: at most so many seconds for it, None: not at all."""
        try:
            self._waiting.put(None, timeout=wait or 0.001)
        except queue.Full:
            return
        if wait is not None:
            self._thread.join(wait)

    def _work(self) -> None:
        while (samples := self._waiting.get()) is not None:
            for part in samples:
                try:
                    self.state = self.monitor.update(part)
                except Exception as error:  # a monitor must not end the watch over the rows after
                    self.failed += 1
                    self.on_alarm("monitor-failed", error)
                    continue
                for alarm in self.state.alarms:
                    self.alarms += 1
                    self.on_alarm("alarm", alarm)
            self.shares = self.monitor.class_shares()
            self._waiting.task_done()


def watched_metrics(watchers: Iterable[Watcher]) -> list[Metric]:
    """Return what monitors know as metrics."""
    own = ("model", "quantity", "modality")
    recent = Metric("consilience_monitor_recent", "Mean of a quantity over the last rows.", own, "gauge")
    before = Metric("consilience_monitor_reference", "Mean of a quantity over the reference.", own, "gauge")
    evidence = Metric("consilience_monitor_evidence", "Decimal logarithm of the evidence for a change.", own, "gauge")
    raised = Metric("consilience_monitor_alarm", "1 where a quantity has raised an alarm.", own, "gauge")
    threshold = Metric("consilience_monitor_threshold", "The evidence that raises an alarm.", own[:1], "gauge")
    alarms = Metric("consilience_monitor_alarms_total", "Alarms raised.", own[:1])
    rows = Metric("consilience_monitor_rows_total", "Rows watched.", own[:1])
    dropped = Metric("consilience_monitor_dropped_rows_total", "Rows not watched, since too many waited.", own[:1])
    shares = Metric(
        "consilience_monitor_class_share", "Share of a class among the last rows.", ("model", "class"), "gauge"
    )
    for watcher in watchers:
        name, state = watcher.model.name, watcher.state
        for each in state.quantities:
            kind = each.quantity.removesuffix(f" of {each.modality}") if each.modality else each.quantity
            for metric, value in ((recent, each.recent), (before, each.reference), (evidence, each.evidence)):
                metric.set(value, name, kind, each.modality)
            raised.set(float(each.alarm), name, kind, each.modality)
        threshold.set(watcher.monitor.threshold, name)
        alarms.add(name, amount=watcher.alarms)
        rows.add(name, amount=state.rows)
        dropped.add(name, amount=watcher.dropped)
        for label, (_, now) in watcher.shares.items():
            shares.set(now, name, label)
    return [recent, before, evidence, raised, threshold, alarms, rows, dropped, shares]
