"""Bayesian fusion of opinions that lie in files: checked, fused and scored batch by batch.

Nothing is scored on samples that a fusion was fitted on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_softmax

from consilience.bayes.fuse import fuse
from consilience.bayes.opinion_inputs import SUM_TOLERANCE
from consilience.bayes.priors import estimate_target_prior
from consilience.core.errors import InputError, name_rows
from consilience.data.files.opinion_files import OpinionFiles
from consilience.data.files.opinion_labels import LabelFile
from consilience.estimators.bayes_fusion import BayesFusion
from consilience.evaluation.classification import RunningScores

CELLS = 1 << 20  # numbers in a batch of all experts together: ten megabytes or so, several times while they are fused
EM_ROWS = 200_000  # enough for shares within .001; more would only cost memory


@dataclass(frozen=True, eq=False)
class Batch:
    """Some rows: expert → logits `[row, class]`, class indices y `[row]` if known, and a random number per row."""

    logits: Mapping[str, np.ndarray]
    y: np.ndarray | None
    draw: np.ndarray

    @property
    def present(self) -> dict[str, np.ndarray]:
        """Expert → whether it has an opinion `[row]`; a row that is all NaN has none."""
        return {name: ~np.isnan(values).all(axis=1) for name, values in self.logits.items()}

    def rows(self, which: np.ndarray) -> Batch:
        """Some of the rows, by a mask `[row]`."""
        logits = {name: values[which] for name, values in self.logits.items()}
        return Batch(logits, None if self.y is None else self.y[which], self.draw[which])


@dataclass(frozen=True, eq=False)
class Evidence:
    """Opinions in files, and their labels if there are any.

    Args:
        opinions: The files.
        probabilities: Whether they hold probabilities instead of logits.
        rounded: Decimals that probabilities were rounded to, or None.
        labels: The file of labels, or None.
        place_of: Label → class index.
        seed: Of the random numbers that divide rows into shares and folds.
    """

    opinions: OpinionFiles
    probabilities: bool = False
    rounded: int | None = None
    labels: LabelFile | None = None
    place_of: Mapping[Any, int] = field(default_factory=dict)
    seed: int = 0

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order; their random numbers are the same in every pass."""
        rows = max(1, CELLS // (self.opinions.width * len(self.opinions.names)))
        rng = np.random.default_rng(self.seed)
        labels = None if self.labels is None else self.labels.batches(self.place_of, rows)
        done = 0
        for given in self.opinions.batches(rows):
            own = len(next(iter(given.values())))
            y = None if labels is None else next(labels, np.empty(0, int))
            if y is not None and len(y) != own:
                raise self._lacking(done + len(y), done + own)
            logits = {name: self._logits(name, values, done) for name, values in given.items()}
            yield Batch(logits, y, rng.random(own))
            done += own
        if not done:
            raise InputError(f"{self.opinions.files[0].path.name} has no rows")
        if labels is not None and len(next(labels, ())):
            raise self._lacking(done + 1, done)

    def _lacking(self, labels: int, rows: int) -> InputError:
        assert self.labels is not None
        some, others = (f"{labels} labels", f"{rows} rows or more")
        if labels > rows:
            some, others = f"{labels} labels or more", f"{rows} rows"
        return InputError(f"{self.labels.path.name} has {some}, the opinions have {others}")

    def _logits(self, name: str, values: np.ndarray, start: int) -> np.ndarray:
        """Check values, and take the logarithm of probabilities."""
        there = ~np.isnan(values).all(axis=1)
        faults = [(np.isnan(values).any(axis=1), "opinions are NaN in part; a row that is all NaN or empty is missing")]
        if self.probabilities:
            tolerance = SUM_TOLERANCE + self._half_a_digit() * values.shape[1]
            off = ~(np.abs(values.sum(axis=1, dtype=np.float64) - 1) <= tolerance) | (values < 0).any(axis=1)
            faults.append((off, "probabilities must be ≥ 0 and sum to one"))
        else:
            faults.append((np.isposinf(values).any(axis=1), "logits hold +inf; they are finite, or −inf"))
            faults.append((np.isneginf(values).all(axis=1), "logits exclude every class"))
        for broken, why in faults:
            if (broken & there).any():
                rows = np.flatnonzero(broken & there)
                shown = np.array2string(values[rows[0]], precision=4, separator=", ", threshold=6, edgeitems=3)
                first = f"the first of them {shown}"
                if why.startswith("probabilities"):
                    advice = "If they were rounded to two decimals, give --rounded 2" if self.rounded is None else ""
                    first += (
                        f"; it sums to {values[rows[0]].sum():.4g}. Logits need no --probabilities. {advice}".rstrip()
                    )
                raise InputError(f"{self._place(name)}: {why} ({name_rows(rows + start)}, {first})")
        if not self.probabilities:
            return values
        if self.rounded is not None:  # no class is excluded: the middle of the values that are rounded to 0
            values = np.where(values == 0, self._half_a_digit() / 2, values)
            values = values / values.sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore"):
            return np.log(values)

    def _half_a_digit(self) -> float:
        """The largest rounding error of a probability."""
        return 0.0 if self.rounded is None else 0.5 * 10.0**-self.rounded

    def _place(self, name: str) -> str:
        owners = [(file.path.name, len(file.experts)) for file in self.opinions.files for _ in file.experts]
        file, experts = owners[self.opinions.names.index(name)]
        return f"{file}, expert {name!r}" if experts > 1 else file

    def look_like_probabilities(self) -> list[str]:
        """Return experts given as logits whose first rows are ≥ 0 and sum to one, which is rare for logits."""
        suspects = []
        for name, values in next(self.opinions.batches(1000), {}).items():
            rows = values[~np.isnan(values).any(axis=1)]
            off = np.abs(rows.sum(axis=1, dtype=np.float64) - 1) > SUM_TOLERANCE
            if len(rows) and (rows >= 0).all() and not off.any():
                suspects.append(name)
        return suspects


@dataclass(frozen=True, eq=False)
class Theorem:
    """Bayes' theorem for calibrated experts that are independent given the class. priors: `[1 or expert, class]`."""

    priors: np.ndarray

    @property
    def prior(self) -> np.ndarray:
        """The class shares that the experts were trained with, `[class]`, averaged over the experts."""
        return self.priors.mean(axis=0)

    def log_posterior(self, batch: Batch, target_prior: np.ndarray | None) -> np.ndarray:
        """Return the log-posterior `[row, class]`."""
        return fuse(batch.logits, self.priors, target_prior=target_prior, present=batch.present)

    def unseen(self, batch: Batch) -> np.ndarray:
        """Return which rows were not used to fit the model that fuses them, `[row]`: all, since nothing was fitted."""
        return np.ones(len(batch.draw), dtype=bool)


@dataclass(frozen=True, eq=False)
class Fitted:
    """Fitted `BayesFusion` models: one for all rows, or one per fold, fitted on the other folds.

    share: rows whose random number is smaller were used in the fit.
    """

    models: tuple[BayesFusion, ...]
    share: float = 0.0

    @property
    def prior(self) -> np.ndarray:
        """The class shares under which the posterior is given, averaged over folds."""
        return np.mean([model.rule_.target.numpy() for model in self.models], axis=0)

    def log_posterior(self, batch: Batch, target_prior: np.ndarray | None) -> np.ndarray:
        """Return the log-posterior `[row, class]`."""
        folds = fold_of(batch, len(self.models))
        whole = np.empty(next(iter(batch.logits.values())).shape)
        for fold, model in enumerate(self.models):
            model.set_params(target_prior=target_prior)
            if (own := folds == fold).any():
                whole[own] = model.predict_log_proba(batch.rows(own).logits)
        return whole

    def unseen(self, batch: Batch) -> np.ndarray:
        """Return which rows were not in the share that was fitted on."""
        return batch.draw >= self.share


Rule = Theorem | Fitted


def fold_of(batch: Batch, folds: int) -> np.ndarray:
    """Return the fold of each row, `[row]`."""
    return (batch.draw * folds).astype(int)


def fit(evidence: Evidence, *, share: float = 1.0, folds: int = 1, **settings: Any) -> Fitted:
    """Fit `BayesFusion(**settings)` on labelled opinions: all rows, a share of them, or the complement of each fold."""
    kept = [batch.rows(batch.draw < share) for batch in evidence.batches()]
    logits = {name: np.concatenate([batch.logits[name] for batch in kept]) for name in evidence.opinions.names}
    y = np.concatenate([batch.y for batch in kept if batch.y is not None])
    if not len(y):
        raise InputError("there are no rows to fit on: the share is too small")
    fold = np.concatenate([fold_of(batch, folds) for batch in kept])
    models = []
    for number in range(folds):
        rows = fold != number if folds > 1 else np.ones(len(y), dtype=bool)
        model = BayesFusion(classes=np.arange(evidence.opinions.width), **settings)
        models.append(model.fit({name: values[rows] for name, values in logits.items()}, y[rows]))
    return Fitted(tuple(models), share if share < 1 else 0.0)


def estimate_target(evidence: Evidence, rule: Rule, limit: int = EM_ROWS) -> tuple[np.ndarray, int]:
    """Estimate the class shares of the files by expectation maximisation.

    Above `limit` rows a random part of them is used; rows without an opinion are ignored.

    Returns:
        The shares `[class]`, and the number of rows used.
    """
    rng = np.random.default_rng(evidence.seed)
    kept, share, prior = np.empty((0, evidence.opinions.width)), 1.0, rule.prior
    for batch in evidence.batches():
        with_opinion = np.any(list(batch.present.values()), axis=0)
        chosen = with_opinion & (rng.random(len(with_opinion)) < share)
        kept = np.concatenate([kept, rule.log_posterior(batch.rows(chosen), prior)])
        while len(kept) > limit:
            kept, share = kept[rng.random(len(kept)) < 0.5], share / 2
    if not len(kept):
        raise InputError("the target prior could not be estimated because no row has an opinion")
    return estimate_target_prior(kept, prior), len(kept)


class FusedFiles(NamedTuple):
    """The scores of the experts and of the fusion, the number of rows, and of rows without any opinion."""

    experts: dict[str, RunningScores]
    fused: RunningScores
    rows: int
    empty: int


def fuse_files(
    evidence: Evidence,
    rule: Rule,
    target_prior: np.ndarray | None,
    write: Callable[[np.ndarray], None] | None = None,
) -> FusedFiles:
    """Fuse every row.

    Scores are computed on labelled rows that were not used in the fit; of an expert, where it has an opinion.

    Args:
        evidence: Opinions and labels.
        rule: The fusion rule.
        target_prior: Class shares of the new data `[class]`, or None.
        write: Called with log-posteriors `[row, class]` in order.
    """
    experts = {name: RunningScores() for name in evidence.opinions.names}
    fused, rows, empty = RunningScores(), 0, 0
    for batch in evidence.batches():
        rows += len(batch.draw)
        empty += int((~np.any(list(batch.present.values()), axis=0)).sum())
        posterior = rule.log_posterior(batch, target_prior)
        if write is not None:
            write(posterior.astype(np.result_type(*batch.logits.values())))
        if batch.y is not None:
            unseen = rule.unseen(batch)
            fused.update(batch.y[unseen], np.exp(posterior[unseen]))
            for name, there in batch.present.items():
                own = there & unseen
                logits = batch.logits[name][own].astype(np.float64)
                experts[name].update(batch.y[own], np.exp(log_softmax(logits, axis=1)))
    return FusedFiles(experts, fused, rows, empty)
