"""Models are named, replaced whole or kept, and watched."""

import json
import logging
import shutil

import pytest

import consilience as cs
from consilience.core.errors import InputError, SavedModelError
from consilience.serving import ModelStore
from consilience.serving.model_store import named_folders
from serving.conftest import COLUMNS, PATIENCE, QUICK, ROW, Client, machines, wait_for
from serving.test_gate import samples_of


def test_names(tmp_path):
    assert list(named_folders([str(tmp_path / "best"), "b=best"])) == ["best", "b"]
    with pytest.raises(InputError, match="two models are named 'best'"):
        named_folders(["one/best", "two/best"])
    with pytest.raises(InputError, match="cannot be the name of a model"):
        named_folders(["a b"])


def test_what_is_no_model(tmp_path):
    with pytest.raises(SavedModelError, match="is no saved model"):
        ModelStore({"m": tmp_path})
    rng = __import__("numpy").random.default_rng(0)
    opinions = {"a": rng.normal(size=(40, 2)), "b": rng.normal(size=(40, 2))}
    cs.BayesFusion().fit(opinions, [0, 1] * 20).save(tmp_path / "bayes")
    with pytest.raises(SavedModelError, match="is a BayesFusion; a FusionClassifier or FusionRegressor is served"):
        ModelStore({"m": tmp_path / "bayes"})


@pytest.fixture
def copied(models, tmp_path):
    shutil.copytree(models / "machines", tmp_path / "machines")
    store = ModelStore({"machines": tmp_path / "machines"})
    yield Client(store), tmp_path / "machines"
    store.close()


def other_model(models, folder):
    data = cs.load_data(models / "machines.csv", target="state", modalities=COLUMNS, kinds={"note": "text"})
    cs.FusionClassifier("late", random_state=5, **QUICK).fit(data.train).save(folder)


def test_a_replaced_model_is_served_after_a_reload_and_not_before(copied, models):
    client, folder = copied
    before = client.rows([ROW]).json()
    other_model(models, folder)
    assert client.rows([ROW]).json() == before
    assert client.store.reload() == {"machines": "loaded"}
    after = client.rows([ROW]).json()
    assert after["version"] != before["version"]
    assert after["predictions"] != before["predictions"]
    assert client.store.reload(only_changed=True) == {"machines": "unchanged"}
    old = client.get(f"/v2/models/machines/versions/{before['version']}")
    assert old.status_code == 404


def test_a_damaged_or_missing_folder_keeps_the_old_model(copied, caplog):
    client, folder = copied
    before = client.rows([ROW]).json()
    weights = next(folder.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-10])
    description = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(description))  # another digest, as of another model
    with caplog.at_level(logging.INFO, "consilience.serving"):
        assert client.store.reload()["machines"] != "loaded"
    entry = json.loads(caplog.records[-1].message)
    assert (entry["event"], entry["level"], entry["result"]) == ("reload", "error", "kept")
    assert client.rows([ROW]).json() == before
    shutil.rmtree(folder)
    assert "no saved model" in client.store.reload()["machines"]
    assert client.rows([ROW]).json() == before
    found = samples_of(client.get("/metrics").text)
    assert found["consilience_reloads_total", 'model="machines",result="kept"'] == 2


def test_a_broken_folder_is_logged_once_until_it_changes(copied, models, caplog):
    client, folder = copied

    def logged(times, **how):
        caplog.clear()
        with caplog.at_level(logging.INFO, "consilience.serving"):
            for _ in range(times):
                client.store.reload(**how)
        return [entry["result"] for record in caplog.records if "result" in (entry := json.loads(record.message))]

    (folder / "model.json").write_text("{")
    assert logged(3, only_changed=True) == ["kept"]
    assert logged(2, only_changed=True) == []
    assert logged(2) == ["kept", "kept"]  # asked for by a signal
    (folder / "model.json").write_text("{ ")
    assert logged(3, only_changed=True) == ["kept"]
    shutil.rmtree(folder)
    assert logged(3, only_changed=True) == ["kept"]
    other_model(models, folder)
    assert logged(2, only_changed=True) == ["loaded"]
    (folder / "model.json").write_text("{ ")
    assert logged(2, only_changed=True) == ["kept"]


def test_a_request_that_began_with_a_model_is_answered_by_it(copied, models):
    client, folder = copied
    old = client.store.batcher("machines")
    assert old.arrive()
    other_model(models, folder)
    client.store.reload()
    assert client.rows([ROW]).json()["version"] != old.model.version
    assert old._thread.is_alive()
    old.leave()
    wait_for(lambda: not old._thread.is_alive())


def test_a_monitor_raises_its_alarm_and_shows_what_it_watches(serve, models, tmp_path, caplog):
    reference = tmp_path / "reference.csv"
    machines(150, seed=11).drop("hours", "state").write_csv(reference)
    client = serve(store={"references": {"machines": str(reference)}})
    watcher = client.store._watchers["machines"]
    rows = list(machines(80, seed=12).drop("hours", "state").iter_rows(named=True))
    client.rows(rows)
    wait_for(lambda: watcher.watched)
    assert watcher.state.rows == 80
    found = samples_of(client.get("/metrics").text)
    assert found["consilience_monitor_rows_total", 'model="machines"'] == 80
    assert found["consilience_monitor_alarms_total", 'model="machines"'] == 0
    absence = 'model="machines",quantity="absence",modality="note"'
    assert found["consilience_monitor_recent", absence] == 0
    with caplog.at_level(logging.INFO, "consilience.serving"):
        for _ in range(3):
            client.rows([{**row, "note": None} for row in rows])
        wait_for(lambda: watcher.watched)
    assert watcher.state.rows == 320
    found = samples_of(client.get("/metrics").text)
    assert found["consilience_monitor_alarm", absence] == 1
    assert found["consilience_monitor_recent", absence] > 0.5
    assert found["consilience_monitor_evidence", absence] > found["consilience_monitor_threshold", 'model="machines"']
    entries = [json.loads(record.message) for record in caplog.records]
    assert any(entry["event"] == "alarm" and entry["quantity"] == "absence of note" for entry in entries)
    shares = [value for (name, _), value in found.items() if name == "consilience_monitor_class_share"]
    assert sum(shares) == pytest.approx(1)


def test_rows_that_cannot_be_watched_in_time_are_counted_and_delay_no_answer(serve, tmp_path, monkeypatch):
    import threading

    reference = tmp_path / "reference.csv"
    machines(60, seed=11).drop("hours", "state").write_csv(reference)
    client = serve(store={"references": {"machines": str(reference)}})
    watcher, begun, release = client.store._watchers["machines"], threading.Event(), threading.Event()

    def slow(rows):
        begun.set()
        assert release.wait(PATIENCE)
        return watcher.monitor.state

    monkeypatch.setattr(watcher.monitor, "update", slow)
    assert client.rows([ROW]).status_code == 200
    assert begun.wait(PATIENCE)
    for _ in range(69):
        assert client.rows([ROW]).status_code == 200
    found = samples_of(client.get("/metrics").text)
    release.set()
    assert found["consilience_monitor_dropped_rows_total", 'model="machines"'] == 69 - 64
