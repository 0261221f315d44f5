"""Sections of the pages on AV-MNIST: a loop's gain beside that of its controls, and the builds of the set."""

import numpy as np

from consilience.comparison.comparison import read_finished
from consilience.comparison.gather_results import conditions, sample_scores
from consilience.comparison.significance import Difference, paired_bootstrap
from consilience.comparison.summary import summarise
from consilience.evaluation import find_metric
from consilience.report.document import Section, TextTable
from consilience.report.wording import NOTHING, Scale, say_count, say_list, say_number, say_p
from consilience.reproduction.protocol_sections import Addition

WORDS = {"unimodal:image": "image alone", "unimodal:audio": "sound alone", "concat": "both"}


def controls(protocol, comparisons, *, part, models, loop, controls):
    """What a loop gains over its base model, beside what its controls gain, and what it gains over all models.

    models: base method → its name in the paper · loop, controls: families of methods around it, the latter in words.
    """
    comparison = comparisons[part]
    scale = Scale.of_block(summarise(comparison.findings)[0])
    families = (loop, *controls)
    rows = []
    for base, name in models.items():
        methods = [f"{family}:{base}" for family in families if f"{family}:{base}" in comparison.findings.methods]
        gains = gains_over(comparison, base, methods)
        shown = (_gain(gains.get(f"{family}:{base}"), scale) for family in families)
        rows.append((name, _parameters(comparison, base), *shown))
    caption = "Accuracy gained over the base model in percentage points, and p corrected over each model's own"
    table = TextTable(caption, ("model", "parameters", *(f"{family}:" for family in families)), tuple(rows))
    meaning = "; ".join(f"`{family}:` {words}" for family, words in controls.items())
    words = (f"{meaning}.", *against_controls(comparison, models, loop, controls))
    section = Section("controls", "Is it what crosses between the modalities?", words, (table,))
    return Addition([section], say_gain_of_all(comparison, models, loop))


def gains_over(comparison, base, methods):
    """Method → its clean difference to a base method, as a row of `Comparison.statistics`."""
    if not methods:
        return {}
    rows = comparison.statistics(base, methods).filter(level=0)
    return {row["method"]: row for row in rows.iter_rows(named=True)}


def say_gain_of_all(comparison, models, loop):
    """The loop's gain over the models taken together, in a sentence; none where no seed has trained them all.

    Six small differences of one sign can decide this test where none of them does alone.
    """
    scale = Scale.of_block(summarise(comparison.findings)[0])
    bases = [base for base in models if {base, f"{loop}:{base}"} <= set(comparison.findings.methods)]
    gain, ahead = gain_of_all(comparison, bases, loop)
    if not np.isfinite(gain.difference):
        return []
    better = "better" if gain.difference > 0 else "worse"
    verdict = "not significantly other" if gain.p > 0.05 else f"significantly {better}"
    return [
        f"{say_number(len(bases), 'model')} taken together are {verdict} with the loop than without: "
        f"{scale.signed(gain.difference)} ({scale.number(gain.low)} … {scale.number(gain.high)}) percentage points, "
        f"{say_p(gain.p)}, a test by itself; the loop is ahead in {ahead} of them."
    ]


def gain_of_all(comparison, bases, loop):
    """The loop's clean gain over its base, as the mean over the models, and in how many it is ahead.

    A seed's models are trained on the same split and tested on the same samples: one sample's gain is the mean of what
    it gains in each.
    """
    plan = comparison.store.read_plan()
    metric, scores, tested = find_metric(comparison.findings.metric), {}, {}
    for job, result in read_finished(comparison.store, plan):
        if not result.failed:
            clean = next(condition for _, condition in conditions(result, plan) if condition["level"] == 0)
            scores[job.method, job.seed] = sample_scores(metric, result, clean)
            tested[job.seed] = result.arrays["index"]
    needed = [name for base in bases for name in (base, f"{loop}:{base}")]
    seeds = [seed for seed in sorted(tested) if all((name, seed) in scores for name in needed)]
    if not seeds or not bases:
        return Difference(*[float("nan")] * 4), 0
    gains = [np.array([scores[f"{loop}:{base}", seed] - scores[base, seed] for base in bases]) for seed in seeds]
    ahead = int((np.mean([gain.mean(axis=1) for gain in gains], axis=0) > 0).sum())
    return paired_bootstrap([gain.mean(axis=0) for gain in gains], [tested[seed] for seed in seeds]), ahead


def against_controls(comparison, models, loop, controls):
    """For each control: in how many models the loop is ahead of it, and in which of them significantly."""
    sentences = []
    for control in controls:
        rows = {
            name: gains_over(comparison, f"{control}:{base}", [f"{loop}:{base}"])[f"{loop}:{base}"]
            for base, name in models.items()
            if {f"{control}:{base}", f"{loop}:{base}"} <= set(comparison.findings.methods)
        }
        ahead = [name for name, row in rows.items() if row["difference"] > 0]
        clearly = [name for name, row in rows.items() if row["difference"] > 0 and row["p"] <= 0.05 / len(rows)]
        if rows:
            where = f", in {say_list(clearly)} significantly" if clearly else ", in none significantly"
            sentences.append(
                f"The loop is ahead of `{control}:` in {len(ahead)} of {say_number(len(rows), 'model')}"
                f"{where} (p ≤ 0.05 over {say_number(len(rows), 'test')})."
            )
    return sentences


def builds(protocol, comparisons, *, usual, clean, published):
    """All builds of the set in one table, and the one whose fused accuracy is nearest to the published one.

    usual: the part in which image and sound were measured · clean: the part of clean sound · published: `model` and
    `accuracy`.
    """
    means = means_by_build(comparisons, usual, clean)
    scale = Scale.of("accuracy", [spread for methods in means.values() for _, spread in methods.values()])
    figure, title = published["accuracy"], {name: part.title for name, part in protocol.parts.items()}
    verdicts = [
        f"{title[name]}: {', '.join(f'{words} {scale.number(methods[key][0])} %' for key, words in WORDS.items())}."
        for name, methods in means.items()
    ]
    near = min(means, key=lambda name: abs(means[name]["concat"][0] - figure))
    verdicts.append(
        f"The published {scale.number(figure)} % of {published['model']} is nearest to {title[near].lower()}, which "
        f"differs by {scale.signed(means[near]['concat'][0] - figure)} percentage points."
    )
    rows = tuple(
        (
            title[name],
            *(scale.pair(*methods[key]) for key in WORDS),
            scale.number(figure),
            scale.signed(methods["concat"][0] - figure),
        )
        for name, methods in means.items()
    )
    caption = "Accuracy by build, %; components change nothing of the sound, nor noise of the image"
    table = TextTable(caption, ("build", *WORDS.values(), "published, both", "difference"), rows)
    return Addition([Section("builds", "All builds together", tables=(table,))], verdicts)


def means_by_build(comparisons, usual, clean):
    """Part → method → mean accuracy and its standard deviation over seeds; one modality's where it was measured."""
    means = {}
    for name, comparison in comparisons.items():
        values = comparison.findings.values.filter(metric="accuracy", level=0.0)
        for (method,), table in values.group_by("method"):
            seeds = table.unique("seed")["value"].to_numpy()
            spread = float(seeds.std(ddof=1)) if len(seeds) > 1 else None
            means.setdefault(name, {})[method] = (float(seeds.mean()), spread)
    for name, methods in means.items():  # components change nothing of the sound, nor noise of the image
        measured = "unimodal:image" if name == clean else "unimodal:audio"
        methods.setdefault(measured, means[usual][measured])
    return means


def _gain(row, scale):
    return NOTHING if row is None else f"{scale.signed(row['difference'])}, {say_p(row['p_holm'])}"


def _parameters(comparison, method):
    timings = comparison.findings.timings
    return say_count(timings.filter(timings["method"] == method)["parameters"][0])
