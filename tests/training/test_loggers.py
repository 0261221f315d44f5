"""What loggers write is read back by TensorBoard's and MLflow's own readers."""

import copy
import sys

import pytest

from consilience.core.errors import InputError
from consilience.training import MLflowCallback, Phase, TensorBoardCallback
from training.toys import At, Straight, make, make_samples, prepare, trainer

SAMPLES, VALIDATION = make_samples(50), make_samples(40, seed=7)
PREPARATION = prepare(SAMPLES)


def run(callback, module=None, **settings):
    phases = [Phase("first", epochs=2), Phase("second", epochs=1)]
    module = module or make(Straight, PREPARATION)
    return trainer(PREPARATION, callbacks=[callback], **settings).run(module, SAMPLES, VALIDATION, phases)


def test_tensorboard_reads_every_epoch(tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    callback = copy.deepcopy(TensorBoardCallback(tmp_path / "runs"))  # as scikit-learn clones its parameters
    logs = [run(callback), run(callback, lr=0.01)]
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
