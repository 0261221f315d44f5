"""Writes the tables of docs/defaults.md from docs/defaults.json and docs/defaults_bench.json.

    python docs/defaults_tables.py

The second file is what `benchmarks/bench_defaults.py --keep` wrote. No number in the tables is typed by hand; a test
fails where page and files disagree.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from marked_places import filled

from consilience.comparison.significance import holm, paired_bootstrap

PAGE = Path(__file__).with_name("defaults.md")
FILE = PAGE.with_suffix(".json")
BENCH = PAGE.with_name("defaults_bench.json")
CHOICES = PAGE.with_name("defaults_choices.json")
REGRESSION = PAGE.with_name("defaults_regression.json")
BLOCKS = PAGE.with_name("defaults_blocks.json")
SIZES = {"all": "all rows", "300": "300 rows", "100": "100 rows"}
OURS = ("auto", "bayes-robust", "late", "concat")
# Sets whose test rows are the same for all seeds, and the level of significance.
OFFICIAL = ("handwritten", "mvsa", "mosi", "breast-tcga-official", "utd-mhad")
LEVEL = 0.05
# Set → seed → contender → figures, of those seeds that every contender of the set has.
Figures = Mapping[str, Mapping[int, Mapping[str, Mapping[str, Any]]]]


def tables() -> dict[str, str]:
    """The tables by the name of their mark on the page."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    bench = read_bench()
    return {
        **{
            name: _table(content[name], _stopping if name == "rule" else _pair) for name in ("experts", "fused", "rule")
        },
        "refit": refits(content["refit"]),
        "similar": _plain(content["similar"]),
        "order": _plain(content["order"]),
        "loop": _plain(content["loop"]),
        "breast": _plain(content["breast"]),
        "bench": bench_by_set(bench),
        "conditions": bench_by_condition(bench),
        **{f"conditions {size}": bench_by_condition(read_bench(size)) for size in SIZES if size != "all"},
        **{f"choices {method}": choices(method) for method in ("late", "concat")},
        "blocks": blocks(),
        "regression": regression(),
        "verdicts": bench_verdicts(),
        "regret": bench_regret(),
    }


def refits(measured: Mapping[str, Mapping[str, list[float]]]) -> str:
    """Accuracy / log-loss / coverage once and refitted, by set, rows and method; the mean over seeds.

    measured: "set rows seed method" → "once" and "refit" → the three figures, as `bench_refit.py` keeps them.
    """
    grouped: dict[tuple[str, str, str], list[Mapping[str, list[float]]]] = {}
    for key, figures in measured.items():
        name, size, _, method = key.split()
        grouped.setdefault((method, name, size), []).append(figures)

    def cell(own: list[Mapping[str, list[float]]], which: str) -> str:
        accuracy, loss, coverage = (fmean(values) for values in zip(*(one[which] for one in own)))
        return f"{100 * accuracy:.1f} / {loss:.3f} / {coverage:.2f}"

    rows = [
        [*key, str(len(own)), cell(own, "once"), cell(own, "refit")]
        for key, own in sorted(grouped.items(), key=lambda item: item[0])
    ]
    every = [figures for own in grouped.values() for figures in own]
    rows.append(["mean", "", "", str(len(every)), cell(every, "once"), cell(every, "refit")])
    gains = np.array([np.subtract(one["refit"], one["once"]) for one in every]) * [100, 1, 1]
    mean, error = gains.mean(axis=0), gains.std(axis=0, ddof=1) / len(gains) ** 0.5
    forms = ("{:+.2f} ± {:.2f}", "{:+.4f} ± {:.4f}", "{:+.3f} ± {:.3f}")
    rows.append(["gain ± standard error", "", "", "", "", " / ".join(map(str.format, forms, mean, error))])
    return _lines(["method", "set", "rows", "seeds", "once", "refitted"], rows)


def blocks() -> str:
    """How sure `auto` is on its held-out blocks and on blocks that it never saw, as `bench_blocks.py` keeps it."""
    rows = []
    for key, own in json.loads(BLOCKS.read_text(encoding="utf-8")).items():
        parts = [
            f"{own[f'{part}, accuracy']:.1f} / {own[f'{part}, log-loss']:.3f}, best temperature "
            f"{own[f'{part}, best temperature']:.2f}: {own[f'{part}, log-loss at it']:.3f}"
            for part in ("held out", "judged")
        ]
        component, _, seed = key.split("|")
        rows.append([component, str(own["rows"]), seed, *parts, f"{own['class shares, log-loss']:.3f}"])
    return _lines(
        ["component", "training rows", "seed", "held-out blocks", "unseen blocks", "class shares alone"], rows
    )


def regression() -> str:
    """R² of the methods for numbers, set and condition × method, the mean over seeds that all methods have."""
    runs: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for key, figures in json.loads(REGRESSION.read_text(encoding="utf-8")).items():
        name, seed, method = key.split("|")
        runs.setdefault(name, {}).setdefault(seed, {})[method] = figures
    methods = list(dict.fromkeys(method for by_seed in runs.values() for own in by_seed.values() for method in own))
    means: dict[str, list[list[float]]] = {}
    rows = []
    for name, by_seed in runs.items():
        whole = [own for own in by_seed.values() if own.keys() == set(methods)]
        for condition in whole[0][methods[0]] if whole else ():
            values = [fmean(own[method][condition] for own in whole) for method in methods]
            means.setdefault(condition, []).append(values)
            rows.append([name, condition, str(len(whole)), *_best_in_bold(values)])
    for condition, of_sets in means.items():
        rows.append(["mean", condition, "", *_best_in_bold(list(map(fmean, zip(*of_sets))))])
    return _lines(["", "", "seeds", *methods], rows)


def _best_in_bold(values: list[float]) -> list[str]:
    shown = [f"{value:.2f}" for value in values]
    return [f"**{text}**" if value == max(values) else text for text, value in zip(shown, values)]


def read_choices(method: str) -> dict[str, dict[str, np.ndarray]]:
    """Set → variant → accuracy and log-loss, the mean over seeds that have all variants; of `bench_choices.py`."""
    runs: dict[str, dict[str, dict[str, list[float]]]] = {}
    for key, figures in json.loads(CHOICES.read_text(encoding="utf-8")).items():
        name, _, seed, own, variant = key.split("|")
        if own == method:
            runs.setdefault(name, {}).setdefault(seed, {})[variant] = figures[:2]
    variants = {variant for by_seed in runs.values() for own in by_seed.values() for variant in own}
    means = {}
    for name, by_seed in runs.items():
        whole = [own for own in by_seed.values() if variants == own.keys()]
        if whole:
            means[name] = {variant: np.mean([own[variant] for own in whole], axis=0) for variant in sorted(variants)}
    return means


def choices(method: str) -> str:
    """Each variant of a method, the lowest log-loss first, and what choosing on other sets gains."""
    means = read_choices(method)
    titles = list(next(iter(means.values())))
    table = np.array([[own[title] for title in titles] for own in means.values()])  # [set, variant, figure]
    more = table - table[:, [titles.index("default")]]
    error = more.std(axis=0, ddof=1) / len(table) ** 0.5
    rows = []
    for place in table[:, :, 1].mean(axis=0).argsort(kind="stable"):
        accuracy, loss = table[:, place].mean(axis=0)
        lower = f"{(more[:, place, 1] < 0).sum()} of {len(table)}"
        gain = "" if titles[place] == "default" else f"{more[:, place, 1].mean():+.3f} ± {error[place, 1]:.3f}"
        points = "" if titles[place] == "default" else f"{more[:, place, 0].mean():+.1f} ± {error[place, 0]:.1f}"
        rows.append([titles[place], f"{accuracy:.1f} / {loss:.3f}", points, gain, lower])
    loss_of_others = (table[:, :, 1].sum(axis=0) - table[:, :, 1]).argmin(axis=1)
    gained = more[np.arange(len(table)), loss_of_others].mean(axis=0)
    rows.append(["chosen on the other sets", "", f"{gained[0]:+.1f}", f"{gained[1]:+.3f}", ""])
    return _lines(["", "accuracy / log-loss", "points more", "log-loss more", "sets with a lower one"], rows)


def read_bench(size: str = "all") -> Figures:
    """The figures with so many training rows, of seeds that all contenders of a set have."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for name, by_size in json.loads(BENCH.read_text(encoding="utf-8"))["figures"].items():
        by_seed = {int(seed): own for seed, own in by_size.get(size, {}).items()}
        whole = {who for own in by_seed.values() for who, figures in own.items() if "error" not in figures}
        kept = {seed: own for seed, own in by_seed.items() if whole <= own.keys() and not _failed(own)}
        if kept and whole >= set(OURS):
            found[name] = kept
    return found


def bench_by_set(bench: Figures) -> str:
    """Accuracy / log-loss on clean test rows, set × contender, the mean over seeds."""
    contenders = _contenders(bench)
    rows = []
    for name, by_seed in bench.items():
        cells = [_mean_pair(by_seed, who, "clean") for who in contenders]
        rows.append([name, str(len(by_seed)), *_marked(cells)])
    rows.append(["mean", "", *_marked([_mean_over_sets(bench, who, "clean") for who in contenders])])
    return _lines(["", "seeds", *contenders], rows)


def bench_by_condition(bench: Figures) -> str:
    """The same, condition × contender, the mean over sets."""
    contenders = _contenders(bench)
    first = next(iter(next(iter(next(iter(bench.values())).values())).values()))
    rows = [
        [condition, *_marked([_mean_over_sets(bench, who, condition) for who in contenders])]
        for condition in first["accuracy"]
    ]
    return _lines(["", *contenders], rows)


def bench_verdicts() -> str:
    """How far `auto` is behind the most accurate contender of each set and size, and whether that may be chance."""
    rows = []
    for size, title in SIZES.items():
        behind, counts = [], Counter[str]()
        for name, by_seed in read_bench(size).items():
            others = [who for who in next(iter(by_seed.values())) if who != "auto"]
            tests = {who: _ahead(name, by_seed, who) for who in others}
            first = max(tests, key=lambda who: tests[who][0])
            corrected = dict(zip(tests, holm(np.array([p for _, p in tests.values()]))))
            lead = 100 * tests[first][0]
            verdict = "first" if lead <= 0 else "behind" if corrected[first] < LEVEL else "not significantly behind"
            if lead > 0 and len(by_seed) == 1:
                verdict = "one seed"
            behind.append(max(lead, 0.0))
            counts[verdict] += 1
            cells = [title, name, str(len(by_seed)), "auto" if lead <= 0 else first, f"{lead:+.2f}"]
            rows.append([*cells, "" if lead <= 0 or len(by_seed) == 1 else f"{corrected[first]:.3f}", verdict])
        if behind:
            summary = ", ".join(f"{verdict}: {count}" for verdict, count in counts.most_common())
            lost = f"{fmean(behind):.2f} in the mean, at most {max(behind):.2f}"
            rows.append([title, f"{len(behind)} sets", "", "", lost, "", summary])
    return _lines(["", "", "seeds", "most accurate", "points ahead of auto", "p", "auto is"], rows)


def _ahead(name: str, by_seed: Mapping[int, Mapping[str, Any]], who: str) -> tuple[float, float]:
    """How far a contender's share of right test rows is above that of `auto`, and p of a bootstrap."""
    differences = [_right(own[who]) - _right(own["auto"]) for own in by_seed.values()]
    same = [np.arange(len(one)) for one in differences] if name in OFFICIAL else None
    found = paired_bootstrap(differences, same)
    return found.difference, found.p


def _right(figures: Mapping[str, Any]) -> np.ndarray:
    """Which test rows a contender had right `[n]`."""
    bits = np.frombuffer(bytes.fromhex(figures["right"]), dtype=np.uint8)
    return np.unpackbits(bits, count=figures["tested"]).astype(float)


def bench_regret() -> str:
    """What the contender with the lowest log-loss on held-out training rows loses to the best one in hindsight."""
    rows, losses = [], []
    for size, words in SIZES.items():
        for name, by_seed in read_bench(size).items():
            for title, among in (("ours", OURS), ("all", tuple(next(iter(by_seed.values()))))):
                judged = {
                    seed: own for seed, own in by_seed.items() if all("validation" in own.get(who, {}) for who in among)
                }
                if not judged:
                    continue
                held_out = {who: fmean(own[who]["validation"] for own in judged.values()) for who in among}
                chosen = min(held_out, key=held_out.__getitem__)
                pairs = {who: _mean_pair(judged, who, "clean") for who in among}
                best = max(pair[0] for pair in pairs.values()), min(pair[1] for pair in pairs.values())
                lost = best[0] - pairs[chosen][0], pairs[chosen][1] - best[1]
                losses.append((words, title, *lost))
                rows.append([words, name, str(len(judged)), title, chosen, f"{lost[0]:.2f}", f"{lost[1]:.3f}"])
    for words, title in product(SIZES.values(), ("ours", "all")):
        own = [lost[2:] for lost in losses if lost[:2] == (words, title)]
        if own:
            points, logs = zip(*own)
            mean = f"{fmean(points):.2f}, at most {max(points):.2f}", f"{fmean(logs):.3f}, at most {max(logs):.3f}"
            rows.append([words, f"{len(own)} sets", "", title, "", *mean])
    return _lines(["", "", "seeds", "among", "chosen", "points lost", "log-loss lost"], rows)


def _failed(by_contender: Mapping[str, Any]) -> bool:
    return any("error" in figures for figures in by_contender.values())


def _contenders(bench: Figures) -> list[str]:
    """Ours, then the rivals that take part in every set."""
    everywhere = set.intersection(*(set(own) for by_seed in bench.values() for own in by_seed.values()))
    return [who for who in OURS if who in everywhere] + sorted(everywhere - set(OURS))


def _mean_pair(by_seed: Mapping[int, Mapping[str, Any]], who: str, condition: str) -> tuple[float, float]:
    own = [by_contender[who] for by_contender in by_seed.values()]
    return fmean(one["accuracy"][condition] for one in own), fmean(one["log_loss"][condition] for one in own)


def _mean_over_sets(bench: Figures, who: str, condition: str) -> tuple[float, float]:
    pairs = [_mean_pair(by_seed, who, condition) for by_seed in bench.values()]
    return fmean(pair[0] for pair in pairs), fmean(pair[1] for pair in pairs)


def _marked(pairs: list[tuple[float, float]]) -> list[str]:
    """Accuracy / log-loss, the best of each in bold."""
    best, lowest = max(round(pair[0], 1) for pair in pairs), min(round(pair[1], 3) for pair in pairs)

    def mark(text: str, first: bool) -> str:
        return f"**{text}**" if first else text

    return [f"{mark(f'{a:.1f}', round(a, 1) == best)} / {mark(f'{b:.3f}', round(b, 3) == lowest)}" for a, b in pairs]


def _plain(table: Mapping[str, Any]) -> str:
    """A stored table of strings: `head` and `rows`."""
    return _lines(table["head"], table["rows"])


def _lines(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def _table(by_size: dict[str, dict[str, list[float]]], show: object) -> str:
    names = list(dict.fromkeys(name for figures in by_size.values() for name in figures))
    rows = [
        [name, *(show(by_size[size][name]) if name in by_size[size] else "–" for size in SIZES)]  # type: ignore[operator]
        for name in names
    ]
    return _lines(["", *SIZES.values()], rows)


def _pair(values: list[float]) -> str:
    return f"{values[0]:.1f} / {values[1]:.3f}"


def _stopping(values: list[float]) -> str:
    return f"{_pair(values[:2])} → {_pair(values[2:])}"


def page() -> str:
    """The whole page with the tables as they should be."""
    return filled(PAGE, tables())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
