"""The page of fusion-or-confusion: which methods beat tuned unimodal models, which do not, and their ranks."""

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import stats

from consilience.comparison.ranks import standings
from consilience.comparison.results import CLEAN, EVERYTHING
from consilience.comparison.significance import holm
from consilience.report.document import Document, Section, TextTable
from consilience.report.drawing import looks_of
from consilience.report.rank_diagram import draw_ranks
from consilience.report.wording import Scale, capital, say_list, say_number, say_p, say_versions

PERCENT, THOUSANDTHS = Scale(100.0, 1), Scale()
ALPHA = 0.05
WHERE = {CLEAN: "on clean rows", EVERYTHING: "over all corruptions"}


@dataclass(frozen=True)
class Findings:
    """Mean accuracies over seeds: set → condition → method → accuracy; and what failed."""

    scores: dict
    losses: dict
    seeds: dict
    failed: dict
    methods: list
    conditions: list

    @classmethod
    def of(cls, settings, same_set, found):
        """Of the sets on which every method has the same seeds; methods that failed anywhere have no rank."""
        methods = settings["methods"]
        failed, values = {}, {"accuracy": {}, "log-loss": {}}
        seeds = {}
        for name in settings["sets"]:
            there = [seed for seed in range(settings["seeds"]) if all((name, m, seed) in found for m in methods)]
            if not there:
                continue
            seeds[name] = len(there)
            for method in methods:
                results = [found[name, method, seed] for seed in there]
                if errors := [result.about["error"] for result in results if result.failed]:
                    failed.setdefault(method, {})[name] = errors[0]
                    continue
                for metric, kept in values.items():
                    for condition in settings["conditions"]:
                        mean = np.mean([result.about["scores"][metric][condition] for result in results])
                        kept.setdefault(name, {}).setdefault(condition, {})[method] = float(mean)
        ranked = [method for method in methods if method not in failed]
        scores, losses = (_by_set(kept, same_set, ranked, settings["conditions"]) for kept in values.values())
        return cls(scores, losses, seeds, failed, ranked, settings["conditions"])

    def means(self, method, label=EVERYTHING, losses=False):
        """A method's score on each set."""
        return np.array([scores[label][method] for scores in (self.losses if losses else self.scores).values()])


def _by_set(values, same_set, methods, conditions):
    """Tasks of one set become one, by their mean; the mean over what is not clean is added as `EVERYTHING`."""
    tasks = {}
    for name, scores in values.items():
        tasks.setdefault(same_set.get(name, name), []).append(scores)
    merged = {
        name: {
            label: {m: float(np.mean([task[label][m] for task in several])) for m in methods} for label in conditions
        }
        for name, several in tasks.items()
    }
    for scores in merged.values():
        spoilt = [scores[label] for label in conditions if label != CLEAN]
        scores[EVERYTHING] = {method: float(np.mean([values[method] for values in spoilt])) for method in methods}
    return merged


@dataclass(frozen=True)
class Test:
    """A method against a reference over sets: mean difference, sets won, p of Wilcoxon's test, corrected."""

    method: str
    difference: float
    won: int
    sets: int
    p: float


def against(findings, reference, label=EVERYTHING, losses=False):
    """Every other method against one, the best first. Of losses, a positive difference is a lower loss."""
    others = [method for method in findings.methods if method != reference]
    base, sign = findings.means(reference, label, losses), -1 if losses else 1
    gains = {method: sign * (findings.means(method, label, losses) - base) for method in others}
    p = [stats.wilcoxon(gain).pvalue if np.any(gain) else 1.0 for gain in gains.values()]
    tests = [
        Test(method, float(gain.mean()), int((gain > 0).sum()), len(gain), float(value))
        for (method, gain), value in zip(gains.items(), holm(np.array(p)))
    ]
    return sorted(tests, key=lambda test: -test.difference)


def smallest_reachable(sets, methods):
    """The smallest corrected p that so many sets allow: all of them won, against so many methods."""
    return min(1.0, methods * 2 * 0.5**sets)


def describe(title, paper, study, settings, found, command, plan):
    findings = Findings.of(settings, study["same_set"], found)
    ranked = standings(findings.scores, larger_is_better=True)
    sections = [comparison_section(findings, study["reference"], study), *rank_sections(ranked)]
    sections += [comparison_section(findings, study["second"], study), sets_section(findings), failed_section(findings)]
    sections.append(Section("method", "How it was measured", how(findings, settings, study, found, plan)))
    kept = tuple(section for section in sections if section.words or section.tables or section.figures)
    return Document(title, answer(findings, study, ranked), kept, command=command, paper=paper)


def answer(findings, study, ranked):
    """What is worth having and what does not beat the references, each with its p."""
    sentences, sets = [], say_number(len(findings.scores), "set")
    for reference, label in product((study["reference"], study["second"]), (CLEAN, EVERYTHING)):
        tests = against(findings, reference, label)
        where = WHERE[label]
        better = [test for test in tests if test.difference > 0 and test.p <= ALPHA]
        worse = [test for test in tests if test.difference < 0 and test.p <= ALPHA]
        undecided = [test for test in tests if test not in better and test not in worse]
        if better:
            sentences.append(f"Better than tuned `{reference}` {where} ({sets}): {_say(better)}.")
        else:
            sentences.append(f"No method is significantly better than tuned `{reference}` {where} ({sets}).")
        if worse:
            sentences.append(f"Worse than tuned `{reference}` {where}: {_say(worse)}.")
        if undecided and (better or worse):
            names = say_list(f"`{test.method}`" for test in undecided)
            sentences.append(f"Not shown to differ from it: {names}.")
    least = smallest_reachable(len(findings.scores), len(findings.methods) - 1)
    if least > ALPHA:
        sentences.append(
            f"{sets} are too few for any difference to be significant among so many methods: the smallest corrected p "
            f"is {least:.2f}."
        )
    for standing in ranked[:2]:
        names = say_list(f"`{m}` ({rank:.1f})" for m, rank in zip(standing.methods[:3], standing.ranks[:3]))
        where = capital(WHERE[standing.label])
        sentences.append(f"{where}, the best mean ranks are those of {names} among {len(standing.methods)} methods.")
    return tuple(sentences)


def _say(tests):
    """Methods with their differences in percentage points and their p."""
    return say_list(f"`{test.method}` ({PERCENT.signed(test.difference)}, {say_p(test.p)})" for test in tests)


def comparison_section(findings, reference, study):
    """Every method against one reference, clean and corrupted, by accuracy and log-loss."""
    spoilt = [label for label in findings.conditions if label != CLEAN]
    tests = {
        label: {test.method: test for test in against(findings, reference, label)}
        for label in (CLEAN, EVERYTHING, *spoilt)
    }
    losses = {test.method: test for test in against(findings, reference, CLEAN, losses=True)}
    rows = []
    for method, clean in tests[CLEAN].items():
        hit, loss = tests[EVERYTHING][method], losses[method]
        rows.append(
            (
                method,
                *(cell for test in (clean, hit) for cell in _cells(test)),
                *(PERCENT.signed(tests[label][method].difference) for label in spoilt),
                THOUSANDTHS.signed(loss.difference),
                say_p(loss.p),
            )
        )
    header = ("method", "clean", "won", "p", "corrupted", "won", "p", *spoilt, "log-loss, clean", "p")
    caption = f"Accuracy gained over `{reference}`, percentage points, and how much lower the log-loss is, over sets"
    name = "unimodal" if reference == study["reference"] else reference
    words = ("p is Wilcoxon's over sets, corrected by Holm over the methods of its column.",)
    return Section(f"against-{name}", f"Against tuned {reference}", words, (TextTable(caption, header, tuple(rows)),))


def _cells(test):
    return PERCENT.signed(test.difference), f"{test.won} of {test.sets}", say_p(test.p)


def rank_sections(ranked):
    """Critical-difference diagrams: all corruptions, clean, and each corruption."""
    if not ranked:
        return []
    looks = looks_of(list(ranked[0].methods))
    main = Section(
        "ranks",
        "Mean ranks",
        ("Methods under one bar do not differ significantly by Nemenyi's test.",),
        (ranks_table(ranked),),
        (draw_ranks(ranked[0], "ranks", looks),),
    )
    small = tuple(draw_ranks(one, f"ranks-{place}", looks, small=True) for place, one in enumerate(ranked[1:]))
    return [main, Section("conditions", "Mean ranks by condition", figures=small)]


def ranks_table(ranked):
    """Mean ranks of every method, over all corruptions, clean and under each corruption."""
    places = [dict(zip(one.methods, one.ranks)) for one in ranked]
    rows = tuple((method, *(f"{place[method]:.1f}" for place in places)) for method in ranked[0].methods)
    header = ("method", *(one.label for one in ranked))
    return TextTable(f"Mean ranks over {say_number(ranked[0].sets, 'set')}, 1 is best", header, rows)


def sets_section(findings):
    """Accuracy of every method on every set."""
    tables = []
    for label in (CLEAN, EVERYTHING):
        order = sorted(findings.methods, key=lambda method: -findings.means(method, label).mean())
        rows = tuple(
            (method, *(PERCENT.number(scores[label][method]) for scores in findings.scores.values()))
            for method in order
        )
        tables.append(TextTable(f"Accuracy, %, {WHERE[label]}", ("method", *findings.scores), rows))
    return Section("sets", "On each set", tables=tuple(tables))


def failed_section(findings):
    words = tuple(
        f"`{method}` has no rank: it failed on {say_list(where)}, the first time with: {next(iter(where.values()))}"
        for method, where in findings.failed.items()
    )
    return Section("failed", "Without a rank", words)


def how(findings, settings, study, found, plan):
    counts = sorted(set(findings.seeds.values()))
    seeds = say_number(counts[0], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds by set"
    numbers = {
        "trials": settings["trials"],
        "low": f"{settings['lr'][0]:g}",
        "high": f"{settings['lr'][1]:g}",
        "untuned": say_list(f"`{method}`" for method in settings["untuned"]),
        "reference": study["reference"],
        "second": study["second"],
        "seeds": seeds,
        "devices": "CPU, one thread for each fit",
        "training": ", ".join(f"{name} = {value}" for name, value in settings["training"].items()),
    }
    versions = (plan or {}).get("versions")
    words = [sentence.format(**numbers) for sentence in study["how"]]
    return (*words, *study["notes"], *([say_versions(versions)] if versions else []))
