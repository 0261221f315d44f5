"""How performance falls as modalities are corrupted: curves over levels, and the areas that sum them up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.settings import Fraction, OwnCheck, PositiveInt, checked
from consilience.corruption import Corruptor
from consilience.evaluation.metric_inputs import as_array
from consilience.evaluation.metrics import Metric
from consilience.evaluation.model_scores import read_for_corruption, score_model

if TYPE_CHECKING:
    import polars

Area = Literal["gain", "relative", "effective"]


@dataclass(frozen=True, repr=False)
class RobustnessCurve:
    """A model's performance at growing levels of corruption.

    Attributes:
        levels: `[level]`, strictly increasing.
        per_repeat: `[repeat, level]`, a row for each draw of the noise.
        metric: Its name.
        larger_is_better: Of the metric.
        corruption: A name, a mapping modality → name, or None for the default of each kind.
    """

    levels: np.ndarray
    per_repeat: np.ndarray
    metric: str
    larger_is_better: bool = True
    corruption: str | Mapping[str, str] | None = None

    @property
    def values(self) -> np.ndarray:
        """The mean over repeats: `[level]`."""
        return self.per_repeat.mean(axis=0)

    @property
    def worst(self) -> np.ndarray:
        """The worst of the repeats: `[level]`."""
        return self.per_repeat.min(axis=0) if self.larger_is_better else self.per_repeat.max(axis=0)

    def table(self) -> polars.DataFrame:
        """Return one row per level: `level`, `metric`, `mean`, `std` (null for one repeat) and `worst` over repeats."""
        import polars

        repeats = len(self.per_repeat)
        spread = self.per_repeat.std(axis=0, ddof=1) if repeats > 1 else [None] * len(self.levels)
        return polars.DataFrame(
            {
                "level": self.levels,
                "metric": [self.metric] * len(self.levels),
                "mean": self.values,
                "std": polars.Series(spread, dtype=polars.Float64),
                "worst": self.worst,
            }
        )

    def __repr__(self) -> str:
        points = ", ".join(f"{level:g} → {value:.4g}" for level, value in zip(self.levels, self.values))
        under = self.corruption if isinstance(self.corruption, str) else "corruption"
        return f"RobustnessCurve({self.metric} under {under}: {points})"


@checked
def robustness_curve(
    model: Any,
    X: Annotated[Mapping[str, Any] | Samples, OwnCheck],
    y: Any = None,
    *,
    corruption: str | Mapping[str, str] | None = None,
    levels: Sequence[float] = (0, 5, 10),
    metric: str | Metric | None = None,
    probability: Fraction = 0.5,
    modalities: str | Iterable[str] | None = None,
    reference: Any = None,
    random_state: int = 0,
    repeats: PositiveInt = 1,
    **options: Any,
) -> RobustnessCurve:
    """Measure a fitted model on the same samples at growing levels of corruption.

    Args:
        model: Has `predict`, and for metrics of probabilities `predict_proba` and `classes_`.
        X: A mapping or `Samples`; for an estimator of consilience whatever it predicts, such as DataFrames.
        y: The targets; by default those of the `Samples`.
        corruption, probability, modalities: As in `corrupt`.
        levels: Of corruption, strictly increasing.
        metric: A name or a `Metric`; by default accuracy for a classifier, mse for a regressor.
        reference: The training samples, or their statistics, that a level is relative to; by default the model's
            `reference_`, else X itself.
        random_state, repeats: Draws of the noise have the seeds random_state, random_state + 1, …; within a draw every
            level has the same seed, so that levels differ only in strength.
        **options: Further arguments of `corrupt`, such as `clip=True`.

    Returns:
        The metric at every level and repeat.

    Example:
        >>> class Sign:
        ...     classes_ = np.array([False, True])
        ...     def predict(self, X):
        ...         return X["a"][:, 0] + X["b"][:, 0] > 0
        >>> y = np.arange(200) % 2 == 1
        >>> X = {name: np.where(y, 1.0, -1.0)[:, None] for name in ("a", "b")}
        >>> robustness_curve(Sign(), X, y, corruption="blank")
        RobustnessCurve(accuracy under blank: 0 → 1, 5 → ..., 10 → ...)
    """
    grid = _grid(levels)
    truth = X.y if y is None and isinstance(X, Samples) else y
    if truth is None:
        raise InputError("a robustness curve needs the targets y, and the samples carry none")
    chosen, score = score_model(model, truth, metric)
    X, options = read_for_corruption(model, X, options)
    if reference is None:
        reference = getattr(model, "reference_", None)
    corruptor = Corruptor(X if reference is None else reference)

    def measure(level: float, seed: int) -> float:
        corrupted = corruptor.apply(
            X, corruption, level, probability=probability, modalities=modalities, random_state=seed, **options
        )
        return score(corrupted)

    def measure_all(level: float) -> list[float]:
        if level == 0:  # nothing is corrupted, so nothing differs between draws
            return [measure(level, random_state)] * repeats
        return [measure(level, random_state + repeat) for repeat in range(repeats)]

    per_repeat = np.stack([measure_all(level) for level in grid.tolist()], axis=1)
    return RobustnessCurve(grid, per_repeat, chosen.name, chosen.larger_is_better, corruption)


Curve = RobustnessCurve | tuple[Any, Any] | tuple[Any, Any, bool]


@checked
def robust_auc(curve: Curve, baseline: Curve | None = None, kind: Area | None = None) -> float:
    """Return the area under a robustness curve, by the trapezoidal rule over the levels; larger is always better.

    With f and b the performances of curve and baseline, negated where smaller is better, and σ from the lowest level to
    the highest:

    - "gain": ∫ f(σ) − b(σ) dσ, the ROBUSTAUC of Shankar et al., Progressive Fusion for Multimodal Integration. It
      is not anchored at σ = 0: being better on clean samples counts. The default if there is a baseline.
    - "relative": ∫ f(σ) dσ, the area under the curve itself, in units of metric × level. The default without baseline.
    - "effective": ∫ f(σ) − b(σ) − (f(0) − b(0)) dσ, what is left when the gap on clean samples is taken away. It
      needs level 0.

    Args:
        curve, baseline: A `RobustnessCurve`, or `(levels, values)` or `(levels, values, larger_is_better)`.
        kind: Of the area.

    Returns:
        The area.

    Example:
        >>> model, baseline = ([0, 5, 10], [0.9, 0.8, 0.7]), ([0, 5, 10], [0.8, 0.6, 0.4])
        >>> [round(robust_auc(model, baseline, kind), 6) for kind in ("gain", "relative", "effective")]
        [2.0, 8.0, 1.0]
    """
    if kind is None:
        kind = "relative" if baseline is None else "gain"
    levels, values, better = _read_curve("curve", curve)
    if kind == "relative":
        return _signed(better) * float(np.trapezoid(values, levels))
    if baseline is None:
        raise InputError(f"the area of kind {kind!r} compares with a baseline, and none was given")
    base_levels, base_values, base_better = _read_curve("baseline", baseline)
    if isinstance(curve, RobustnessCurve) and isinstance(baseline, RobustnessCurve):
        for what in ("metric", "corruption"):
            ours, theirs = getattr(curve, what), getattr(baseline, what)
            if ours != theirs:
                raise InputError(f"the curve and its baseline differ in {what}: {ours!r} and {theirs!r}")
    if not np.array_equal(levels, base_levels):
        raise InputError(
            f"the curve and its baseline must have the same levels, got {levels.tolist()} and {base_levels.tolist()}"
        )
    if None not in (better, base_better) and better != base_better:
        raise InputError("larger is better for only one of the curve and its baseline: they measure different things")
    gap = values - base_values
    if kind == "effective":
        if levels[0] != 0:
            raise InputError(f"the effective area needs the clean performance, level 0; the lowest is {levels[0]:g}")
        gap = gap - gap[0]
    return _signed(better if better is not None else base_better) * float(np.trapezoid(gap, levels))


def _signed(larger_is_better: bool | None) -> int:
    return -1 if larger_is_better is False else 1


def _grid(levels: Any) -> np.ndarray:
    grid = as_array(levels).astype(np.float64)
    if grid.ndim != 1 or not len(grid) or not np.isfinite(grid).all() or (np.diff(grid) <= 0).any():
        raise InputError(f"levels must be finite numbers that strictly increase, got {grid.tolist()}")
    return grid


def _read_curve(what: str, curve: Curve) -> tuple[np.ndarray, np.ndarray, bool | None]:
    """Levels, values and which way is better, if the curve says so."""
    better: bool | None
    if isinstance(curve, RobustnessCurve):
        given, performance, better = curve.levels, curve.values, curve.larger_is_better
    elif isinstance(curve, tuple) and len(curve) in (2, 3):
        given, performance, better = curve[0], curve[1], bool(curve[2]) if len(curve) == 3 else None
    else:
        raise InputError(
            f"the {what} must be a RobustnessCurve, (levels, values) or (levels, values, larger_is_better), "
            f"got {type(curve).__name__}"
        )
    levels, values = _grid(given), as_array(performance).astype(np.float64)
    if len(levels) < 2:
        raise InputError(f"an area needs at least two levels, the {what} has {levels.tolist()}")
    if values.shape != levels.shape or not np.isfinite(values).all():
        raise InputError(
            f"the {what} needs one finite value for each of its {len(levels)} levels, got {values.tolist()}"
        )
    return levels, values, better
