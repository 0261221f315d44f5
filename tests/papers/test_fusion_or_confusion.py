"""Fusion or confusion: equal budgets, a run that goes on, and which methods the page names."""

import numpy as np
import pytest
from scipy import stats

from consilience.comparison.store import Result
from consilience.core.errors import InputError
from paper_scripts import script

field = script("fusion-or-confusion")
page = field.load_script(field.HERE / "field" / "field_page.py")
TINY = field.FULL | {
    "sets": ["wine", "gaussians"],
    "methods": ["best-unimodal", "late", "concat", "linear"],
    "trials": 2,
    "seeds": 1,
    "training": {"epochs": 1, "batch_size": 32, "patience": 6, "optimizer": "adamw"},
}


def test_a_run_goes_on_where_it_stopped(tmp_path, monkeypatch):
    first = field.run(settings=TINY | {"sets": ["wine"]}, out=tmp_path / "run")
    assert first.page.is_file()
    measured = []
    whole = field.measure
    monkeypatch.setattr(field, "measure", lambda *given: measured.append(given[1:]) or whole(*given))
    store = field.settle(TINY, tmp_path / "run")
    field.work(TINY, store)
    assert measured == [("gaussians", method, 0) for method in TINY["methods"]]
    found = field.read(TINY, store)
    assert len(found) == 8
    for (_, method, _), result in found.items():
        tried = result.about["tried"]
        assert len(tried) == (1 if method == "linear" else 3)
        for scores in result.about["scores"].values():
            assert list(scores) == TINY["conditions"]
    rates = {str([trial.get("lr") for trial in found[name, "late", 0].about["tried"]]) for name in TINY["sets"]}
    assert len(rates) == 1
    assert found["wine", "late", 0].about["tried"][0].keys() == {"defaults", "validation"}


def test_the_best_trial_on_validation_rows_is_the_one_that_is_tested(monkeypatch):
    asked = []

    class Known:
        """Answers with the classes' shares, or with the truth where its rate is the larger one."""

        def __init__(self, rate):
            self.rate = rate

        def predict_proba(self, samples):
            asked.append((self.rate, len(samples)))
            p = np.full((len(samples), 3), 1 / 3)
            p[:, 0] += 0.5 if self.rate == 2 else 0
            return p / p.sum(axis=1, keepdims=True)

    monkeypatch.setattr(field, "draw_trials", lambda settings, seed: [{"lr": 1}, {"lr": 2}])
    monkeypatch.setattr(field, "fit", lambda settings, method, trial, *rest: Known(trial["lr"]))
    result = field.measure(TINY, "wine", "late", 0)
    losses = [trial["validation"] for trial in result.about["tried"]]
    best = 1 + int(np.argmin(losses))
    rows = result.about["tested"]
    assert {rate for rate, n in asked if n == rows} == {best}


def test_a_method_that_cannot_serve_a_set_is_a_result(monkeypatch):
    def refuse(*given):
        raise InputError("not this one")

    monkeypatch.setattr(field, "fit", refuse)
    result = field.measure(TINY, "wine", "late", 0)
    assert result.failed
    assert result.about["error"] == "InputError: not this one"


def test_trials_are_the_same_for_all_and_within_the_range():
    trials = field.draw_trials(field.FULL, 3)
    assert trials == field.draw_trials(field.FULL, 3)
    assert trials != field.draw_trials(field.FULL, 4)
    assert trials[0] == field.DEFAULTS
    assert len(trials) == 1 + field.FULL["trials"]
    for trial in trials[1:]:
        for name in ("lr", "weight_decay"):
            assert field.FULL[name][0] <= trial[name] <= field.FULL[name][1]
        assert trial["hidden"] in field.FULL["hidden"]
        assert trial["dropout"] in field.FULL["dropout"]


def test_balanced_and_early_methods_get_their_settings(monkeypatch):
    given = []

    class Estimator:
        def __init__(self, method, **arguments):
            given.append((method, arguments))

        def fit(self, samples):
            return self

    monkeypatch.setattr(field, "FusionClassifier", Estimator)
    learned, judged = field.default_sets.hold_out("wine", "all", 0)
    trial = field.draw_trials(field.FULL, 0)[1]
    for method in ("concat+ogm-ge", "early", "late"):
        field.fit(field.FULL, method, trial, learned, judged, 0)
    field.fit(field.FULL, "concat+ogm-ge", field.DEFAULTS, learned, judged, 0)
    field.fit(field.FULL, "linear", {}, learned, judged, 0)
    (balanced, with_balance), (early, with_encoder), (_, plain), (_, by_default), (_, untuned) = given
    assert (balanced, with_balance["balance"]) == ("concat", "ogm-ge")
    assert (early, with_encoder["settings"]["encoder"]["hidden"]) == ("early", [trial["hidden"]])
    assert set(plain["encoders"]) == set(learned.names)
    assert plain["validation"] is judged
    assert by_default.keys() == {"random_state", "device", "verbose", "balance", "validation"}
    assert untuned.keys() == {"random_state", "device", "verbose"}


def invented(sets, gains, failing=()):
    """Results of methods on sets: the reference, and others that gain so much over it."""
    random = np.random.default_rng(0)
    names = [f"set-{number}" for number in range(sets)]
    settings = field.FULL | {"sets": names, "methods": ["best-unimodal", "late", *gains], "seeds": 2}
    found = {}
    for name in names:
        for seed in range(2):
            for method in settings["methods"]:
                noise = random.normal(0, 0.001)
                accuracy = dict.fromkeys(settings["conditions"], 0.7 + gains.get(method, 0) + noise)
                about = {"scores": {"accuracy": accuracy, "log-loss": accuracy}}
                found[name, method, seed] = Result({"error": "no"} if (name, method) in failing else about)
    return settings, found


def described(settings, found):
    return page.describe(field.TITLE, field.PAPER, field.STUDY, settings, found, "command", None)


def test_what_beats_tuned_unimodal_is_named_and_what_does_not_too():
    document = described(*invented(10, {"better": 0.05, "worse": -0.05, "same": 0.0}))
    answer = "\n".join(document.answer)
    assert "Better than tuned `best-unimodal` on clean rows (10 sets): `better` (+5.0, p = 0.008)." in answer
    assert "Worse than tuned `best-unimodal` on clean rows: `worse` (−5.0, p = 0.008)." in answer
    assert "Not shown to differ from it: `late` and `same`." in answer
    assert "the best mean ranks are those of `better` (1.0)" in answer


def test_few_sets_are_said_to_decide_nothing():
    answer = "\n".join(described(*invented(5, {"better": 0.05, "worse": -0.05})).answer)
    assert "No method is significantly better than tuned `best-unimodal` on clean rows (5 sets)." in answer
    assert "5 sets are too few for any difference to be significant" in answer


def test_p_is_scipys_corrected_by_holm():
    settings, found = invented(10, {"better": 0.05, "other": 0.0005})
    findings = page.Findings.of(settings, {}, found)
    tests = {test.method: test for test in page.against(findings, "best-unimodal", "clean")}
    raw = {}
    for method in ("late", "better", "other"):
        means = [
            [np.mean([found[name, each, seed].about["scores"]["accuracy"]["clean"] for seed in range(2)])]
            for name in settings["sets"]
            for each in (method, "best-unimodal")
        ]
        ours, base = np.ravel(means)[::2], np.ravel(means)[1::2]
        raw[method] = stats.wilcoxon(ours - base).pvalue
    ordered = sorted(raw, key=raw.get)
    held, corrected = 0.0, {}
    for place, method in enumerate(ordered):
        held = max(held, min(1.0, raw[method] * (3 - place)))
        corrected[method] = held
    assert {name: test.p for name, test in tests.items()} == pytest.approx(corrected)


def test_tasks_of_one_rig_are_one_set_and_failures_have_no_rank():
    settings, found = invented(6, {"better": 0.05, "broken": 0.0}, failing={("set-3", "broken")})
    same = {"set-0": "rig", "set-1": "rig"}
    findings = page.Findings.of(settings, same, found)
    assert list(findings.scores) == ["rig", "set-2", "set-3", "set-4", "set-5"]
    assert findings.methods == ["best-unimodal", "late", "better"]
    assert findings.failed == {"broken": {"set-3": "no"}}
    values = [found[name, "better", seed].about["scores"]["accuracy"]["clean"] for name in same for seed in range(2)]
    assert findings.scores["rig"]["clean"]["better"] == pytest.approx(np.mean(values))


def test_clean_rows_are_no_corruption():
    settings, found = invented(6, {"brittle": 0.0})
    for (_, method, _), result in found.items():
        if method == "brittle":
            result.about["scores"]["accuracy"] = dict.fromkeys(settings["conditions"], 0.4) | {"clean": 1.0}
    findings = page.Findings.of(settings, {}, found)
    assert findings.means("brittle") == pytest.approx(np.full(6, 0.4))
    assert findings.means("brittle", "clean") == pytest.approx(np.ones(6))
    (table,) = next(section for section in described(settings, found).sections if section.name == "ranks").tables
    assert table.header == ("method", "all corruptions", *settings["conditions"])
    ranks = {row[0]: row[1:] for row in table.rows}
    assert ranks["brittle"] == ("3.0", "1.0", *["3.0"] * (len(settings["conditions"]) - 1))


def test_a_set_that_not_all_methods_have_finished_is_left_out():
    settings, found = invented(3, {"better": 0.05})
    del found["set-1", "late", 1], found["set-2", "late", 0], found["set-2", "late", 1]
    findings = page.Findings.of(settings, {}, found)
    assert findings.seeds == {"set-0": 2, "set-1": 1}
