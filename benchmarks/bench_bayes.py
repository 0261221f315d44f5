"""How good Bayesian fusion of opinions is: against the theorem alone, against concatenation and stacking, in one run.

Experts are logistic regressions, their opinions for fitting out-of-fold. Each figure is the mean over seeds (fresh
splits); behind ± is a 95 % interval of the difference in log-loss to calibrated κ, paired by seed. Splits of different
seeds overlap, so that the intervals are somewhat too narrow. Sets that need files are left out where CONSILIENCE_DATA
does not lead to them.

    python benchmarks/bench_bayes.py --seeds 10
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np
from scipy.special import log_softmax
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience import BayesFusion, fuse, load_data
from consilience.decision.calibration import fit_temperature
from consilience.decision.priors import empirical_prior
from consilience.errors import MissingDataError

RARE = 20  # how many times rarer the second half of the classes is under the uneven prior
OURS = "calibrated κ"


def expert():
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=3000))


def opinions_of(views, y, train, test, seed, groups=None):
    """Out-of-fold opinions on the training rows, and opinions on the test rows: `[n, modality, class]` each."""
    if groups is None:
        folds = list(StratifiedKFold(5, shuffle=True, random_state=seed).split(train, y[train]))
    else:
        folds = list(StratifiedGroupKFold(5, shuffle=True, random_state=seed).split(train, y[train], groups[train]))
    held_out, said = [], []
    for x in views:
        held_out.append(cross_val_predict(expert(), x[train], y[train], cv=folds, method="predict_log_proba"))
        said.append(expert().fit(x[train], y[train]).predict_log_proba(x[test]))
    least = np.log(np.finfo(np.float64).tiny)  # scikit-learn takes the logarithm of probabilities that became 0
    return np.maximum(np.stack(held_out, axis=1), least), np.maximum(np.stack(said, axis=1), least)


def judge(log_posterior, y, share=None):
    """Accuracy in per cent, and log-loss; share: of the classes, by which samples are weighted."""
    normal = log_softmax(log_posterior, axis=1)
    weight = None if share is None else (share / np.bincount(y))[y]
    right, loss = normal.argmax(axis=1) == y, -normal[np.arange(len(y)), y]
    return 100 * np.average(right, weights=weight), np.average(loss, weights=weight)


def one_seed(views, y, train, test, seed, *, groups=None, share=None):
    """Every way to decide, on one split: name → (accuracy, log-loss)."""
    held_out, said = opinions_of(views, y, train, test, seed, groups)
    prior = empirical_prior(y[train], held_out.shape[2])
    naive, naive_held_out = fuse(said, prior), fuse(held_out, prior)
    temperature = fit_temperature(naive_held_out[:, None], y[train])[0]
    x = np.concatenate(views, axis=1)
    singles = [judge(said[:, place], y[test], share) for place in range(len(views))]
    flat, flat_held_out = said.reshape(len(test), -1), held_out.reshape(len(train), -1)
    stacked = LogisticRegression(max_iter=3000).fit(np.exp(flat_held_out), y[train])
    stacked_logits = expert().fit(flat_held_out, y[train])
    robust = BayesFusion(calibration="robust")
    ways = {
        "mean of probabilities": np.log(np.exp(said).mean(axis=1)),
        "Σ logits, no prior term": said.sum(axis=1),
        "theorem, κ = 1": naive,
        "+ one temperature on the sum": naive / temperature,
        "κ = 1, each calibrated": BayesFusion("none").fit(held_out, y[train]).predict_log_proba(said),
        OURS: BayesFusion().fit(held_out, y[train]).predict_log_proba(said),
        "calibrated κ, robust": robust.fit(held_out, y[train]).predict_log_proba(said),
        "calibrated κ, copula": BayesFusion("copula").fit(held_out, y[train]).predict_log_proba(said),
        "concat logistic regression": expert().fit(x[train], y[train]).predict_log_proba(x[test]),
        "stacking, probabilities": stacked.predict_log_proba(np.exp(flat)),
        "stacking, log-probabilities": stacked_logits.predict_log_proba(flat),
    }
    best = max(singles, key=lambda one: one[0])
    return {"best single modality": best} | {name: judge(said_so, y[test], share) for name, said_so in ways.items()}


def missing(views, y, train, test, seed):
    """Each modality of a test sample gone with probability ½, training samples complete."""
    rng = np.random.default_rng(seed)
    held_out, said = opinions_of(views, y, train, test, seed)
    present = rng.random((len(test), len(views))) >= 0.5
    prior = empirical_prior(y[train], held_out.shape[2])
    scaled = [StandardScaler().fit(x[train]).transform(x) for x in views]
    copies = []
    for _ in range(5):  # modality dropout: five copies of the training samples, absent values at their mean
        kept = rng.random((len(train), len(views))) >= 0.5
        copies.append(np.concatenate([x[train] * kept[:, [place]] for place, x in enumerate(scaled)], axis=1))
    dropout = LogisticRegression(max_iter=3000).fit(np.concatenate(copies), np.tile(y[train], 5))
    seen = np.concatenate([x[test] * present[:, [place]] for place, x in enumerate(scaled)], axis=1)
    ways = {
        "masked theorem, κ = 1": fuse(said, prior, present=present),
        "κ = 1, each calibrated": BayesFusion("none").fit(held_out, y[train]).predict_log_proba(said, present),
        OURS: BayesFusion().fit(held_out, y[train]).predict_log_proba(said, present),
        "concat with modality dropout": dropout.predict_log_proba(seen),
    }
    return {name: judge(said_so, y[test]) for name, said_so in ways.items()}


def unmeasured(views, y, train, test, seed):
    """The last modality is there in training, and in no test sample."""
    held_out, said = opinions_of(views, y, train, test, seed)
    present = np.tile(np.arange(len(views)) < len(views) - 1, (len(test), 1))
    prior = empirical_prior(y[train], held_out.shape[2])
    x = np.concatenate(views[:-1], axis=1)
    fewer = BayesFusion().fit(held_out[:, :-1], y[train])
    robust = BayesFusion(calibration="robust").fit(held_out, y[train])
    ways = {
        "masked theorem, κ = 1": fuse(said, prior, present=present),
        "κ = 1, each calibrated": BayesFusion("none").fit(held_out, y[train]).predict_log_proba(said, present),
        OURS: BayesFusion().fit(held_out, y[train]).predict_log_proba(said, present),
        "calibrated κ, robust": robust.predict_log_proba(said, present),
        "calibrated κ, others alone": fewer.predict_log_proba(said[:, :-1]),
        "concat, others alone": expert().fit(x[train], y[train]).predict_log_proba(x[test]),
    }
    return {name: judge(said_so, y[test]) for name, said_so in ways.items()}


def shift(views, y, train, test, seed):
    """Trained under an uneven prior, used under its reverse."""
    held_out, said = opinions_of(views, y, train, test, seed)
    true = np.bincount(y[test]) / len(test)
    fusions = {"the training prior kept": None, "the true prior": true, OURS + ", em": "em"}
    return {
        name: judge(BayesFusion(target_prior=prior).fit(held_out, y[train]).predict_log_proba(said), y[test])
        for name, prior in fusions.items()
    }


def reverse_all(y, seed):
    """Rows for training under the uneven prior and for use under its reverse, as many as there are."""
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(np.flatnonzero(y == c)) for c in range(10)]
    most = min(len(one) for one in rows) * RARE / (RARE + 1)
    counts = np.round(most * RARE ** -(np.arange(10) / 9)).astype(int)
    train = np.concatenate([one[:count] for one, count in zip(rows, counts)])
    return train, np.concatenate([one[count:][:used] for one, count, used in zip(rows, counts, counts[::-1])])


def reverse_few(y, seed):
    """The same with the rows of `uneven`, of which the least frequent class has six for training."""
    train, others, share = uneven(y, seed)
    kept = np.round(54 * share[::-1] / share.max()).astype(int)
    return train, np.concatenate([others[y[others] == c][:count] for c, count in enumerate(kept)])


def uneven(y, seed):
    """Rows for training, each class rarer than the one before, the last 20 times rarer than the first; the others.

    Returns those, and the classes' shares. The others hold 54 of each class, to be weighted by whatever prior is meant.
    """
    rng = np.random.default_rng(seed)
    share = RARE ** -(np.arange(10) / 9)
    rows = [rng.permutation(np.flatnonzero(y == c)) for c in range(10)]
    most = min(len(one) for one in rows) - 54
    train = np.concatenate([one[54:][: round(most * part)] for one, part in zip(rows, share)])
    return train, np.concatenate([one[:54] for one in rows]), share / share.sum()


def random_split(y, seed, n):
    rows = np.random.default_rng(seed).permutation(len(y))
    return rows[:n], rows[n:]


def table(title, seeds, run, reference=OURS):
    """Run every seed, print every way."""
    start = time.perf_counter()
    results = [run(seed) for seed in range(seeds)]
    print(f"\n{title} ({seeds} seeds, {time.perf_counter() - start:.0f} s)")
    ours = reference if reference in results[0] else f"{reference}, em"
    base = np.array([result[ours][1] for result in results])
    for name in results[0]:
        accuracy, loss = np.mean([result[name] for result in results], axis=0)
        away = np.array([result[name][1] for result in results]) - base
        half = student.ppf(0.975, seeds - 1) * away.std(ddof=1) / np.sqrt(seeds) if seeds > 1 else np.nan
        against = "" if name == ours else f"   {away.mean():+.3f} ± {half:.3f}"
        print(f"  {name:30} {accuracy:5.1f} % / {loss:.3f}{against}")


def hydraulic(folder):
    """Eight sensors of a rig; cycles come in order, so that whole stretches of them are held out."""
    with np.load(folder / "hydraulic" / "cycles_1hz.npz") as file:
        views = [file[name].astype(np.float64) for name in file.files if name != "profile"]
        profile = file["profile"]
    stretch = np.arange(len(profile)) // 15
    tasks = ("cooler", "valve", "pump", "accumulator")
    return (
        views,
        {task: np.unique(profile[:, place], return_inverse=True)[1] for place, task in enumerate(tasks)},
        stretch,
    )


def mosi(folder):
    """Text, audio and video. The features were learned on the training set, which spoils it for what this is about:

    out-of-fold, experts are right on 98, 58 and 90 % of training samples, and on 75, 54 and 51 % of the test's. What is
    learned from such opinions cannot hold; the table shows what that does to each way.
    """
    with np.load(folder / "mosi" / "utterance_features.npz") as file:
        names = ("text", "audio", "video")
        views = [np.concatenate([file[f"{name}_train"], file[f"{name}_test"]]).astype(np.float64) for name in names]
        y = np.concatenate([file["y_train"], file["y_test"]]).astype(np.int64)
        return views, y, len(file["y_train"])


def views_of(name):
    samples = load_data(name).samples
    return [np.asarray(samples[one], dtype=np.float64) for one in samples.names], samples.y


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", help="run the tables whose title contains this")
    asked = parser.parse_args()

    def show(title, run):
        if asked.only is None or asked.only in title:
            table(title, asked.seeds, run)

    views, y = views_of("digits")
    show("digits, n = 900", lambda seed: one_seed(views, y, *random_split(y, seed, 900), seed))
    show("digits, n = 100", lambda seed: one_seed(views, y, *random_split(y, seed, 100), seed))

    def rare(seed):
        train, test, share = uneven(y, seed)
        return one_seed(views, y, train, test, seed, share=share)

    show("digits, n = 409, 20:1 prior", rare)
    show("digits, n = 564, 20:1 prior, reversed at test", lambda seed: shift(views, y, *reverse_all(y, seed), seed))
    show("digits, n = 409, 20:1 prior, reversed at test", lambda seed: shift(views, y, *reverse_few(y, seed), seed))
    show("digits, n = 900, missing p = .5", lambda seed: missing(views, y, *random_split(y, seed, 900), seed))
    try:
        six, labels = views_of("handwritten")
        show("handwritten, n = 1000", lambda seed: one_seed(six, labels, *random_split(labels, seed, 1000), seed))
        show(
            "handwritten, n = 649, 20:1 prior, reversed at test",
            lambda seed: shift(six, labels, *reverse_all(labels, seed), seed),
        )
        show(
            "handwritten, n = 498, 20:1 prior, reversed at test",
            lambda seed: shift(six, labels, *reverse_few(labels, seed), seed),
        )
        show(
            "handwritten, n = 1000, missing p = .5",
            lambda seed: missing(six, labels, *random_split(labels, seed, 1000), seed),
        )
    except MissingDataError as error:
        print(f"\nhandwritten: left out. {error}")
    try:
        tumours = load_data("breast-tcga")
        measured = [np.nan_to_num(np.asarray(tumours.samples[name], dtype=np.float64)) for name in tumours.modalities]
        subtype = np.unique(tumours.y, return_inverse=True)[1]
        whole, without = np.flatnonzero(tumours.split != "test"), np.flatnonzero(tumours.split == "test")

        def two_thirds(seed):
            return train_test_split(whole, train_size=2 / 3, stratify=subtype[whole], random_state=seed)

        show("breast-tcga, n = 100", lambda seed: one_seed(measured, subtype, *two_thirds(seed), seed))
        show(
            "breast-tcga, n = 100, no protein in the test set",
            lambda seed: unmeasured(measured, subtype, two_thirds(seed)[0], without, seed),
        )
    except MissingDataError as error:
        print(f"\nbreast-tcga: left out. {error}")
    folder = Path(os.environ.get("CONSILIENCE_DATA", "."))
    if (folder / "hydraulic").is_dir():
        sensors, tasks, stretch = hydraulic(folder)
        for task, states in tasks.items():

            def run(seed, states=states):
                held = np.random.default_rng(seed).permutation(stretch.max() + 1)[: (stretch.max() + 1) // 2]
                chosen = np.isin(stretch, held)
                return one_seed(sensors, states, np.flatnonzero(~chosen), np.flatnonzero(chosen), seed, groups=stretch)

            show(f"hydraulic, {task}", run)
    else:
        print("\nhydraulic: left out, its folder is not in CONSILIENCE_DATA")
    if (folder / "mosi").is_dir():
        three, sentiment, first = mosi(folder)

        def half(seed):
            rows = np.random.default_rng(seed).permutation(first)[: first // 2]
            return one_seed(three, sentiment, rows, np.arange(first, len(sentiment)), seed)

        show("mosi, half of the training set", half)
    else:
        print("mosi: left out, its folder is not in CONSILIENCE_DATA")


if __name__ == "__main__":
    main()
