"""The measured tables and printed outputs of the documents are those of the files that runs have filled."""

import importlib
import json
import sys

import numpy as np
import pytest
from scipy.stats import ttest_rel

from documents import ROOT

DOCS = ROOT / "docs"
SCRIPTS = sorted(path.stem for path in DOCS.glob("*.py") if "from marked_places import" in path.read_text("utf-8"))


@pytest.fixture(autouse=True)
def _scripts_can_be_imported(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    yield
    for name in [*SCRIPTS, "marked_places"]:
        sys.modules.pop(name, None)


def test_the_scripts_of_all_pages_are_found():
    assert {"bayes_tables", "check_outputs", "choose_tables", "defaults_tables", "latent_tables"} <= set(SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_page_shows_what_was_measured(name):
    script = importlib.import_module(name)
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), f"run python docs/{name}.py"


def test_a_figure_changed_by_hand_is_noticed(monkeypatch, tmp_path):
    script = importlib.import_module("robust_tables")
    text = script.PAGE.read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| bayes-robust |"))
    changed = tmp_path / "robust.md"
    changed.write_text(text.replace(row, row.replace("±", "+", 1)), encoding="utf-8")
    monkeypatch.setattr(script, "PAGE", changed)
    assert script.page() == text != changed.read_text(encoding="utf-8")


@pytest.mark.parametrize("lacks", ["<!-- measured: missing -->", "<!-- end -->"])
def test_a_page_without_the_place_is_an_error(lacks, tmp_path):
    filled = importlib.import_module("marked_places").filled
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- measured: missing -->\nold\n<!-- end -->\nafter\n".replace(lacks, ""))
    with pytest.raises(SystemExit, match=r"page\.md has no place for 'missing'"):
        filled(page, {"missing": "new"})


def test_the_intervals_of_the_bayes_page_are_those_of_the_paired_t_test():
    tables = importlib.import_module("bayes_tables")
    for found in json.loads(tables.FILE.read_text(encoding="utf-8")).values():
        ours, other = (np.array(found["ways"][way]["log-loss"]) for way in ("auto", "temperature"))
        low, high = ttest_rel(other, ours).confidence_interval()
        np.testing.assert_allclose(tables.interval(other - ours), (high - low) / 2)
