"""The tables of `bench_defaults.py`, from the figures of its jobs (set, size, seed, contender)."""

import numpy as np
from default_contenders import RIVALS
from default_sets import ALL, CONDITIONS, OFFICIAL, SETS
from scipy import stats

from consilience.comparison.significance import holm, paired_bootstrap

LEVEL = 0.05
LEGEND = f"""
About the verdicts on clean accuracy. First is the contender with the highest mean; its lead is over the judged one, or
that of the best other contender where the judged one is first. Regret is how far the judged one is behind the first,
among all contenders and among methods of this library. The interval and p are Student's for the differences, paired
over seeds; "behind" means p < {LEVEL} after Holm's correction over all other contenders, "behind without Holm" only
before it. Seeds of a set with an official test part share its samples, which Student's test does not know: "p, rows
too" is of a bootstrap over seeds and test samples. A mean in brackets is over fewer sets than the others."""


def show(found, judged, markdown):
    """Print everything; jobs that failed are named at the end."""
    failed = {job: figures["error"] for job, figures in found.items() if "error" in figures}
    found = {job: figures for job, figures in found.items() if job not in failed}
    contenders = _in_order(
        {job[3] for job in found}, [judged, *sorted(job[3] for job in found if job[3] not in RIVALS)]
    )
    for size in _in_order({job[1] for job in found}, [ALL]):
        of_size = {(name, seed, who): figures for (name, own, seed, who), figures in found.items() if own == size}
        sets = [name for name in SETS if any(job[0] == name for job in of_size)]
        rows = "all training rows" if size == ALL else f"{size} training rows"
        for condition in CONDITIONS:
            title = f"Accuracy in per cent, {condition}, {rows} (mean ± standard error over seeds)"
            _print(title, *by_set(of_size, sets, contenders, "accuracy", condition, "{:.1f}"), markdown)
        title = f"Log-loss, clean, {rows} (mean ± standard error over seeds)"
        _print(title, *by_set(of_size, sets, contenders, "log_loss", "clean", "{:.3f}"), markdown)
        for key, what, form in (("accuracy", "Accuracy in per cent", "{:.1f}"), ("log_loss", "Log-loss", "{:.3f}")):
            title = f"{what}, mean over {len(sets)} sets, {rows}"
            _print(title, *means(of_size, sets, contenders, key, form), markdown)
        if judged in contenders:
            _print(f"{judged}, clean accuracy, {rows}", *verdicts(of_size, sets, contenders, judged), markdown)
        if any("validation" in figures for figures in of_size.values()):
            _print(
                f"Chosen by log-loss on held-out training rows, {rows}", *choices(of_size, sets, contenders), markdown
            )
        _print(f"Seconds of training, {rows}", *by_set(of_size, sets, contenders, "seconds", None, "{:.1f}"), markdown)
    print(LEGEND)
    for job, error in failed.items():
        print(f"failed: {' '.join(map(str, job))}: {error}")


def series(found, name, who, key, condition):
    """Seed → figure of one contender on one set."""
    own = {seed: figures for (a, seed, b), figures in found.items() if (a, b) == (name, who)}
    return {seed: own[seed][key] if condition is None else own[seed][key][condition] for seed in sorted(own)}


def by_set(found, sets, contenders, key, condition, form):
    """A head and rows: set × contender, and the mean over sets."""
    rows, all_means = [], {who: [] for who in contenders}
    for name in sets:
        values = {who: list(series(found, name, who, key, condition).values()) for who in contenders}
        most = max(map(len, values.values()))
        average = {who: np.mean(own) for who, own in values.items() if own}
        best = _best(average, key)
        cells = []
        for who, own in values.items():
            if not own:
                cells.append("–")
                continue
            all_means[who].append(average[who])
            spread = f" ± {form.format(np.std(own, ddof=1) / len(own) ** 0.5)}" if len(own) > 1 else ""
            fewer = f" ({len(own)} of {most} seeds)" if len(own) < most else ""
            cells.append(_mark(form.format(average[who]) + spread + fewer, who in best))
        rows.append([name, *cells])
    rows.append(["mean", *_mean_cells(all_means, len(sets), key, form)])
    return ["", *contenders], rows


def means(found, sets, contenders, key, form):
    """A head and rows: condition × contender."""
    rows = []
    for condition in CONDITIONS:
        of = {}
        for who in contenders:
            values = [list(series(found, name, who, key, condition).values()) for name in sets]
            of[who] = [np.mean(own) for own in values if own]
        rows.append([condition, *_mean_cells(of, len(sets), key, form)])
    return ["", *contenders], rows


def _mean_cells(values, count, key, form):
    """Means over sets; one over fewer sets is marked by their number and is never the best."""
    complete = {who: np.mean(own) for who, own in values.items() if len(own) == count}
    best = _best(complete, key)
    return [
        _mark(form.format(np.mean(own)), who in best)
        if who in complete
        else f"({form.format(np.mean(own))} of {len(own)})"
        if own
        else "–"
        for who, own in values.items()
    ]


def verdicts(found, sets, contenders, judged):
    """A head and rows: who is first, how far the judged contender is behind, and whether that may be chance."""
    head = ["", "first", "its lead", judged, "regret", "regret among ours", "95 % interval"]
    head += ["p", "p, Holm", "p, rows too", "verdict"]
    rows, regrets, ours, counts = [], [], [], [0, 0, 0]
    for name in sets:
        values = {who: series(found, name, who, "accuracy", "clean") for who in contenders}
        own = values.pop(judged)
        leads = {who: lead(other, own) for who, other in values.items() if set(other) & set(own)}
        if not leads:
            continue
        first = max(leads, key=leads.get)
        regret = max(0.0, leads[first])
        own_regret = max([0.0, *(ahead for who, ahead in leads.items() if who not in RIVALS)])
        regrets.append(regret)
        ours.append(own_regret)
        cells = [f"{leads[first]:+.2f}", f"{np.mean(list(own.values())):.2f}", f"{regret:.2f}", f"{own_regret:.2f}"]
        if not regret:
            counts[0] += 1
            rows.append([name, judged, *cells, "", "", "", "", "first"])
            continue
        tests = {who: paired(values[who], own) for who in leads}
        corrected = dict(zip(tests, holm(np.array([p for *_, p in tests.values()]))))
        low, high, p = tests[first]
        with_rows = over_rows(found, name, first, judged)
        counts[1] += p < LEVEL
        counts[2] += corrected[first] < LEVEL
        verdict = "behind" if corrected[first] < LEVEL else "behind without Holm" if p < LEVEL else "not behind"
        shown = [f"{low:.2f} … {high:.2f}", *(_p(one) for one in (p, corrected[first], with_rows))]
        rows.append([name, first, *cells, *shown, verdict if np.isfinite(p) else "one seed"])
    summary = f"first on {counts[0]}, behind on {counts[1]}, {counts[2]} with Holm"
    if regrets:
        top = [f"{np.mean(regrets):.2f}, most {max(regrets):.2f}", f"{np.mean(ours):.2f}, most {max(ours):.2f}"]
        rows.append([f"{len(regrets)} sets", "", "", "", *top, "", "", "", "", summary])
    return head, rows


def choices(found, sets, contenders):
    """A head and rows: the contender with the lowest mean held-out log-loss, and its regret against hindsight."""
    rows, regrets = [], []
    for name in sets:
        judged = {
            who: {
                seed: of["validation"]
                for (a, seed, b), of in found.items()
                if (a, b) == (name, who) and "validation" in of
            }
            for who in contenders
        }
        judged = {who: values for who, values in judged.items() if values}
        seeds = set.intersection(*(set(values) for values in judged.values())) if judged else set()
        if len(judged) < 2 or not seeds:
            continue
        held_out = {who: np.mean([values[seed] for seed in seeds]) for who, values in judged.items()}
        chosen = min(held_out, key=held_out.get)
        cells, regret = [], []
        for key, sign in (("accuracy", 1), ("log_loss", -1)):
            mean = {
                who: sign * np.mean([series(found, name, who, key, "clean")[seed] for seed in seeds]) for who in judged
            }
            best = max(mean, key=mean.get)
            regret.append(mean[best] - mean[chosen])
            cells += [best, f"{regret[-1]:.2f}" if sign > 0 else f"{regret[-1]:.3f}"]
        regrets.append(regret)
        rows.append([name, chosen, *cells, str(len(seeds))])
    if regrets:
        mean, most = np.mean(regrets, axis=0), np.max(regrets, axis=0)
        shown = [f"{mean[0]:.2f}, most {most[0]:.2f}", f"{mean[1]:.3f}, most {most[1]:.3f}"]
        rows.append([f"{len(regrets)} sets", "", "", shown[0], "", shown[1], ""])
    return ["", "chosen", "most accurate", "regret, points", "lowest log-loss", "regret, log-loss", "seeds"], rows


def lead(other, judged):
    """How far another contender is ahead of the judged one, the mean over the seeds that both have."""
    return float(np.mean([other[seed] - judged[seed] for seed in other if seed in judged]))


def paired(better, judged):
    """Student's 95 % interval of the mean difference over common seeds, and the two-sided p."""
    difference = np.array([better[seed] - judged[seed] for seed in better if seed in judged])
    if len(difference) < 2:
        return np.nan, np.nan, np.nan
    mean, error = difference.mean(), difference.std(ddof=1) / len(difference) ** 0.5
    half = stats.t.ppf(1 - LEVEL / 2, len(difference) - 1) * error
    if error == 0:  # contenders without randomness of their own, on an official test part
        return mean, mean, float(mean == 0)
    return mean - half, mean + half, float(2 * stats.t.sf(abs(mean / error), len(difference) - 1))


def over_rows(found, name, better, judged):
    """p of a bootstrap over seeds and test rows; rows of the same place are one sample where the test part is fixed."""
    right = [
        {
            seed: (figures["right"], figures["tested"])
            for (a, seed, b), figures in found.items()
            if (a, b) == (name, who)
        }
        for who in (better, judged)
    ]
    common = sorted(set(right[0]) & set(right[1]))
    differences = [_bits(*right[0][seed]) - _bits(*right[1][seed]) for seed in common]
    if len(common) < 2:
        return np.nan
    same = name in OFFICIAL
    return paired_bootstrap(differences, [np.arange(len(one)) for one in differences] if same else None).p


def _bits(text, count):
    return np.unpackbits(np.frombuffer(bytes.fromhex(text), dtype=np.uint8), count=count).astype(float)


def _best(average, key):
    """The names with the best mean, larger accuracies and smaller losses being better."""
    if not average or key == "seconds":
        return ()
    top = (max if key == "accuracy" else min)(average.values())
    return tuple(who for who, value in average.items() if value == top)


def _mark(text, best):
    return f"**{text}**" if best else text


def _p(p):
    return "–" if not np.isfinite(p) else "<.001" if p < 0.001 else f"{p:.3f}"


def _in_order(found, first):
    """What was found, those named first in front, the others in order."""
    front = [one for one in dict.fromkeys(first) if one in found]
    rest = [*(one for one in RIVALS if one in found), *sorted(one for one in found if isinstance(one, int))[::-1]]
    return [*front, *(one for one in rest if one not in front)]


def _print(title, head, rows, markdown):
    """A table whose columns are aligned; the best cells are bold in Markdown, and end in * otherwise."""
    if not markdown:
        rows = [[f"{cell[2:-2]}*" if cell.startswith("**") else cell for cell in row] for row in rows]
    widths = [max(len(str(row[place])) for row in (head, *rows)) for place in range(len(head))]
    ends = ("| ", " | ", " |") if markdown else ("", "  ", "")

    def line(cells):
        aligned = [str(cell).rjust(width) if place else str(cell).ljust(width) for place, (cell, width) in cells]
        return ends[0] + ends[1].join(aligned) + ends[2]

    print(f"\n{'**' if markdown else ''}{title}{'**' if markdown else ''}\n")
    print(line(enumerate(zip(head, widths))))
    if markdown:
        print("|" + "|".join("-" * (width + 1) + (":" if place else "-") for place, width in enumerate(widths)) + "|")
    for row in rows:
        print(line(enumerate(zip(row, widths))))
