import io
import logging
import sys

import pytest
import rich.progress

from consilience.core.errors import TrainingError
from training.toys import Explosive, Straight, make, make_samples, prepare, trainer


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(verbose):
    samples = make_samples()
    preparation = prepare(samples)
    trainer(preparation, epochs=2, verbose=verbose).run(make(Straight, preparation), samples, samples)


def test_nothing_unless_asked(caplog, capsys):
    with caplog.at_level(logging.DEBUG, "consilience"):
        run(verbose=0)
    assert not caplog.records
    assert capsys.readouterr() == ("", "")


def test_log_lines_where_there_is_no_terminal(caplog, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.progress", None)  # rich would fail to import
    with caplog.at_level(logging.INFO, "consilience"):
        run(verbose=1)
    lines = [record.getMessage() for record in caplog.records if record.name == "consilience"]
    assert len(lines) == 2
    assert lines[0].startswith("Straight: epoch 1/2  task ")
    assert "validation_loss" in lines[1]
    assert "validation_accuracy" in lines[1]
    assert all(record.levelno == logging.INFO for record in caplog.records)


def test_a_bar_on_a_terminal(caplog, monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with caplog.at_level(logging.INFO, "consilience"):
        run(verbose=1)
    assert "Straight" in screen.getvalue()
    assert "2/2" in screen.getvalue()
    assert "validation: loss" in screen.getvalue()
    assert "…" not in screen.getvalue()  # all of it fits on a line
    assert not caplog.records


def test_the_bar_goes_away_when_training_fails(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    bars = []
    monkeypatch.setattr(rich.progress, "Progress", lambda *a, bar=rich.progress.Progress, **k: keep(bars, bar(*a, **k)))
    samples = make_samples()
    preparation = prepare(samples)
    with pytest.raises(TrainingError):
        trainer(preparation, verbose=1).run(make(Explosive, preparation), samples)
    assert len(bars) == 1
    assert not bars[0].live.is_started


def keep(bars, bar):
    bars.append(bar)
    return bar
