"""The measured table of docs/bayes.md is that of its file."""

import importlib.util
import json

import numpy as np
from scipy.stats import ttest_rel

from documents import ROOT


def load():
    spec = importlib.util.spec_from_file_location("bayes_tables", ROOT / "docs" / "bayes_tables.py")
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    return tables


def test_the_page_shows_what_was_measured():
    tables = load()
    assert (ROOT / "docs" / "bayes.md").read_text(encoding="utf-8") == tables.page(), "run python docs/bayes_tables.py"


def test_the_intervals_are_those_of_the_paired_t_test():
    tables = load()
    for found in json.loads(tables.FILE.read_text(encoding="utf-8")).values():
        ours, other = (np.array(found["ways"][way]["log-loss"]) for way in ("auto", "temperature"))
        low, high = ttest_rel(other, ours).confidence_interval()
        np.testing.assert_allclose(tables.interval(other - ours), (high - low) / 2)
