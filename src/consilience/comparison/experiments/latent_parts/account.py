"""The page of the experiment: errors, likelihoods and coherence by subset size, and which differences are sure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from consilience.comparison.experiments.latent_parts.cells import Protocol
from consilience.comparison.experiments.latent_parts.findings import MEASURES, Findings, spread
from consilience.comparison.experiments.latent_parts.gallery import draw_rows
from consilience.comparison.experiments.latent_parts.measuring import FEW_DRAWS
from consilience.comparison.experiments.latent_parts.pictures import Cut
from consilience.comparison.experiments.study import Study
from consilience.comparison.statistics import too_few_seeds
from consilience.comparison.store import Result
from consilience.report.document import Account, Section, TextTable
from consilience.report.drawing import Drawing
from consilience.report.wording import Scale, say_list, say_number

_CAPTIONS = {
    "error": "Imputation error: root mean square over pixels, in their own units (less is better)",
    "conditional": "Conditional log-likelihood of the parts that are not given, in nats (more is better)",
    "coherent": "Coherence: per cent that a classifier takes for the right digit, given and generated together",
}
_SHORT = {
    "error": "error, root mean square",
    "conditional": "log p(the rest | given), nats",
    "coherent": "coherence, %",
}
# By whether a difference to the reference is surely for the better, for the worse, or not sure.
ARROWS = {1: " ↑", -1: " ↓", 0: ""}
# (cut, measure) → what `Findings.sure` says.
Sure = Mapping[tuple[str, str], Mapping[tuple[str, int], int]]
_WHOLE = "Likelihood of whole digits, and what the latent knows of their class"


def give_account(study: Study, protocol: Protocol, results: Mapping[str, Result]) -> Account:
    """What all cells say, in words, tables and pictures."""
    findings = Findings.gather(protocol, results)
    cuts = findings.protocol.cuts
    sure = {(cut.name, measure): findings.sure(cut, measure) for cut in cuts for measure in MEASURES}
    sections = []
    for cut in cuts:
        titles = [_of(cuts, cut, one) for one in ("By the number of parts given", "Whole digits", "What they imagine")]
        sections += [
            Section(f"subsets-{cut.name}", titles[0], _reading(findings, cut), tuple(by_size(findings, cut, sure))),
            Section(f"whole-{cut.name}", titles[1], tables=(whole_table(findings, cut),)),
            Section(f"look-{cut.name}", titles[2], figures=(gallery(findings, cut),)),
        ]
    how = tuple(_how(findings, cut) for cut in cuts)
    sections.append(Section("method", "How it was measured", (*study.notes, *how)))
    return Account(study.title, answer(findings, sure), tuple(sections), paper=study.paper)


def by_size(findings: Findings, cut: Cut, sure: Sure) -> Iterator[TextTable]:
    """A table for each measure with a column for each number of parts given; one for all where that is one number."""
    variants = findings.protocol.variants
    columns = {measure: _columns(findings, cut, measure, sure[cut.name, measure]) for measure in MEASURES}
    marked = (variants.index(findings.reference),)
    if len(cut.sizes) == 1:
        rows = tuple((name, *(columns[measure][0][name] for measure in MEASURES)) for name in variants)
        header = ("", *(_SHORT[measure] for measure in MEASURES))
        yield TextTable(f"{cut.sizes[0]} of {cut.count} parts given", header, rows, marked)
        return
    for measure, caption in _CAPTIONS.items():
        rows = tuple((name, *(column[name] for column in columns[measure])) for name in variants)
        yield TextTable(caption, ("", *(f"{size} given" for size in cut.sizes)), rows, marked)


def _columns(findings: Findings, cut: Cut, measure: str, sure: Mapping[tuple[str, int], int]) -> list[dict[str, str]]:
    """For each number of parts given, variant → mean, spread and an arrow where the difference is sure."""
    decimals = 1 if measure != "error" else 3 if cut.binary else 2
    found = {name: findings.summary(cut, name, measure) for name in findings.protocol.variants}
    return [
        {name: _pair(found[name][:, place], decimals) + ARROWS[sure.get((name, place), 0)] for name in found}
        for place in range(len(cut.sizes))
    ]


def whole_table(findings: Findings, cut: Cut) -> TextTable:
    """Joint log-likelihood, what a linear classifier reads from the latent, and how far the estimates carry."""
    rows = tuple(
        (
            name,
            _pair(findings.joint(cut, name), 1),
            _pair(100 * findings.about(cut, name, "probe"), 1),
            f"{findings.about(cut, name, 'effective_samples').mean():.0f}",
            f"{100 * findings.about(cut, name, 'few_draws').mean():.0f}",
            f"{findings.about(cut, name, 'epochs').mean():.0f}",
            f"{findings.about(cut, name, 'seconds').mean():.0f}",
        )
        for name in findings.protocol.variants
    )
    header = (
        "",
        "log p(x), nats",
        "linear probe, %",
        f"effective draws of {findings.protocol.draws}",
        f"under {FEW_DRAWS} effective, %",
        "epochs",
        "seconds",
    )
    return TextTable(_WHOLE, header, rows)


def gallery(findings: Findings, cut: Cut) -> Drawing:
    """Some test digits of the first seed: what is given, what each variant makes of it, and the truth."""
    variants = findings.protocol.variants
    each = {name: findings.of(cut, name)[0].arrays["pictures"] for name in variants}
    given, _, true = each[variants[0]]
    rows = {"given": given, **{name: pictures[1] for name, pictures in each.items()}, "true": true}
    return Drawing(
        f"look-{cut.name}",
        f"Test digits of the first seed. Given is the first row, {cut.count // 2} of {cut.count} parts; the rest of "
        "each picture below is the decoders' mean at the posterior's mean.",
        f"Digits of which {cut.count // 2} of {cut.count} parts are given, completed by {say_list(variants)}",
        draw_rows(rows),
    )


def answer(findings: Findings, sure: Sure) -> tuple[str, ...]:
    """Who is best at what, by the mean over seeds and subset sizes, and who surely differs from the reference."""
    cuts, reference = findings.protocol.cuts, findings.reference
    said = []
    for cut in cuts:
        for measure, more_is_better in MEASURES.items():
            means = {name: findings.summary(cut, name, measure).mean() for name in findings.protocol.variants}
            ranked = sorted(means, key=lambda name: -means[name] if more_is_better else means[name])
            what = _of(cuts, cut, _CAPTIONS[measure].partition(":")[0].partition(" of the")[0])
            decimals = 3 if measure == "error" and cut.binary else 2
            first, second, ours = (Scale(1.0, decimals).number(means[name]) for name in (*ranked[:2], reference))
            said.append(
                f"{what}: best is {ranked[0]} ({first}), then {ranked[1]} ({second}); {reference} is number "
                f"{ranked.index(reference) + 1} of {len(ranked)} ({ours})."
                + _differing(findings, cut, sure[cut.name, measure])
            )
    return tuple(said)


def _differing(findings: Findings, cut: Cut, sure: Mapping[tuple[str, int], int]) -> str:
    """Which variants are significantly better or worse than the reference, however many parts are given."""
    told = []
    for way, word in ((1, "better"), (-1, "worse")):
        names = [
            name
            for name in findings.protocol.variants
            if all(sure.get((name, place)) == way for place in range(len(cut.sizes)))
        ]
        told += (
            [f"significantly {word} than it {'is' if len(names) == 1 else 'are'} {say_list(names)}"] if names else []
        )
    said = "; ".join(told)
    return f" {said[0].upper()}{said[1:]}." if said else ""


def _reading(findings: Findings, cut: Cut) -> tuple[str, ...]:
    protocol = findings.protocol
    caution = too_few_seeds(protocol.seeds, len(protocol.variants) - 1)
    judge = findings.about(cut, findings.reference, "judge").mean()
    return (
        f"Mean ± standard deviation over {say_number(protocol.seeds, 'seed')}, each with a split of its own. An arrow "
        f"marks a difference to {findings.reference} that is significant at 5 % (paired bootstrap over seeds and test "
        "samples, Holm over the variants): ↑ better, ↓ worse." + (f" {caution}" if caution else ""),
        f"The classifier that judges coherence is right on {100 * judge:.1f} % of the true digits.",
    )


def _how(findings: Findings, cut: Cut) -> str:
    one, results = findings.protocol, findings.of(cut, findings.reference)
    tested, estimated = len(results[0].arrays["index"]), len(results[0].arrays["joint"])
    devices = say_list(sorted({str(result.about["device"]) for result in findings.results.values()}))
    sizes = "" if one.most is None else f"Of {cut.data}, at most {one.most[0]} pictures to train on and {one.most[1]} "
    sizes += "" if one.most is None else "to stop by, drawn with the seed. "
    nets = "the default nets" if one.hidden is None else f"encoders of {say_list(map(str, one.hidden))} units"
    likelihood = "Bernoulli likelihoods" if cut.binary else "Gaussian likelihoods with one learned scale a part"
    return (
        f"{cut.name.capitalize()}: {sizes}{tested} test digits, likelihoods of {estimated} of them. Latent of "
        f"{one.latent} dimensions, {nets}, {likelihood}, Adam with learning rate {one.lr:g}, batches of "
        f"{one.batch_size}, at most {one.epochs} epochs, stopped after {one.patience} without a better bound on "
        f"validation data but for its worst hundredth, on {devices}. Likelihoods by importance sampling with "
        f"{one.draws} draws from refined proposals, in the units of the pixels. What is generated is the decoders' "
        "mean at the posterior's mean; every figure is the mean over all subsets of its size."
    )


def _pair(values: np.ndarray, decimals: int) -> str:
    return Scale(1.0, decimals).pair(values.mean(), spread(values))


def _of(cuts: Sequence[Cut], cut: Cut, text: str) -> str:
    """The text with whom it is of, where there are several."""
    return text if len(cuts) == 1 else f"{cut.name.capitalize()}: {text[0].lower()}{text[1:]}"
