"""Ways to decide from the opinions of several experts, and the conditions under which they are compared."""

import time
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience import BayesFusion, estimate_target_prior, fuse, load_data
from consilience.bayes.calibration import fit_temperature
from consilience.bayes.priors import empirical_prior
from consilience.comparison.store import Result
from consilience.evaluation.classification import accuracy, ece, nll

# The ways to decide.
SINGLE, MEAN, SUM, THEOREM = "best single modality", "mean probability", "sum of logits", "theorem (κ = 1)"
TEMPERED, CALIBRATED, STACKED = "theorem, tempered", "calibrated, κ = 1", "stacking"
OURS, ROBUST, COPULA = "calibrated κ", "calibrated κ, robust", "calibrated κ, copula"
KEPT, TRUE, EM = "old shares kept", "true shares", "shares by EM"
TRUE_NAIVE, PUBLISHED = "κ = 1, true shares", "κ = 1, as published"
RELIABLE, TOLD = "calibrated κ, own ρ", "κ = 1, ρ known"
CONCAT, DROPOUT = "concat regression", "concat with dropout"
MISSING, BROKEN = 0.5, 0.25  # the probability of each expert to be so
RATIO = 20.0  # of the most frequent class to the rarest, where they are uneven
FOLDS = 5
COPIES = 5  # of the training samples, each with other modalities dropped
RUNS = 3  # trainings of the networks whose predictions are saved
NETWORKS, JOINT = ("image", "audio"), "centralnet"  # those that saw one modality, and the one trained on both
LEAST = float(np.log(np.finfo(np.float32).tiny))  # replaces the logarithm of 0 where a finite one is needed


def measure(cell, shared):
    began = time.perf_counter()
    decided = KINDS[cell["kind"]](load(shared["data"], cell["seed"]), cell["n"], cell["seed"])
    return judge(decided, time.perf_counter() - began)


def load(data, seed):
    """All samples of a set; of saved predictions, seed k has those of training run k mod 3 + 1."""
    return load_data(data, **({"run": seed % RUNS + 1} if data == "avmnist-predictions" else {})).samples


class Case(NamedTuple):
    """Opinions, log-probabilities `[n, modality, class]`, on samples with labels and on those to be decided."""

    learned: np.ndarray
    labels: np.ndarray
    asked: np.ndarray
    present: np.ndarray | None = None  # of those to be decided, [n, modality]

    @property
    def prior(self):
        return empirical_prior(self.labels, self.learned.shape[2])

    @property
    def best(self):
        """The expert of the least log-loss on the samples with labels."""
        own = self.learned[np.arange(len(self.labels)), :, self.labels]
        return int(np.maximum(own, LEAST).mean(axis=0).argmax())

    def only(self, expert):
        return Case(self.learned[:, [expert]], self.labels, self.asked[:, [expert]])

    def fit(self, kappa="gaussian", **settings):
        return BayesFusion(kappa, **settings).fit(self.learned, self.labels)

    def decide(self, kappa="gaussian", **settings):
        return self.fit(kappa, **settings).predict_log_proba(self.asked, self.present)


class Decided(NamedTuple):
    """The log-posterior `[n, class]` of every way on the samples `rows`, their class indices and weights."""

    ways: dict[str, np.ndarray]
    rows: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None = None
    share_errors: dict[str, float] = {}


def decide_all(case):
    """Every way that needs nothing but opinions, of experts who are all present."""
    naive = fuse(case.asked, case.prior)
    temperature = fit_temperature(np.maximum(fuse(case.learned, case.prior), LEAST)[:, None], case.labels)[0]
    return {
        SINGLE: case.asked[:, case.best],
        MEAN: mean_of_probabilities(case),
        SUM: case.asked.sum(axis=1),
        THEOREM: naive,
        TEMPERED: naive / temperature,
        CALIBRATED: case.decide("none"),
        OURS: case.decide(),
        ROBUST: case.decide(calibration="robust"),
        COPULA: case.decide("copula"),
        STACKED: stack(case),
    }


def decide_with_missing(case):
    return {
        MEAN: mean_of_probabilities(case),
        THEOREM: fuse(case.asked, case.prior, present=case.present),
        CALIBRATED: case.decide("none"),
        OURS: case.decide(),
        ROBUST: case.decide(calibration="robust"),
    }


def decide_with_broken(case, sound):
    """sound: the probability that an expert is not broken, which one way is given. All learned while none was."""
    independent, rho = case.fit("none").rule_, torch.full(case.asked.shape[:2], sound, dtype=torch.float64)
    return {
        MEAN: mean_of_probabilities(case),
        THEOREM: fuse(case.asked, case.prior),
        CALIBRATED: case.decide("none"),
        TOLD: independent(torch.from_numpy(case.asked), reliability=rho).numpy(),
        OURS: case.decide(),
        ROBUST: case.decide(calibration="robust"),
        RELIABLE: case.decide(reliability="auto"),
    }


def decide_with_other_shares(case, true):
    """The classes have the shares `true`, and others when it was learned: these are kept, replaced, or estimated.

    Returns the ways, and how far the estimates are off from the fused posterior and from that of the best expert.
    """
    fusion = case.fit()
    kept = fusion.predict_log_proba(case.asked)
    estimates = {"fused": kept, "alone": case.only(case.best).decide("none")}
    estimates = {whose: estimate_target_prior(posterior, case.prior) for whose, posterior in estimates.items()}
    ways = {
        KEPT: kept,
        TRUE: fusion.set_params(target_prior=true).predict_log_proba(case.asked),
        EM: fusion.set_params(target_prior=estimates["fused"]).predict_log_proba(case.asked),
        TRUE_NAIVE: fuse(case.asked, case.prior, target_prior=true),
        PUBLISHED: case.asked.sum(axis=1) - (case.asked.shape[1] - 1) * np.log(true),
    }
    return ways, {whose: float(np.abs(estimate - true).sum()) for whose, estimate in estimates.items()}


def mean_of_probabilities(case):
    """The logarithm of the mean probability over the experts present `[n, class]`; the prior's where there is none."""
    present = np.ones(case.asked.shape[:2], dtype=bool) if case.present is None else case.present
    count = present.sum(axis=1)[:, None]
    total = (np.exp(case.asked) * present[:, :, None]).sum(axis=1)
    with np.errstate(divide="ignore"):
        return np.log(np.where(count > 0, total / count.clip(min=1), case.prior))


def stack(case):
    """A logistic regression on the log-probabilities of all experts side by side."""
    learned, asked = (np.maximum(values, LEAST).reshape(len(values), -1) for values in (case.learned, case.asked))
    with np.errstate(divide="ignore"):
        return np.log(regression().fit(learned, case.labels).predict_proba(asked))


def regression():
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=3000))


def log_of(probabilities):
    return np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))


def judge(decided, seconds=0.0):
    """Scores of every way, and each sample's loss times its weight: `[way, n]`."""
    weight = np.ones(len(decided.y)) if decided.weight is None else decided.weight
    scores, losses = {}, []
    for way, log_posterior in decided.ways.items():
        p = np.exp(log_softmax(log_posterior, axis=1))
        scores[way] = {
            "accuracy": accuracy(decided.y, p.argmax(axis=1), weight=weight),
            "nll": nll(decided.y, p, weight=weight),
            "ece": ece(decided.y, p, weight=weight),
        }
        own = p[np.arange(len(decided.y)), decided.y]
        losses.append(-np.log(own.clip(np.finfo(np.float64).eps, 1.0)) * weight)
    about = {"scores": scores, "off": dict(decided.share_errors), "seconds": seconds}
    return Result(about, {"loss": np.stack(losses), "index": decided.rows})


def draw_evenly(y, n, seed):
    """n rows with every class in its share, and all others."""
    return train_test_split(np.arange(len(y)), train_size=n, stratify=y, random_state=seed)


def uneven_shares(classes, space=np.linspace):
    """Shares `[class]` that fall from RATIO to 1 in equal steps, or with `np.geomspace` by equal factors."""
    steps = space(RATIO, 1.0, classes)
    return steps / steps.sum()


def draw_shares(y, shares, n, seed):
    """n rows in which the classes have these shares `[class]`, and all others in random order."""
    rng = np.random.default_rng(seed)
    by_class = [rng.permutation(np.flatnonzero(y == number)) for number in range(len(shares))]
    counts = np.round(n * shares).astype(int)
    chosen = np.concatenate([rows[:count] for rows, count in zip(by_class, counts)])
    others = np.concatenate([rows[count:] for rows, count in zip(by_class, counts)])
    return chosen, rng.permutation(others)


def thin_out(y, rows, shares):
    """As many of the rows as can have these shares `[class]`, at least one of each class; the first are kept."""
    by_class = [rows[y[rows] == number] for number in range(len(shares))]
    most = min(len(own) / share for own, share in zip(by_class, shares))
    return np.concatenate([own[: max(1, int(most * share + 1e-9))] for own, share in zip(by_class, shares)])


def weigh_by_class(y, shares):
    """The weight of each sample with which the classes have these shares; the mean weight is 1."""
    return (shares * len(y) / np.bincount(y, minlength=len(shares)).clip(min=1))[y]


def opinions_of_experts(samples, train, test, seed, present=None, groups=None):
    """Opinions on the training rows are out-of-fold, on the test rows of experts trained on all training rows.

    groups: of each sample; a group comes into one fold.
    """
    y = np.asarray(samples.y)[train]
    splitter = (StratifiedKFold if groups is None else StratifiedGroupKFold)(FOLDS, shuffle=True, random_state=seed)
    folds = list(splitter.split(train, y, None if groups is None else groups[train]))
    held_out, asked = [], []
    for name in samples.names:
        x = samples[name]
        held_out.append(cross_val_predict(regression(), x[train], y, cv=folds, method="predict_proba"))
        asked.append(regression().fit(x[train], y).predict_proba(x[test]))
    return Case(log_of(np.stack(held_out, axis=1)), y, log_of(np.stack(asked, axis=1)), present)


def decide_every_way(samples, train, test, seed, groups=None):
    """Every way with the experts' opinions, and a regression on all their features."""
    x, y = np.concatenate([samples[name] for name in samples.names], axis=1), np.asarray(samples.y)
    ways = decide_all(opinions_of_experts(samples, train, test, seed, groups=groups))
    return {**ways, CONCAT: log_of(regression().fit(x[train], y[train]).predict_proba(x[test]))}


def concat_with_dropout(samples, train, test, present, rng):
    """A regression on all features, learned from copies of the training samples in which modalities are missing too.

    Missing features are replaced by their mean over the training samples.
    """
    scaled = [StandardScaler().fit(samples[name][train]).transform(samples[name]) for name in samples.names]

    def features(rows, there):
        return np.concatenate([x[rows] * there[:, [place]] for place, x in enumerate(scaled)], axis=1)

    copies = [features(train, rng.random((len(train), len(scaled))) >= MISSING) for _ in range(COPIES)]
    labels = np.tile(np.asarray(samples.y)[train], COPIES)
    fitted = LogisticRegression(max_iter=3000).fit(np.concatenate(copies), labels)
    return log_of(fitted.predict_proba(features(test, present)))


def with_all_present(samples, n, seed):
    y = np.asarray(samples.y)
    train, test = draw_evenly(y, n, seed)
    return Decided(decide_every_way(samples, train, test, seed), test, y[test])


def with_uneven_classes(samples, n, seed, rising=False):
    y = np.asarray(samples.y)
    shares = uneven_shares(y.max() + 1)[:: -1 if rising else 1]
    train, test = draw_shares(y, shares, n, seed)
    return Decided(decide_every_way(samples, train, test, seed), test, y[test], weigh_by_class(y[test], shares))


def with_shares_reversed(samples, n, seed):
    y = np.asarray(samples.y)
    shares = uneven_shares(y.max() + 1)
    train, others = draw_shares(y, shares, n, seed)
    test = thin_out(y, others, shares[::-1])
    return with_other_shares(opinions_of_experts(samples, train, test, seed), y, test)


def with_other_shares(case, y, test):
    true = np.bincount(y[test], minlength=y.max() + 1) / len(test)
    ways, errors = decide_with_other_shares(case, true)
    return Decided(ways, test, y[test], share_errors=errors)


def with_modalities_missing(samples, n, seed):
    y, rng = np.asarray(samples.y), np.random.default_rng(seed)
    train, test = draw_evenly(y, n, seed)
    present = rng.random((len(test), len(samples.names))) >= MISSING
    ways = decide_with_missing(opinions_of_experts(samples, train, test, seed, present))
    return Decided({**ways, DROPOUT: concat_with_dropout(samples, train, test, present, rng)}, test, y[test])


def halves(samples, seed, names=NETWORKS):
    y = np.asarray(samples.y)
    learned, test = draw_evenly(y, len(y) // 2, seed)
    with np.errstate(divide="ignore"):
        opinions = np.log(np.stack([np.asarray(samples[name], dtype=np.float64) for name in names], axis=1))
    return Case(opinions[learned], y[learned], opinions[test]), y, test


def saved_pairs(samples, n, seed):
    """Image and audio fused, each network alone, as it is and calibrated, and all three fused."""
    case, y, test = halves(samples, seed, (*NETWORKS, JOINT))
    ways = {}
    for place, name in enumerate((*NETWORKS, JOINT)):
        ways[name] = case.asked[:, place]
        ways[f"{name}, calibrated"] = case.only(place).decide("none")
    pair = decide_all(Case(case.learned[:, :2], case.labels, case.asked[:, :2]))
    ways |= {way: pair[way] for way in (MEAN, THEOREM, CALIBRATED, OURS, ROBUST, COPULA, STACKED)}
    three = decide_all(case)
    return Decided(ways | {f"{way}, all three": three[way] for way in (MEAN, THEOREM, OURS)}, test, y[test])


def saved_with_missing(samples, n, seed):
    case, y, test = halves(samples, seed)
    present = np.random.default_rng(seed).random((len(test), len(NETWORKS))) >= MISSING
    return Decided(decide_with_missing(case._replace(present=present)), test, y[test])


def saved_with_broken(samples, n, seed):
    case, y, test = halves(samples, seed)
    swapped = case._replace(asked=swap(case.asked, BROKEN, np.random.default_rng(seed)))
    return Decided(decide_with_broken(swapped, 1 - BROKEN), test, y[test])


def swap(opinions, probability, rng):
    """Opinions `[n, modality, class]`, each replaced with a probability by the expert's opinion on another sample."""
    n, experts, _ = opinions.shape
    own = np.tile(np.arange(n)[:, None], experts)
    rows = np.where(rng.random((n, experts)) < probability, rng.permuted(own, axis=0), own)
    return opinions[rows, np.arange(experts)]


def saved_with_other_shares(samples, n, seed):
    case, y, others = halves(samples, seed)
    test = thin_out(y, others, uneven_shares(y.max() + 1, np.geomspace))
    place = {row: number for number, row in enumerate(others)}
    return with_other_shares(case._replace(asked=case.asked[[place[row] for row in test]]), y, test)


KINDS = {
    "all": with_all_present,
    "uneven": with_uneven_classes,
    "uneven, rising": partial(with_uneven_classes, rising=True),
    "missing": with_modalities_missing,
    "reversed": with_shares_reversed,
    "pairs": saved_pairs,
    "saved, missing": saved_with_missing,
    "saved, broken": saved_with_broken,
    "saved, shares": saved_with_other_shares,
}
