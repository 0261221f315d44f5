"""`Monitor`: which modality an alarm names and when, and that states, pieces and saved files agree."""

import json
import math

import numpy as np
import pytest

import consilience as cs
from consilience.core.errors import InputError, SavedModelError, UnknownNameError, UnsupportedError
from consilience.estimators.monitored_values import measure
from consilience.evaluation.stream_alarms import RELIABILITY, REPETITION, TRUST

NAMES = ("vibration", "audio", "current")
BREAKS_AT = 80


def sensors(rows, seed, shares=(1 / 3, 1 / 3, 1 / 3)):
    """Opinions of three experts on three classes, right more often than not, and the labels."""
    rng = np.random.default_rng(seed)
    y = rng.choice(3, size=rows, p=shares)
    return {name: 1.5 * np.eye(3)[y] * 1.5 + rng.normal(size=(rows, 3)) for name in NAMES}, y


def broken(X, start=0, offset=None):
    """`vibration` prefers the last class from a row on, whatever it is."""
    values = X["vibration"].copy()
    values[start:] += [0.0, 0.0, 4.0] if offset is None else offset
    return X | {"vibration": values}


def of_rows(X, rows):
    return {name: values[rows] for name, values in X.items()}


@pytest.fixture(scope="module")
def model():
    return cs.BayesFusion(reliability="auto").fit(*sensors(400, 0))


@pytest.fixture(scope="module")
def reference():
    return sensors(200, 1)[0]


@pytest.fixture(scope="module")
def clean():
    return sensors(150, 2)[0]


@pytest.fixture(scope="module")
def saved(model, reference, clean, tmp_path_factory):
    """The file of a monitor that has raised alarms."""
    monitor = cs.Monitor(model, reference)
    assert monitor.update(broken(clean, BREAKS_AT)).alarms
    return monitor.save(tmp_path_factory.mktemp("states") / "monitor.json")


def said(alarms):
    return [(alarm.quantity, alarm.row, alarm.since, alarm.time, alarm.describe()) for alarm in alarms]


def test_an_unchanged_stream_raises_no_alarm(model, reference, clean):
    state = cs.Monitor(model, reference).update(clean)
    assert state.alarms == ()
    assert state.rows == len(clean["audio"])
    assert not any(each.alarm for each in state.quantities)


def test_few_of_many_unchanged_streams_raise_an_alarm(model, reference):
    share, streams = 0.2, 40
    rng, pool = np.random.default_rng(3), sensors(1000, 3)[0]
    raised = 0
    for stream in range(streams):
        rows = rng.permutation(1000)[:100]
        monitor = cs.Monitor(model, of_rows(pool, rows[:50]), false_alarms=share, random_state=stream)
        raised += bool(monitor.update(of_rows(pool, rows[50:])).alarms)
    assert raised / streams <= share + 3 * math.sqrt(share * (1 - share) / streams)


def test_the_first_alarm_names_the_broken_modality_and_when_it_broke(model, reference, clean):
    monitor = cs.Monitor(model, reference)
    times = [f"{n // 60:02}:{n % 60:02}" for n in range(len(clean["audio"]))]
    alarms = monitor.update(broken(clean, BREAKS_AT), times=times).alarms
    named = [alarm for alarm in alarms if alarm.modality and alarm.fell]
    assert named[0].modality == "vibration"
    assert named[0].kind in (RELIABILITY, TRUST)
    assert BREAKS_AT <= alarms[0].row <= named[0].row < BREAKS_AT + 40
    assert abs(named[0].since - BREAKS_AT) <= 10
    assert (named[0].time, named[0].since_time) == (times[named[0].row], times[named[0].since])
    assert named[0].evidence >= monitor.threshold == math.log10(len(monitor.quantities) / 0.01)
    assert f"since {times[named[0].since]} (row {named[0].since}) the " in named[0].describe()
    assert [alarm.row for alarm in alarms] == sorted(alarm.row for alarm in alarms)
    assert len({alarm.quantity for alarm in alarms}) == len(alarms)  # each quantity once


@pytest.mark.parametrize("before", [0.0, 0.2])
def test_an_absent_modality_raises_the_alarm_of_absence_and_no_other(model, reference, before):
    known = np.ones((200, 3), dtype=bool)
    known[np.random.default_rng(4).random(200) < before, 1] = False
    monitor = cs.Monitor(model, reference, present=known)
    there = np.ones((120, 3), dtype=bool)
    there[60:, 1] = False
    alarms = monitor.update(sensors(120, 5)[0], present=there).alarms
    assert [alarm.quantity for alarm in alarms] == ["absence of audio"]
    assert 60 <= alarms[0].row < 90
    assert abs(alarms[0].since - 60) <= 5
    assert alarms[0].recent > 0.9
    assert alarms[0].reference == pytest.approx(1 - known[:, 1].mean())


def test_a_modality_that_is_stuck_raises_the_alarm_of_repetition(model, reference, clean):
    stuck = clean["current"].copy()
    stuck[BREAKS_AT:] = stuck[BREAKS_AT]
    alarms = cs.Monitor(model, reference).update(clean | {"current": stuck}).alarms
    repeated = [alarm for alarm in alarms if alarm.kind == REPETITION]
    assert [alarm.modality for alarm in repeated] == ["current"]
    assert BREAKS_AT < repeated[0].row < BREAKS_AT + 30


def test_other_class_shares_raise_an_alarm_and_are_estimated(model, reference):
    monitor = cs.Monitor(model, reference, window=100)
    X, y = sensors(150, 6, shares=(0.9, 0.05, 0.05))
    assert "class shares" in [alarm.quantity for alarm in monitor.update(X).alarms]
    shares = monitor.class_shares()
    assert list(shares) == [0, 1, 2]
    before, now = np.array(list(shares.values())).T
    np.testing.assert_allclose(before, model.predict_proba(reference).mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(now, np.bincount(y[-100:], minlength=3) / 100, atol=0.08)
    posterior, expected = model.predict_proba(of_rows(X, slice(50, None))), before
    for _ in range(2000):  # expectation maximisation
        weighed = posterior * expected / before
        expected = (weighed / weighed.sum(axis=1, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose(now, expected, atol=1e-4)


def test_before_any_row_the_class_shares_are_those_of_the_reference(model, reference):
    assert all(before == now for before, now in cs.Monitor(model, reference).class_shares().values())


def test_means_are_those_of_the_reference_and_of_the_last_rows(model, reference, clean):
    monitor = cs.Monitor(model, reference, window=30)
    there = np.random.default_rng(7).random((150, 3)) < 0.8
    there[~there.any(axis=1), 0] = True
    monitor.update(of_rows(clean, slice(100)), present=there[:100])
    monitor.update(of_rows(clean, slice(100, None)), present=there[100:])
    found = {each.quantity: each for each in monitor.state.quantities}
    trust, before = model.trust(clean, there)[-30:], model.trust(reference)
    confidence = model.predict_proba(clean, there).max(axis=1)[-30:]
    several = there[-30:].sum(axis=1) > 1
    for m, name in enumerate(NAMES):
        known = there[-30:, m] & several
        assert found[f"trust of {name}"].recent == pytest.approx(trust[known, m].mean())
        assert found[f"trust of {name}"].reference == pytest.approx(before[:, m].mean())
        assert found[f"absence of {name}"].recent == pytest.approx(1 - there[-30:, m].mean())
    assert found["confidence"].recent == pytest.approx(confidence.mean())
    assert "class shares" not in found


def test_reset_watches_anew(model, reference, clean):
    monitor = cs.Monitor(model, reference)
    bad = broken(clean)
    first = monitor.update(bad).alarms
    assert not {alarm.quantity for alarm in monitor.update(bad).alarms} & {alarm.quantity for alarm in first}
    name = first[0].quantity
    with pytest.raises(UnknownNameError, match="trust of vibration"):
        monitor.reset("trust of vibratoin")
    monitor.reset(name)
    state = {each.quantity: each for each in monitor.state.quantities}
    assert (state[name].evidence, state[name].alarm) == (0.0, False)
    others = [alarm.quantity for alarm in first[1:] if alarm.quantity in state]
    assert others
    assert all(state[other].alarm for other in others)
    monitor.reset()
    assert not any(each.alarm for each in monitor.state.quantities)
    assert said(monitor.alarms[: len(first)]) == said(first)  # what was raised stays on record
    again = cs.Monitor(model, reference)
    again.update(bad)
    again.reset()
    worse = broken(sensors(150, 9)[0], offset=[0.0, 0.0, -25.0])
    assert "vibration" in {alarm.modality for alarm in again.update(worse).alarms}


@pytest.mark.parametrize("size", [1, 7, 64])
def test_pieces_are_the_whole(model, reference, clean, size):
    bad = of_rows(broken(clean, 30), slice(70))
    times = [f"t{n}" for n in range(70)]
    whole, pieces = (cs.Monitor(model, reference, window=25) for _ in range(2))
    whole.update(bad, times=times)
    for start in range(0, 70, size):
        pieces.update(of_rows(bad, slice(start, start + size)), times=times[start : start + size])
    assert whole.alarms
    assert said(pieces.alarms) == said(whole.alarms)
    for one, other in zip(pieces.state.quantities, whole.state.quantities, strict=True):
        np.testing.assert_allclose(
            (one.recent, one.evidence), (other.recent, other.evidence), rtol=1e-9, atol=1e-9, err_msg=one.quantity
        )
    ours, theirs = (list(monitor.class_shares().values()) for monitor in (pieces, whole))
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_a_saved_monitor_goes_on_identically(model, reference, clean, tmp_path):
    bad = broken(clean, BREAKS_AT)
    times = [f"t{n}" for n in range(150)]
    one = cs.Monitor(model, reference, false_alarms=0.02, window=40, random_state=5)
    one.update(of_rows(bad, slice(90)), times=times[:90])
    other = cs.Monitor.load(one.save(tmp_path / "monitor.json"), model)
    assert (other.rows, other.false_alarms, other.window) == (90, 0.02, 40)
    ours, theirs = (each.update(of_rows(bad, slice(90, None)), times=times[90:]) for each in (one, other))
    assert ours.alarms
    assert said(theirs.alarms) == said(ours.alarms)
    assert theirs == ours
    assert said(other.alarms) == said(one.alarms)
    assert other.class_shares() == one.class_shares()
    assert one.save(tmp_path / "one.json").read_bytes() == other.save(tmp_path / "other.json").read_bytes()


def test_a_saved_file_is_plain_json_without_the_rows(saved):
    described = json.loads(saved.read_text(encoding="utf-8"), parse_constant=lambda word: pytest.fail(word))
    assert described["modalities"] == list(NAMES)
    assert described["rows"] == 150


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: text.replace('"consilience"', '"another"', 1),
        lambda text: text.replace('"monitor": 1', '"monitor": 99', 1),
        lambda text: text.replace('"false_alarms": 0.01', '"false_alarms": 2', 1),
        lambda text: text.replace('"rows": 150', '"rows": -1', 1),
        lambda text: text.replace('["trust", "audio"]', '["smell", "audio"]', 1),
        lambda text: text.replace('"detectors": [{', '"detectors": [{}, {', 1),
        lambda text: text.replace('"steps": [', '"steps": [1, ', 1),
        lambda text: text.replace('"posteriors": [[', '"posteriors": [[0.5, ', 1),
    ],
)
def test_a_damaged_file_is_refused(saved, model, tmp_path, edit):
    text = saved.read_text(encoding="utf-8")
    path = tmp_path / "damaged.json"
    path.write_text(edit(text), encoding="utf-8")
    assert path.read_text(encoding="utf-8") != text
    with pytest.raises(SavedModelError, match=r"damaged\.json: this is no state of a Monitor"):
        cs.Monitor.load(path, model)


def test_the_file_of_another_model_is_refused(saved):
    X, y = sensors(60, 10)
    other = cs.BayesFusion().fit({"left": X["audio"], "right": X["current"]}, y)
    with pytest.raises(SavedModelError, match=r"it belongs to a model of \['vibration', 'audio', 'current'\]"):
        cs.Monitor.load(saved, other)


def test_a_model_that_watches_other_quantities_is_refused(saved, clean):
    plain = cs.BayesFusion().fit(*sensors(60, 10))
    assert "reliability of audio" not in {each.name for each in measure(plain, clean).quantities}
    with pytest.raises(InputError, match="the model was changed since, so make a new Monitor"):
        cs.Monitor.load(saved, plain).update(clean)


def test_too_few_rows_of_reference(model, reference):
    with pytest.raises(InputError, match="the reference has 19 rows; at least 20 are needed"):
        cs.Monitor(model, of_rows(reference, slice(19)))
    cs.Monitor(model, of_rows(reference, slice(20)))


def test_a_wrong_number_of_times_is_refused_before_anything_is_counted(model, reference, clean):
    monitor = cs.Monitor(model, reference)
    before = monitor.state
    with pytest.raises(InputError, match="there are 3 times and 150 rows"):
        monitor.update(clean, times=["a", "b", "c"])
    assert monitor.state.rows == before.rows == 0
    assert [each.evidence for each in monitor.state.quantities] == [each.evidence for each in before.quantities]


@pytest.mark.parametrize("given", [{"false_alarms": 1.5}, {"false_alarms": 0}, {"window": 0}, {"random_state": -1}])
def test_settings_out_of_range_are_refused(model, reference, given):
    with pytest.raises(InputError, match=next(iter(given))):
        cs.Monitor(model, reference, **given)


def test_what_has_no_modalities_cannot_be_watched():
    with pytest.raises(UnsupportedError, match="a dict cannot be watched"):
        cs.Monitor({}, {})


@pytest.mark.parametrize("regression", [False, True])
def test_trained_networks_are_watched(regression):
    data = cs.load_data("gaussians")
    rows = data.train[:200]
    if regression:
        number = np.asarray(rows.y, dtype=float) + np.random.default_rng(11).normal(size=len(rows))
        fitted = cs.FusionRegressor("late", epochs=1, device="cpu").fit(rows.without_targets(), number)
    else:
        fitted = cs.FusionClassifier("late", epochs=1, device="cpu").fit(rows)
    name = data.train.names[0]
    monitor = cs.Monitor(fitted, data.validation.without_targets()[:100])
    assert bool(monitor.class_shares()) != regression
    kinds = {each.kind for each in monitor.quantities}
    assert {"absence", "repetition"} <= kinds
    assert ("class shares" in kinds) != regression
    stuck = data.test[:40].without_targets()
    values = np.repeat(np.asarray(stuck[name])[:1], 40, axis=0)
    alarms = monitor.update(stuck.replaced({name: values})).alarms
    assert f"repetition of {name}" in {alarm.quantity for alarm in alarms}
