"""The page of progressive-fair: gains of the loop and of its controls over the base models, by degree of dependence."""

from dataclasses import dataclass
from itertools import product

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from consilience.comparison.significance import holm
from consilience.report.document import Document, Section, TextTable
from consilience.report.drawing import INK, Drawing, drawing_style, looks_of
from consilience.report.wording import Scale, say_count, say_level, say_list, say_number, say_p, say_versions

POINTS = Scale(100.0, 2)
CONDITIONS = {"clean": "clean test pairs", "noise": "noisy test pairs"}
LOOP = "pro"


@dataclass(frozen=True)
class Gain:
    """A mean over models or seeds with its 95 % interval (Student's t) and p; one alone has neither."""

    mean: float
    low: float
    high: float
    p: float

    @classmethod
    def of(cls, values):
        values = np.asarray(values, dtype=float)
        if len(values) < 2 or not values.std():
            return cls(values.mean(), np.nan, np.nan, np.nan)
        half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
        return cls(values.mean(), values.mean() - half, values.mean() + half, stats.ttest_1samp(values, 0).pvalue)

    def say(self):
        interval = "" if np.isnan(self.low) else f" ({POINTS.number(self.low)} … {POINTS.number(self.high)})"
        return f"{POINTS.signed(self.mean)}{interval}"


@dataclass(frozen=True)
class Findings:
    """Accuracies on test pairs: (base, variant, condition) → `[dependence, seed]`; seeds are the same for all."""

    bases: list
    variants: list
    degrees: list
    accuracy: dict
    chosen: dict
    losses: dict
    devices: set

    @classmethod
    def of(cls, settings, found):
        """Of the bases that have every variant; with the seeds that all of these have."""
        variants = settings["variants"]
        bases = [base for base in settings["bases"] if all((base, variant) in found for variant in variants)]
        blocks = min((len(found[base, variant][1]) for base in bases for variant in variants), default=0)
        accuracy, chosen, losses, devices = {}, {}, {}, set()
        for base in bases:
            for variant in variants:
                trials, finals = found[base, variant]
                losses[base, variant], chosen[base, variant] = trials.arrays["losses"], finals[0].about["chosen"]
                devices |= {final.about["device"] for final in finals}
                for condition in CONDITIONS:
                    parts = [final.arrays[f"accuracy/{condition}"] for final in finals[:blocks]]
                    accuracy[base, variant, condition] = np.concatenate(parts, axis=1)
        return cls(bases, variants, settings["dependence"], accuracy, chosen, losses, devices)

    @property
    def seeds(self):
        return next(iter(self.accuracy.values())).shape[1]

    def gains(self, base, variant, condition, degree, over="base"):
        """What a variant of a base model gains over another: `[seed]`."""
        place = self.degrees.index(degree)
        return self.accuracy[base, variant, condition][place] - self.accuracy[base, over, condition][place]

    def together(self, variant, condition, degree, over="base"):
        """The gain over all base models. Each has a choice of settings of its own, so they are what it is tested over.

        Seeds share that choice: an interval over seeds would leave its chance out.
        """
        return Gain.of([self.gains(base, variant, condition, degree, over).mean() for base in self.bases])


def describe(title, paper, study, settings, found, synthetic, command, plan):
    findings = Findings.of(settings, found)
    words = {name: label for name, label in study["words"].items() if name in findings.variants}
    study = study | {"words": words}
    sections = (
        Section(
            "when",
            "When does a loop help?",
            (study["reading"],),
            (pooled_table(findings, words),),
            (figure(panels_of(findings, synthetic, settings, words), words),),
        ),
        *(model_section(findings, condition, study) for condition in CONDITIONS),
        Section("chosen", "What was chosen", (study["choosing"],), (chosen_table(findings, study),)),
        Section("method", "How it was measured", how(findings, settings, study, plan)),
    )
    sections = (*sections[:1], *synthetic_sections(synthetic, settings, study), *sections[1:])
    sentences = (*answer(findings, study), *answer_synthetic(synthetic, settings))
    return Document(title, sentences, sections, command=command, paper=paper)


def relative_gains(synthetic, variant, place):
    """How much smaller a variant's error on the synthetic regression is, as a share of the base's: `[draw]`."""
    errors, base = (synthetic[name].arrays["errors"][place] for name in (variant, "base"))
    return 1 - errors / base


def answer_synthetic(synthetic, settings):
    """The loop's gain on the synthetic regression at each dependence, in a sentence."""
    if not synthetic:
        return ()
    told = []
    for place, degree in enumerate(settings["synthetic"]["dependence"]):
        gain = Gain.of(relative_gains(synthetic, LOOP, place))
        won = int((relative_gains(synthetic, LOOP, place) > 0).sum())
        counted = f"{won} of {settings['synthetic']['draws']} draws"
        told.append(f"{gain.say().removeprefix('+')} % at dependence {say_level(degree)} ({counted})")
    return (f"On the synthetic regression, where a loop is known to help, it lowers the error by {say_list(told)}.",)


def synthetic_sections(synthetic, settings, study):
    """Gains on the synthetic regression: the same variants and budgets, where the loop is known to help."""
    if not synthetic:
        return ()
    words = {name: label for name, label in study["words"].items() if name in synthetic}
    degrees, rows = settings["synthetic"]["dependence"], []
    for place, degree in enumerate(degrees):
        gains = [Gain.of(relative_gains(synthetic, name, place)) for name in words]
        error = synthetic["base"].arrays["errors"][place].mean()
        rows.append((say_level(degree), f"{error:.3f}", *(gain.say() for gain in gains)))
    caption = "Mean squared error saved, % of the late net's; intervals over draws"
    table = TextTable(caption, ("dependence", "error, late net", *words.values()), tuple(rows))
    options = {name: value for name, value in settings["synthetic"].items() if name not in ("forms", "dependence")}
    told = study["synthetic"].format(**options)
    return (Section("synthetic", "Where the loop is known to help", (told,), (table,)),)


def answer(findings, study):
    """Where a loop helps and where that is excluded, then one sentence for each condition and degree."""
    sentences, helps, excluded = [], {}, {}
    for condition, degree in product(CONDITIONS, findings.degrees):
        loop = findings.together(LOOP, condition, degree)
        controls = {
            name: findings.together(LOOP, condition, degree, over=name)
            for name in findings.variants
            if name not in ("base", LOOP)
        }
        if loop.low > 0 and all(gain.low > 0 for gain in controls.values()):
            helps.setdefault(condition, []).append(degree)
        if loop.high < study["smallest"] / 100:
            excluded.setdefault(condition, []).append(degree)
        beyond = [f"{gain.say()} over {study['words'][name]}" for name, gain in controls.items()]
        over = say_list([f"{loop.say()} percentage points over the base models, {say_p(loop.p)}", *beyond])
        sentences.append(f"Dependence {say_level(degree)}, {CONDITIONS[condition]}: the loop gains {over}.")
    if helps:
        verdict = f"On AV-MNIST a loop helps, beyond its controls, {_say_where(helps)}"
    else:
        verdict = "A gain of the loop over the base models and both controls is found nowhere on AV-MNIST"
    smallest = f"{study['smallest']:g} percentage points"
    where = _say_where(excluded) if excluded else "nowhere"
    count = f"{say_number(len(findings.bases), 'model')}, {say_number(findings.seeds, 'seed')} of each"
    return (
        f"{verdict} ({count}; 95 % intervals over models).",
        f"A gain over the base models of {smallest}, the smallest that would matter, is excluded {where}.",
        *sentences,
    )


def _say_where(found):
    """Conditions with their degrees.

    >>> _say_where({"clean": [0.0, 1.0]})
    'on clean test pairs at dependence 0 and 1'
    """
    return say_list(
        f"on {CONDITIONS[condition]} at dependence {say_list(map(say_level, degrees))}"
        for condition, degrees in found.items()
    )


def pooled_table(findings, words):
    rows = []
    for condition in CONDITIONS:
        for degree in findings.degrees:
            gains = [findings.together(name, condition, degree) for name in words]
            base = np.mean(
                [findings.accuracy[base, "base", condition][findings.degrees.index(degree)] for base in findings.bases]
            )
            rows.append((condition, say_level(degree), POINTS.number(base), *(gain.say() for gain in gains)))
    header = ("test pairs", "dependence", "base models, %", *words.values())
    return TextTable(
        "Accuracy gained over the base models, percentage points, all models together", header, tuple(rows)
    )


def model_section(findings, condition, study):
    rows, p = [], []
    for base in findings.bases:
        for degree in findings.degrees:
            gains = [Gain.of(findings.gains(base, name, condition, degree)) for name in study["words"]]
            values = findings.accuracy[base, "base", condition][findings.degrees.index(degree)]
            p.append(gains[0].p)
            rows.append([study["names"][base], say_level(degree), POINTS.over_seeds(values), *(g.say() for g in gains)])
    known = np.isfinite(p)
    corrected = np.full(len(p), np.nan)
    corrected[known] = holm(np.array(p)[known])
    rows = [(*row, say_p(value) if np.isfinite(value) else "–") for row, value in zip(rows, corrected)]
    header = ("model", "dependence", "base, %", *study["words"].values(), "p of the loop, corrected")
    caption = f"Accuracy gained over the base model on {CONDITIONS[condition]}, percentage points; intervals over seeds"
    return Section(
        f"models-{condition}", f"Each model: {CONDITIONS[condition]}", (), (TextTable(caption, header, tuple(rows)),)
    )


def chosen_table(findings, study):
    rows = []
    for (base, variant), chosen in findings.chosen.items():
        for degree, trial in zip(findings.degrees, chosen):
            form = trial["form"]
            place = f"{form['into'] or 'input'}, {form['mode']}, R = {form['steps']}" if form else "–"
            rows.append(
                (
                    study["names"][base],
                    study["words"].get(variant, "base"),
                    say_level(degree),
                    f"{trial['lr']:.1e}",
                    f"{trial['weight_decay']:.0e}",
                    place,
                    say_count(trial["parameters"]),
                )
            )
    header = ("model", "variant", "dependence", "learning rate", "weight decay", "loop", "parameters")
    return TextTable("The trial with the lowest validation loss", header, tuple(rows))


def panels_of(findings, synthetic, settings, words):
    """What the figure shows: title, label of the y-axis, degrees, and variant → a gain for each degree."""
    panels = []
    for condition, title in CONDITIONS.items():
        gains = {name: [findings.together(name, condition, degree) for degree in findings.degrees] for name in words}
        panels.append((f"AV-MNIST, {title}", "accuracy gained, points", findings.degrees, gains))
    if synthetic:
        degrees = settings["synthetic"]["dependence"]
        gains = {
            name: [Gain.of(relative_gains(synthetic, name, place)) for place in range(len(degrees))] for name in words
        }
        panels.append(("synthetic regression", "error saved, %", degrees, gains))
    return panels


def figure(panels, words):
    """Gains against dependence, one panel for each condition."""
    looks, alt = looks_of(list(words)), []
    with drawing_style():
        drawn = Figure(figsize=(3.2 * len(panels) + 0.4, 3.1), facecolor="none")
        for axes, (title, label, degrees, gains) in zip(drawn.subplots(1, len(panels)), panels):
            axes.patch.set_visible(False)
            for number, (name, of_variant) in enumerate(gains.items()):
                means = [100 * gain.mean for gain in of_variant]
                half = np.nan_to_num([100 * (gain.high - gain.mean) for gain in of_variant])
                shifted = [degree + 0.012 * (number - 1) for degree in degrees]
                look = {"color": looks[name].colour, "marker": looks[name].marker, "label": words[name]}
                axes.errorbar(shifted, means, half, **look, linewidth=1.4, capsize=2)
                alt.append(f"{title}, {words[name]}: {', '.join(POINTS.signed(gain.mean) for gain in of_variant)}")
            axes.axhline(0, color=INK, linewidth=0.8, alpha=0.7)
            axes.set_title(title, loc="left")
            axes.set_xticks(degrees, [say_level(degree) for degree in degrees])
            axes.set_xlabel("dependence of the modalities")
            axes.set_ylabel(label)
            axes.grid(axis="y")
        axes.legend(frameon=False, fontsize=8)
        drawn.tight_layout()
    caption = (
        "What the loop and its two controls gain over the base models, against the dependence between the modalities. "
        "Bars: 95 % intervals, over models for AV-MNIST and over draws for the synthetic regression."
    )
    return Drawing("gain-dependence", caption, "; ".join(alt), drawn)


def how(findings, settings, study, plan):
    build = ", ".join(f"{name} = {value}" for name, value in settings["build"].items())
    numbers = {
        **{name: settings[name] for name in ("trials", "forms", "epochs", "batch_size", "noise", "test_noise")},
        "pairs": settings["steps"] * settings["batch_size"],
        "each": settings["trials"] // settings["forms"],
        "side": settings["build"]["side"],
        "build": build,
        "seeds": say_number(findings.seeds, "seed"),
        "devices": say_list(sorted(findings.devices)),
        "low": f"{settings['lr'][0]:g}",
        "high": f"{settings['lr'][1]:g}",
        "least": f"{settings['weight_decay'][0]:g}",
        "most": f"{settings['weight_decay'][1]:g}",
    }
    versions = (plan or {}).get("versions")
    words = [*study["how"], *study["limits"]]
    return (*(sentence.format(**numbers) for sentence in words), *([say_versions(versions)] if versions else []))
