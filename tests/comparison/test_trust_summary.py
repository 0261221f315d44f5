"""Trust, measured: over seeds, in words, in the page."""

import numpy as np
import polars as pl
import pytest

from consilience.comparison.results import empty_table
from consilience.comparison.summary import measured_trust, trust_over_seeds
from consilience.core.correlation import fisher_interval
from consilience.report import render_page
from consilience.report.sentences import details, trust_sentences
from report.factory import make_findings

# method → modality → r when clean and at the highest level; None is static
FOUND = {
    "late": {"a": (None, None), "b": (None, None)},
    "qmf": {"a": (-0.4, -0.2), "b": (-0.3, 0.6)},
    "tmc": {"a": (-0.5, -0.6), "b": (-0.2, -0.1)},
    "pdf": {"a": (-0.5, -0.6), "b": (-0.3, 0.004)},
}


def findings(seeds=4, found=FOUND, levels=(0.0, 10.0), samples=50):
    made = make_findings([*found], corruptions=("gaussian",), levels=levels, seeds=seeds, modalities=("a", "b"))
    rows = [
        {
            "set": "digits",
            "method": method,
            "seed": seed,
            "corruption": "gaussian",
            "level": level,
            "modality": modality,
            "samples": samples,
            "static": r is None,
            "weight": 0.5,
            "trust": 0.6,
            "r": None if r is None else r + 0.01 * (seed - (seeds - 1) / 2),
            "static_trust": 0.5,
            "loss": 1.0 + seed,
            "covariance": -0.1,
            "gap": -0.05,
        }
        for method, modalities in found.items()
        for modality, correlations in modalities.items()
        for level, r in zip(levels, correlations)
        for seed in range(seeds)
    ]
    made.diagnostics = pl.DataFrame(rows, schema=empty_table("diagnostics").schema)
    return made


def test_seeds_are_summed_up():
    table = trust_over_seeds(findings())
    row = table.filter(method="pdf", modality="b", level=10.0).row(0, named=True)
    r = 0.004 + 0.01 * (np.arange(4) - 1.5)
    assert (row["r"], row["r_std"], row["r_worst"]) == pytest.approx((r.mean(), r.std(ddof=1), r.max()))
    assert (row["positive"], row["seeds"], row["samples"]) == ((r > 0).sum(), 4, 50)
    assert (row["loss"], row["gap"], row["covariance"]) == pytest.approx((2.5, -0.05, -0.1))
    assert table.filter(method="late")["r"].is_null().all()
    assert table.filter(method="late")["static"].all()


def test_the_verdicts():
    (block,) = measured_trust(findings())
    assert trust_sentences(block) == [
        "`qmf` meets theorem 2's condition (r ≤ 0) on all 2 modalities when clean, and under gaussian at level 10 on "
        "1 of 2; on b r = +0.60 ± 0.01 (positive in 4 of 4 seeds): it trusts b more when it is wrong.",
        "`tmc` meets theorem 2's condition (r ≤ 0) on all 2 modalities, clean and corrupted; the largest r is "
        "−0.10 ± 0.01.",
        "`pdf` meets theorem 2's condition (r ≤ 0) on all 2 modalities when clean, and under gaussian at level 10 on "
        "1 of 2; on b r = 0.00 ± 0.01 (positive in 2 of 4 seeds), which chance explains.",
        "`late` weighs statically: its weights do not depend on what a sample looks like, so there is no correlation.",
    ]


def test_one_seed_is_judged_by_fishers_interval():
    (block,) = measured_trust(findings(seeds=1, found={"qmf": {"a": (-0.2, 0.2), "b": (-0.3, 0.6)}}))
    weak, strong = block.rows[0].cells[1]
    assert fisher_interval(0.2, 50)[0] < 0 < fisher_interval(0.6, 50)[0]
    assert (weak.fails, strong.fails) == (False, True)
    assert "on none of 2; on b r = +0.60 (95 % interval +0.39 … +0.75): it trusts b" in trust_sentences(block)[0]


def test_a_failure_on_clean_data_alone_is_said_once():
    (block,) = measured_trust(findings(found={"qmf": {"a": (0.5,), "b": (-0.3,)}}, levels=(0.0,)))
    assert trust_sentences(block)[0].startswith(
        "`qmf` meets theorem 2's condition (r ≤ 0) on 1 of 2 modalities; on a r = +0.50"
    )


def test_the_page_has_the_section():
    made = findings()
    page = render_page(made)
    section = page[page.index('<section id="measured">') : page.index('<section id="calibration">')]
    assert "<code>qmf</code> meets theorem 2&#39;s condition" in section
    assert section.count("▼<span") == 1
    assert section.count('<th scope="row"') == 3 + len(details(measured_trust(made)[0])) == 3 + 3 * 2 * 2
    assert 'href="#measured"' in page


def test_old_results_and_static_methods_make_a_page():
    without = make_findings(["late", "concat"])
    assert measured_trust(without) == []
    assert "the results are older than this measurement" in render_page(without)
    page = render_page(findings(found={"late": FOUND["late"]}))
    assert "weighs statically" in page
    assert "the largest r of any modality" not in page
