"""`qmf-table3` and `qmf-figure3`: which measure of uncertainty follows the losses, and whether accuracy follows it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from consilience.comparison.comparison import Comparison
from consilience.comparison.experiments.experiment import Claim, Experiment, register_experiment
from consilience.comparison.experiments.qmf_tables.correlations import (
    HOW,
    Check,
    correlations,
    follows_closer,
    say_r,
    verdicts_on,
)
from consilience.comparison.experiments.qmf_tables.paper import EPSILONS, PAPER, TABLE_3
from consilience.comparison.experiments.qmf_tables.protocol import GAUSSIAN, ON_OTHER_SETS, SETS, part
from consilience.comparison.statistics import compare_to_reference
from consilience.evaluation.trust_verdict import signed
from consilience.report.document import Section, TextTable
from consilience.report.drawing import Drawing
from consilience.report.palette import looks_of
from consilience.report.scatter import Cloud, plot_clouds
from consilience.report.seed_summary import summarise
from consilience.report.wording import say_level

NOISE = 10.0
# Uncertainty → its name in the paper. QMF proper is the energy with the ranking loss.
ESTIMATORS = {"msp": "MSP", "energy": "Energy score", "entropy": "Entropy", "evidence": "Evidence"}
SETTINGS = {f"qmf@{name}": {"uncertainty": name, "ranking": "none"} for name in ESTIMATORS}
METHODS = (*SETTINGS, "tmc", "qmf")
WHAT_THEY_ARE = (
    "`qmf@msp`, `qmf@energy`, `qmf@entropy` and `qmf@evidence` weigh by that uncertainty without the ranking loss; "
    "`qmf` is the energy with it. The paper does not say how its first four are trained. Its evidence is that of TMC, "
    "whose experts learn evidence by a loss of their own: `tmc` stands beside them.",
)


def verdicts_of_table(comparisons: Mapping[str, Comparison]) -> list[str]:
    """QMF's weights perceive quality best: against each of the four estimators."""
    says = f"at ε = {say_level(NOISE)}, QMF's weights fall more with the losses than those by"
    return verdicts_on(
        [
            follows_closer(f"On {name} {says} {words}", comparison, NOISE, "qmf", f"qmf@{estimator}")
            for name, comparison in comparisons.items()
            for estimator, words in ESTIMATORS.items()
        ]
    )


def correlation_section(comparisons: Mapping[str, Comparison]) -> Section:
    """r by estimator and level, and the paper's |r|."""
    header = ("weights by", *(f"ε = {say_level(level)}" for level in EPSILONS))
    tables = []
    for name, comparison in comparisons.items():
        by_level = [correlations(comparison, level) for level in EPSILONS]
        rows = [(method, *(say_r(found.get(method)) for found in by_level)) for method in METHODS]
        tables.append(TextTable(f"{name}: r", header, tuple(rows), (len(rows) - 1,)))
    theirs = tuple((row, *(f"{r:.3f}" for r in found)) for row, found in TABLE_3.items())
    tables.append(TextTable("The paper's table 3, UPMC FOOD-101: |r|", header, theirs, (len(theirs) - 1,)))
    return Section("correlations", "Table 3: weights against losses", (HOW, *WHAT_THEY_ARE), tuple(tables))


def verdicts_of_figure(comparisons: Mapping[str, Comparison]) -> list[str]:
    """Accuracy goes with the correlation."""
    says = f"at ε = {say_level(NOISE)}, methods whose weights fall more with the losses are more accurate"
    return verdicts_on([accuracy_follows(f"On {name} {says}", one) for name, one in comparisons.items()])


def accuracy_follows(says: str, comparison: Comparison) -> Check:
    """Whether methods whose weights fall more with the losses are more accurate: Spearman's ρ of both, by seed."""
    from scipy.stats import spearmanr

    found, right = correlations(comparison, NOISE), accuracies(comparison, NOISE)
    rank = {}
    for seed in comparison.findings.seeds:
        pairs = [(-found[one][seed], right[one][seed]) for one in found if seed in found[one]]
        if len({x for x, _ in pairs}) > 1 and len({y for _, y in pairs}) > 1:
            rank[seed] = float(spearmanr(pairs).statistic)
    scores = {
        "none": {seed: np.zeros(1) for seed in rank},
        "ranks": {seed: np.array([one]) for seed, one in rank.items()},
    }
    [row] = compare_to_reference(scores, "none")
    return Check(says, f"Spearman's ρ = {say_r(rank)} over {len(found)} methods", row, len(rank))


def accuracies(comparison: Comparison, level: float) -> dict[str, dict[int, float]]:
    """Method → seed → accuracy, under the one corruption of a comparison."""
    findings = comparison.findings
    table = findings.values.filter(metric=findings.metric, corruption=findings.corruptions[0], level=level)
    return {
        method: dict(table.filter(method=method).select("seed", "value").iter_rows()) for method in findings.methods
    }


def figure_section(comparisons: Mapping[str, Comparison]) -> Section:
    """Accuracy against −r, a figure and a table for each set."""
    tables, drawings = [], []
    for name, comparison in comparisons.items():
        found, right = correlations(comparison, NOISE), accuracies(comparison, NOISE)
        looks = looks_of(list(found), ["qmf"])
        clouds = [
            Cloud(method, looks[method], list(seeds.values()), [100 * right[method][seed] for seed in seeds])
            for method, seeds in found.items()
        ]
        words = f"on {name} under {GAUSSIAN} of ε = {say_level(NOISE)}"
        told = "; ".join(f"{one.label} r {signed(one.centre[0])}, {one.centre[1]:.1f} %" for one in clouds)
        drawings.append(
            Drawing(
                f"clouds-{name}",
                f"Accuracy against Pearson's r of weights and losses, {words}: every seed a dot, the mean a mark. "
                "Left of the line weights fall when a modality is wrong; by the paper, the more they do, the better.",
                f"Scatter plot of accuracy against r, {words}. Means: {told}.",
                plot_clouds(clouds, "r of weights and losses", "accuracy, %", zero="Theorem 2's limit"),
            )
        )
        block = summarise(comparison.findings)[0]
        rows = tuple(
            (
                method,
                say_r(found[method]),
                block.scale.number(float(np.mean([*right[method].values()]))),
                block.scale.number(min(right[method].values())),
            )
            for method in METHODS
            if method in found
        )
        header = ("weights by", "r", "accuracy, %", "worst seed")
        tables.append(TextTable(f"{name} at ε = {say_level(NOISE)}", header, rows, (len(rows) - 1,)))
    return Section(
        "clouds", "Figure 3: accuracy against correlation", (HOW, *WHAT_THEY_ARE), tuple(tables), tuple(drawings)
    )


register_experiment(
    Experiment(
        name="qmf-table3",
        title="Table 3: whose weights know when a modality is wrong?",
        paper=f"{PAPER}, table 3",
        parts={name: part(name, METHODS, reference="qmf", settings=SETTINGS) for name in SETS},
        verdicts=verdicts_of_table,
        notes=(
            *ON_OTHER_SETS,
            "Inside the paper: the caption of table 3 says r and its figures are |r|. That the sign is negative "
            "follows from nothing that is printed; features that grow with the noise turn it around, see "
            "`qmf-handwritten-unbounded`.",
        ),
        more=lambda comparisons: [correlation_section(comparisons)],
    )
)
register_experiment(
    Experiment(
        name="qmf-figure3",
        title="Figure 3: is the fusion more accurate whose weights know more?",
        paper=f"{PAPER}, figure 3",
        parts={name: part(name, METHODS, levels=(0.0, NOISE), reference="qmf", settings=SETTINGS) for name in SETS},
        claims=tuple(
            Claim(
                f"On {name} at ε = {say_level(NOISE)}, QMF is more accurate than with weights by {ESTIMATORS[rival]}",
                name,
                "qmf",
                f"qmf@{rival}",
                GAUSSIAN,
                NOISE,
            )
            for name in SETS
            for rival in ("msp", "evidence")
        ),
        verdicts=verdicts_of_figure,
        notes=(
            *ON_OTHER_SETS,
            "The paper's figure has no numbers to set beside ours. It shows NYU Depth V2 and SUN RGB-D under Gaussian "
            "noise of “variance 10”, ten seeds.",
        ),
        more=lambda comparisons: [figure_section(comparisons)],
    )
)
