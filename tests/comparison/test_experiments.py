"""Named experiments: their protocols can be run, ours stand beside the published figures, claims get their verdict."""

import inspect
import json
import re

import numpy as np
import polars as pl
import pytest

from consilience import compare, load_data
from consilience.comparison.comparison import reopen
from consilience.comparison.experiments import (
    Claim,
    Experiment,
    Part,
    experiments,
    find_experiment,
    published,
    register_experiment,
)
from consilience.comparison.resolution import applicable
from consilience.core.errors import ConsilienceError, MissingDataError, UnknownNameError
from consilience.corruption import corruption_names

ALL = [one for one in experiments().values() if isinstance(one, Experiment)]
PARTS = [pytest.param(one, part, id=f"{one.name}/{name}") for one in ALL for name, part in one.parts.items()]


@pytest.mark.parametrize(("experiment", "part"), PARTS)
def test_protocols_are_arguments_of_compare(experiment, part):
    allowed = set(inspect.signature(compare).parameters)
    for quick in (False, True):
        protocol = part.arguments(quick)
        own = protocol.keys() - allowed  # options of the set
        assert own <= options_of(protocol["data"])
        asked = protocol.get("corruption") or []
        asked = [asked] if isinstance(asked, str) else asked
        assert {name for name in asked if isinstance(name, str)} <= set(corruption_names())
    assert part.arguments(quick=True)["seeds"] < part.full["seeds"] >= 10


def options_of(names):
    from consilience.data.named_sets import registry

    names = [names] if isinstance(names, str) else names
    return {option for name in names for option in inspect.signature(registry()[name].make).parameters}


@pytest.mark.parametrize("experiment", ALL, ids=lambda one: one.name)
def test_what_was_published_is_of_its_own_parts(experiment):
    for key in (*experiment.published, *experiment.published_worst):
        name, method, corruption, level = key
        asked = experiment.parts[name].full
        assert method in asked["methods"]
        assert level in asked["levels"]
        assert (corruption == "clean") == (level == 0)
    for claim in experiment.claims:
        asked = experiment.parts[claim.part].full
        assert {claim.method, claim.than} <= {*asked["methods"], asked.get("reference")}
        assert claim.level in asked["levels"]


@pytest.mark.parametrize(
    "part",
    [part for one in ALL for part in one.parts.values() if part.full["data"] == "digits"],
    ids=lambda _: "digits",
)
def test_methods_serve_the_data(part):
    run, _ = applicable(part.full.get("methods"), "", load_data(part.full["data"]))
    assert "late" in run


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, size=300)
    path = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(path, good=3 * y[:, None] + rng.normal(size=(300, 2)), noise=rng.normal(size=(300, 3)), y=y)
    return path


@pytest.fixture(scope="module")
def invented(small):
    protocol = {
        "data": small,
        "methods": ["late", "unimodal:good", "unimodal:noise"],
        "corruption": "gaussian",
        "levels": (5,),
        "seeds": 50,
        "training": {"epochs": 8, "lr": 0.03},
    }
    return Experiment(
        name="invented",
        title="An experiment of one's own",
        parts={"small": Part(protocol, {"seeds": 7}), "far": Part({**protocol, "data": "handwritten"}, title="Away")},
        published={("small", "late", "gaussian", 5.0): 0.75, ("small", "late", "clean", 0.0): 0.9},
        published_worst={("small", "late", "gaussian", 5.0): 0.7},
        claims=(
            Claim("Content beats noise", "small", "unimodal:good", "unimodal:noise"),
            Claim("Noise beats content", "small", "unimodal:noise", "unimodal:good"),
            Claim("Late fusion is best", "small", "late", "unimodal:good", "gaussian", 5.0),
            Claim("Of what is not here nothing is said", "far", "late", "unimodal:good"),
        ),
        notes=("Everything is different.",),
        more=lambda done: [published.Section("own", "Of its own", tuple(done))],
    )


@pytest.fixture(scope="module")
def done(invented, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CONSILIENCE_DATA", raising=False)
        folder = tmp_path_factory.mktemp("run")
        return invented.run(quick=True, out=folder, verbose=0, command="consilience reproduce invented")


def test_ours_beside_the_published(done):
    [table] = done.account.tables
    assert table.header == ("method", "clean", "published", "difference", "gaussian 5", "published", "difference")
    values = reopen(done.folder / "small").findings.values
    ours = {
        level: 100 * values.filter(method="late", metric="accuracy", level=level)["value"].to_numpy()
        for level in (0.0, 5.0)
    }
    late = dict(zip(("clean", "", "", "noisy", "beside", "apart"), table.rows[0][1:]))
    decimals = len(late["noisy"].split()[0].partition(".")[2])
    assert late["noisy"].split()[0] == f"{ours[5.0].mean():.{decimals}f}"
    assert late["noisy"].split()[2] == f"{ours[5.0].std(ddof=1):.{decimals}f}"
    assert f"({ours[5.0].min():.{decimals}f})" in late["noisy"]
    assert late["beside"] == f"{75:.{decimals}f} ({70:.{decimals}f})"
    assert float(late["apart"].replace("−", "-")) == pytest.approx(ours[5.0].mean() - 75, abs=10.0**-decimals)
    assert table.rows[1][5:] == ("–", "–")


def test_claims_get_their_verdict_with_figures(done, invented):
    found, opposite, late = done.account.answer
    assert found.startswith("Content beats noise. Found: `unimodal:good` − `unimodal:noise` +")
    assert opposite.startswith("Noise beats content. The opposite is found:")
    row = reopen(done.folder / "small").statistics("unimodal:good", ["late"]).filter(level=5.0).row(0, named=True)
    told = re.search(r"late` − `unimodal:good` \+?(−?[\d.]+) ", late)[1].replace("−", "-")
    assert float(told) == pytest.approx(100 * row["difference"], abs=0.06)
    few = published.checked_claims(invented.claims[:1] * 9, {"small": reopen(done.folder / "small")})
    assert len(few) == 9
    assert few[0].startswith("Content beats noise. Not decided:")
    assert few[0].endswith("; 7 seeds are too few.")
    assert published.in_short(few) == ["Of 9 claims: not decided 9. All are on the page."]


def test_the_page_says_what_is_missing_and_how_it_was_made(done):
    text = (done.folder / "report.md").read_text(encoding="utf-8")
    assert "far was left out" in text
    assert "CONSILIENCE_DATA" in text
    assert "Everything is different." in text
    assert "7 seeds, on the median 8 epochs" in text
    assert "torch 2" in text
    assert "## Of its own" in text
    assert "(small/report.html)" in text
    told = json.loads((done.folder / "report.json").read_text(encoding="utf-8"))
    assert told["answer"] == list(done.account.answer)
    assert told["sections"][0]["tables"][0]["rows"][0][0] == "late"


def test_without_any_data_the_error_says_what_to_get(invented, tmp_path, monkeypatch):
    monkeypatch.delenv("CONSILIENCE_DATA", raising=False)
    only = Experiment("only", "Only what is not here", {"far": invented.parts["far"]})
    with pytest.raises(MissingDataError, match="six-view handwritten set"):
        only.run(quick=True, out=tmp_path)


def test_another_reference_is_tested_by_itself(done):
    comparison = reopen(done.folder / "small")
    own = comparison.statistics()
    assert set(own["reference"]) == {"late"}
    other = comparison.statistics("unimodal:good")
    assert set(other["method"]) == {"late", "unimodal:noise"}
    mirrored = own.filter(method="unimodal:good", level=5.0)["difference"].item()
    assert other.filter(method="late", level=5.0)["difference"].item() == pytest.approx(-mirrored)
    alone = comparison.statistics("unimodal:good", ["late"])
    assert alone["p"].to_list() == alone["p_holm"].to_list()
    assert other.filter(pl.col("p") > pl.col("p_holm")).is_empty()
    with pytest.raises(UnknownNameError, match="It was not compared here"):
        comparison.statistics("bayes")


def test_names_are_known_once(monkeypatch):
    known = find_experiment("digits-robustness")
    with pytest.raises(ConsilienceError, match="'digits-robustness' is registered twice"):
        register_experiment(known)
    with pytest.raises(UnknownNameError, match="did you mean 'digits-robustness'"):
        find_experiment("digits-robust")
