"""What loggers write is read back by TensorBoard's and MLflow's own readers."""

import copy
import io
import logging
import sys

import pytest
import rich.progress

from consilience.core import progress_lines
from consilience.core.errors import InputError, TrainingError
from consilience.core.progress_lines import ConsoleHandler, Occasionally
from consilience.training import Log, MLflowCallback, Phase, TensorBoardCallback, loggers
from training.toys import At, Explosive, Straight, make, make_samples, prepare, trainer

SAMPLES, VALIDATION = make_samples(50), make_samples(40, seed=7)
PREPARATION = prepare(SAMPLES)


def run(callback, module=None, **settings):
    phases = [Phase("first", epochs=2), Phase("second", epochs=1)]
    module = module or make(Straight, PREPARATION)
    return trainer(PREPARATION, callbacks=[callback], **settings).run(module, SAMPLES, VALIDATION, phases)


def test_tensorboard_reads_every_epoch(tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    callback = copy.deepcopy(TensorBoardCallback(tmp_path / "runs"))  # as scikit-learn clones its parameters
    logs = [run(callback), run(TensorBoardCallback(tmp_path / "runs"), lr=0.01)]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["0-Straight", "1-Straight"]
    for name, log, lr in zip(("0-Straight", "1-Straight"), logs, (0.05, 0.01)):
        reader = events.EventAccumulator(str(tmp_path / "runs" / name))
        reader.Reload()
        assert set(reader.Tags()["scalars"]) == {"task", "validation_loss", "validation_accuracy", "seconds"}
        for tag in ("task", "validation_loss", "validation_accuracy"):
            written = [(event.step, event.value) for event in reader.Scalars(tag)]
            assert written == [(step, pytest.approx(row[tag])) for step, row in enumerate(log.rows, start=1)]
        text = reader.Tensors("settings/text_summary")[0].tensor_proto.string_val[0].decode()
        assert f"| lr | {lr} |" in text
        assert "| method | Straight |" in text


def test_names_of_methods_stay_in_the_folder(tmp_path):
    from consilience.training.loggers import _new_folder

    for name in ("../../up", "/abs", "..", "x" * 500, "a\nb", "pro-concat"):
        assert _new_folder(tmp_path / "runs", name).parent == tmp_path / "runs"
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert (tmp_path / "runs" / "5-pro-concat").is_dir()


@pytest.mark.filterwarnings("ignore")
def test_mlflow_reads_every_epoch(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 wants a database or a server
    address = (tmp_path / "store").as_uri()
    callback = MLflowCallback("fusion", tracking_uri=address)
    log = run(callback)
    interrupted = make(Straight, PREPARATION)
    interrupted.trap = At(KeyboardInterrupt(), epoch=1, phase="first")
    run(callback, interrupted)
    client = mlflow.MlflowClient(address)
    experiment = client.get_experiment_by_name("fusion")
    found = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time"])
    assert [run.info.status for run in found] == ["FINISHED", "KILLED"]
    assert found[0].data.params["lr"] == "0.05"
    assert found[0].data.params["method"] == "Straight"
    history = client.get_metric_history(found[0].info.run_id, "validation_loss")
    assert sorted((metric.step, metric.value) for metric in history) == [
        (step, pytest.approx(row["validation_loss"])) for step, row in enumerate(log.rows, start=1)
    ]


@pytest.mark.parametrize(
    ("callback", "module", "extra"),
    [
        (TensorBoardCallback("runs"), "torch.utils.tensorboard", "tensorboard"),
        (MLflowCallback(), "mlflow", "mlflow"),
    ],
)
def test_a_missing_package_is_named(callback, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"needs {extra}, .*: pip install 'consilience\[{extra}\]'"):
        run(callback)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def show(verbose):
    samples = make_samples()
    preparation = prepare(samples)
    trainer(preparation, epochs=2, verbose=verbose).run(make(Straight, preparation), samples, samples)


def test_nothing_unless_asked(caplog, capsys):
    with caplog.at_level(logging.DEBUG, "consilience"):
        show(verbose=0)
    assert not caplog.records
    assert capsys.readouterr() == ("", "")


def test_log_lines_where_there_is_no_terminal(caplog, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.progress", None)  # rich would fail to import
    with caplog.at_level(logging.INFO, "consilience"):
        show(verbose=1)
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
        show(verbose=1)
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


def printed_by_the_command_line(monkeypatch, verbose, epochs=25):
    """What is printed where logging goes to the console alone, as the command line has it."""
    logger, screen = logging.getLogger("consilience"), io.StringIO()
    monkeypatch.setattr(logging.getLogger(), "handlers", [ConsoleHandler(screen)])
    monkeypatch.setattr(loggers, "_LINES", Occasionally(10.0))
    before = logger.level
    logger.setLevel(logging.INFO)
    try:
        samples = make_samples()
        preparation = prepare(samples)
        trainer(preparation, epochs=epochs, verbose=verbose, patience=None).run(
            make(Straight, preparation), samples, samples
        )
        loggers.announce("one part", verbose)
    finally:
        logger.setLevel(before)
    return screen.getvalue().splitlines()


def test_a_console_has_one_line_in_ten_seconds(monkeypatch):
    moments = iter(range(1000))  # a second from one line to the next
    monkeypatch.setattr(progress_lines.time, "monotonic", lambda: float(next(moments)))
    lines = printed_by_the_command_line(monkeypatch, verbose=1)
    assert [line.split("  ")[0] for line in lines] == [f"Straight: epoch {done}/25" for done in (1, 11, 21)]


def test_verbose_2_prints_every_line(monkeypatch):
    lines = printed_by_the_command_line(monkeypatch, verbose=2)
    assert len(lines) == 26
    assert lines[-1] == "one part"


@pytest.mark.parametrize(
    ("logs", "said"),
    [
        ([], "concat: trained in 2.0 s"),
        (
            [Log(rows=[{"validation_loss": 0.5}, {"validation_loss": 0.25}])],
            "concat: trained in 2.0 s, 2 epochs, lowest validation loss 0.25",
        ),
        ([Log(rows=[{"task": 1.0}]), Log(rows=[{}, {}])], "concat: trained in 2.0 s, 3 epochs in 2 runs"),
    ],
)
def test_the_last_line_says_what_a_training_was(logs, said, caplog):
    with caplog.at_level(logging.INFO, "consilience"):
        loggers.say_trained("concat", logs, 1.96)
    assert caplog.messages == [said]
