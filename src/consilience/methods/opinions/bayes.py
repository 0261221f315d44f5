"""`bayes`: experts trained alone, and Bayes' rule over their opinions, with the dependence between them learned."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import Tensor

from consilience.bayes.bayes_rule import BayesRule, Calibration
from consilience.bayes.gaussian_fusion import GaussianRule, split_gaussian
from consilience.bayes.kappa import Kappa
from consilience.core.batches import Batch
from consilience.core.samples import Samples
from consilience.core.settings import Interval
from consilience.data.folds import folds_as_groups, most_folds
from consilience.methods import Prediction, Spec, Step, register
from consilience.methods.opinions.gaussian_expert import GaussianExpert, expert_spread_losses
from consilience.methods.opinions.unimodal import SeparateExperts, Unimodal
from consilience.training import Trainer

Folds = Annotated[int, Interval(2)]


class RuleData(NamedTuple):
    """What a rule is learned from: opinions `[n, modality, output]`, y, present `[n, modality]`, weight `[n]`."""

    opinions: np.ndarray
    y: np.ndarray
    present: np.ndarray
    weight: np.ndarray | None

    def select(self, rows: np.ndarray) -> RuleData:
        """Return some of the samples."""
        weight = None if self.weight is None else self.weight[rows]
        return RuleData(self.opinions[rows], self.y[rows], self.present[rows], weight)


Rule = BayesRule | GaussianRule


@register(
    "bayes",
    paper="Jørgensen, Tětková, Hansen 2024, Image classification with symbolic hints using limited resources",
    equation="P(c | x) ∝ κ · Π_j P(c | x_j) / π^(N−1)",
)
class Bayes(SeparateExperts):
    """Bayes' theorem over the experts' opinions: each is calibrated, their dependence κ is estimated out-of-fold.

    The theorem combines P(c | x_m) of all modalities: subtract the class prior π that each expert has already assumed,
    add it once, and correct by κ for what the modalities have in common given the class. κ is estimated from opinions
    on samples that an expert did not learn from: `folds` copies of each expert are trained on parts of the data for
    that. The method's own experts are trained on all of it.

        ln P(c | x_S) = ln π_c + Σ_{m∈S} w_m (z_mc / T_m − ln π_c) + α ln κ̂_c + β ln p̂(z | c) + const

    κ̂ and p̂ come from a Gaussian, or a Gaussian copula, of the calibrated opinions of each class. w, α and β are a
    convex fit to the same out-of-fold opinions, once more for every set or number of present modalities, with the
    others hidden; a single expert is only calibrated. The weights of a prediction are those of the experts'
    calibrated evidence: they depend on which modalities are present, not on the opinions.

    For a regression each expert predicts a number and the variance of its error. Both are calibrated out-of-fold, and
    the numbers x_m are combined as dependent Gaussian measurements of y, with the training targets as the prior (see
    `bayes.gaussian_fusion`). Σ has the calibrated variances and the shrunk correlation R of the experts' errors.

        1/v = 1/v_0 + 1ᵀΣ_S⁻¹1         E[y | x_S] = v (m_0/v_0 + 1ᵀΣ_S⁻¹x_S)

    The weights of a prediction are then those of the x_m in the mean, and `extra["variance"]` is v.

    Args:
        kappa: How dependence between experts is modelled: "gaussian", "copula", or "none" for independence. For a
            regression the first two are the same: both estimate R.
        calibration: Of each expert of a classification: "temperature"; "robust", a temperature and a share of
            uninformative opinions; "auto", the mean of the log-probabilities of these two, or "robust" alone if its
            cross-fitted log-loss after fusion is clearly lower; "bias", a temperature and a bias per class; or None.
        folds: Folds of the cross-fitting by which all of this is learned.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        kappa: Kappa = "gaussian",
        calibration: Calibration | None = "auto",
        folds: Folds = 3,
    ):
        super().__init__(spec, Unimodal if spec.task.classification else GaussianExpert)
        self.folds, self.kappa, self.calibration = folds, kappa, calibration
        self.rule = self._build_rule()
        # Training data of the rule, the samples' rows and folds; and the rules of the folds, if they were asked for.
        self._held_out: tuple[RuleData, np.ndarray, np.ndarray] | None = None
        self._fold_rules: list[BayesRule | GaussianRule] | None = None
        self._grouped = False  # whether folds are of whole groups, or blocks in time

    def forward(self, batch: Batch) -> Prediction:
        """Collect every expert's opinion, then apply the rule."""
        opinions = torch.stack([expert(batch).output for expert in self.experts.values()], dim=1)
        dtype = torch.promote_types(opinions.dtype, torch.float32)
        if isinstance(self.rule, BayesRule):
            output = self.rule(opinions, batch.present).to(dtype)
            weights = self.rule.expert_weights(batch.present).to(dtype)
            return Prediction(output, opinions=opinions, weights=weights)
        fused, weights = self.rule.fuse(opinions, batch.present)
        output, log_variance = split_gaussian(fused)
        numbers, log_variances = split_gaussian(opinions)
        extra = {"variance": log_variance.exp().to(dtype), "log_variances": log_variances}
        return Prediction(output.to(dtype), opinions=numbers, weights=weights.to(dtype), extra=extra)

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """Each expert's own loss, and that of its variances in a regression."""
        losses = super().objective(prediction, batch, step)
        return losses if self.task.classification else losses | expert_spread_losses(self.names, prediction, batch)

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """Train each expert, cross-fit it for as many epochs as it took, and learn the rule from those opinions.

        An interruption leaves the experts trained so far, and the theorem with κ = 1.
        """
        self.folds = most_folds(train, self.folds)
        fitted = list(self.cross_fit(train, validation, trainer, self.folds))
        if len(fitted) < len(self.names):
            return
        opinions = [held_out for held_out, _, _ in fitted]
        assert train.y is not None
        rows = np.arange(len(train)) if train.weight is None else np.flatnonzero(train.weight)
        present = np.stack([train.present_in(name) for name in self.names], axis=1)
        learned = RuleData(
            np.stack(opinions, axis=1)[rows],
            self.task.encode(train.y)[rows],
            present[rows],
            None if train.weight is None else train.weight[rows],
        )
        fold_of = fitted[0][2][rows]
        fit_rule(self.rule, learned, folds_as_groups(train, fold_of))
        self._held_out = (learned, rows, fold_of)
        self._grouped = folds_as_groups(train, fold_of) is not None

    def held_out_output(self, rows: np.ndarray, present: np.ndarray) -> Tensor | None:
        """Out-of-fold opinions, fused by rules learned from the other folds; zeros for samples of weight 0."""
        output = self._fuse_held_out(rows, present)
        return output if output is None or self.task.classification else split_gaussian(output)[0]

    def held_out_variance(self, rows: np.ndarray, present: np.ndarray) -> Tensor | None:
        """The variances of the fused numbers of a regression; ones for samples of weight 0."""
        output = None if self.task.classification else self._fuse_held_out(rows, present)
        return None if output is None else split_gaussian(output)[1].exp()

    def forget_held_out(self) -> None:
        """Free the out-of-fold opinions and the folds' rules."""
        self._held_out = self._fold_rules = None

    def _build_rule(self) -> BayesRule | GaussianRule:
        if self.task.classification:
            return BayesRule(len(self.names), self.task.outputs, kappa=self.kappa, calibration=self.calibration)
        return GaussianRule(len(self.names), self.task.outputs, dependent=self.kappa != "none")

    def _fuse_held_out(self, rows: np.ndarray, present: np.ndarray) -> Tensor | None:
        """Out-of-fold opinions on rows `[k]` in the form that the rule returns; zeros for samples of weight 0."""
        if self._held_out is None:
            return None
        if self._fold_rules is None:
            self._fold_rules = self._fit_fold_rules()
        learned, known, fold_of = self._held_out
        place = np.searchsorted(known, rows).clip(max=len(known) - 1)
        output = torch.zeros(len(rows), learned.opinions.shape[2], dtype=torch.float64)
        for fold, rule in enumerate(self._fold_rules):
            chosen = np.flatnonzero((fold_of[place] == fold) & (known[place] == rows))
            opinions, there = learned.opinions[place[chosen]], present[chosen] & learned.present[place[chosen]]
            output[chosen] = rule(torch.from_numpy(opinions), torch.from_numpy(there)).double()
        return output

    def _fit_fold_rules(self) -> list[BayesRule | GaussianRule]:
        """One rule for each fold, learned from the opinions of the others."""
        assert self._held_out is not None
        learned, _, fold_of = self._held_out
        rules = []
        for fold in range(self.folds):
            others = np.flatnonzero(fold_of != fold)
            groups = fold_of[others] if self._grouped else None
            rules.append(fit_rule(self._build_rule().double(), learned.select(others), groups))
        return rules


def fit_rule(rule: Rule, learned: RuleData, groups: np.ndarray | None) -> Rule:
    """Fit a rule to opinions; κ̂ of a sample is estimated without its group, if groups `[n]` are given."""
    if groups is None or isinstance(rule, GaussianRule) or len(np.unique(groups)) < 2:
        return rule.fit(*learned[:3], weight=learned.weight)
    return rule.fit(*learned[:3], weight=learned.weight, groups=groups)
