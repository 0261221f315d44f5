"""Bayesian fusion of opinions as a scikit-learn estimator: of given opinions, or of experts that it trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, clone
from sklearn.metrics import accuracy_score

from consilience.bayes.bayes_rule import BayesRule
from consilience.bayes.fuse import fuse
from consilience.bayes.opinion_inputs import finite_logits, read_distribution
from consilience.bayes.opinion_trust import OpinionTrust, Trusted
from consilience.bayes.priors import estimate_target_prior
from consilience.bayes.reliability import OpinionReliability
from consilience.core.errors import InputError, unknown_name
from consilience.core.samples import Samples, check_weight
from consilience.core.settings import checked
from consilience.core.targets import Task, check_labels
from consilience.estimators.answer_types import like_input
from consilience.estimators.expert_prior import expert_prior
from consilience.estimators.explaining import Explains, MaskedModel
from consilience.estimators.online import LabelledOpinions, LearnsOnline, evidence_of
from consilience.estimators.opinion_sources import (
    OpinionSet,
    cross_fit_experts,
    encode_labels,
    expert_opinions,
    experts_by_modality,
    find_classes,
    fit_expert,
    read_classes,
    read_opinion_set,
    read_rows,
)
from consilience.estimators.opinion_warnings import warn_if_perfect
from consilience.estimators.prediction_sets import PredictsSets
from consilience.estimators.saving import write_bayes
from consilience.estimators.sklearn_parameters import DeclaredParameters, check_fitted
from consilience.evaluation.conformal_outputs import Outputs, Predict, mean_reliability
from consilience.evaluation.trust import trust_from_weights
from consilience.methods import Prediction


class BayesFusion(ClassifierMixin, LearnsOnline, Explains, PredictsSets, DeclaredParameters):
    """Fuse the opinions of several experts into one posterior, with their dependence learned from the opinions.

    Opinions for fitting must be on samples that the experts were not trained on, out-of-fold or held out; with
    `experts` the estimator makes them by cross-fitting.

    Args:
        kappa: Model of the dependence: "gaussian", "copula" or "none".
        calibration: Of each expert: "temperature"; "bias" (also a bias per class); "robust" (also a share of opinions
            that are independent of the class, which bounds the influence of an expert that is confident and wrong);
            "auto" (the mean of the log-probabilities of "temperature" and "robust", or "robust" alone if its
            cross-fitted log-loss after fusion is clearly lower); or None.
        prior: Class shares under which the experts were trained: "empirical" (those of y), "experts" (estimated from
            their opinions), `[class]`, or those of each expert, `[expert, class]` or a mapping.
        target_prior: Class shares where the fusion is used: None (the same; the mean over experts with different
            ones), `[class]`, or "em" (estimated from all samples that are predicted together, see
            `estimate_target_prior`).
        reliability: None, or "auto": experts whose opinions look different from those in fitting get less weight.
            This can be harmful for experts that are wrong without looking different; there use calibration="robust".
            "graded": how far an expert whose opinion looks different, or contradicts the others, can still be used is
            learned from opinions that are spoilt on purpose. Samples that look sound are answered as with None.
        from_probabilities: Whether opinions are probabilities instead of logits.
        classes: Labels in the order of the opinions' columns, if these are not the sorted labels of y.
        experts: None if opinions are given. Else X holds the modalities: a scikit-learn classifier, or modality →
            classifier.
        folds: Folds of the experts' cross-fitting.

    Example:
        >>> from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
        >>> from consilience import load_data
        >>> data = load_data("digits")
        >>> model = BayesFusion(experts=LinearDiscriminantAnalysis()).fit(data.train, data.train.y)
        >>> bool(model.score(data.test, data.test.y) > 0.95)
        True
        >>> model.predict_proba(data.test, present={"top_left": [False] * len(data.test)}).shape[1]
        10
    """

    first = "kappa"
    nested = ("experts",)

    kappa: str = "gaussian"
    calibration: str | None = "auto"
    prior: Any = "empirical"
    target_prior: Any = None
    reliability: str | None = None
    from_probabilities: bool = False
    classes: Any = None
    experts: Any = None
    folds: int = 5

    @checked
    def fit(
        self, opinions: Any, y: Any = None, present: Any = None, sample_weight: Any = None, groups: Any = None
    ) -> BayesFusion:
        """Fit calibration and dependence.

        Args:
            opinions: Mapping name → `[n, class]`, or `[n, modality, class]`; with `experts` the modalities, a mapping
                name → values or `Samples`.
            y: Labels `[n]`.
            present: Booleans `[n, modality]`; False: missing.
            sample_weight: Weights `[n]` of the samples in calibration, prior and coefficients, and in training the
                experts; the Gaussians and copulas ignore them, but for samples of weight 0, which are left out.
            groups: Labels `[n]`, such as patients or recordings; samples with the same one stay in the same fold.
        """
        self._forget()
        self._check_declared()
        if self.reliability not in (None, "auto", "graded"):
            raise unknown_name(
                "reliability", self.reliability, ["auto", "graded"], "Or None: all are taken as reliable"
            )
        if self.experts is None:
            opinion_set, y_index = self._read_given(opinions, y, present)
            weight, group_of = read_rows(sample_weight, groups, len(y_index))
        else:
            opinion_set, y_index, weight, group_of = self._train(opinions, y, present, sample_weight, groups)
        if weight is not None:
            rows = np.flatnonzero(weight)
            opinion_set = opinion_set.select(rows)
            y_index, weight, group_of = y_index[rows], weight[rows], None if group_of is None else group_of[rows]
        modalities, classes = opinion_set.logits.shape[1:]
        prior = expert_prior(self.prior, opinion_set, y_index, weight, self.classes_)
        self._check_target_prior(classes)
        rho = None
        if self.reliability == "auto":
            self.reliability_ = OpinionReliability(modalities).double()
            rho = self.reliability_.fit(finite_logits(opinion_set.logits), opinion_set.present)

        def fit_rule(rows: np.ndarray) -> BayesRule:
            own = None if group_of is None else group_of[rows]
            if own is not None and len(rows) < len(y_index) and len(np.unique(own)) < 2:
                own = None  # of two groups one was left out: κ̂ is cross-fitted within the other
            rule = BayesRule(modalities, classes, kappa=self.kappa, calibration=self.calibration).double()  # type: ignore[arg-type]
            return rule.fit(
                opinion_set.logits[rows],
                y_index[rows],
                opinion_set.present[rows],
                prior=prior,
                weight=None if weight is None else weight[rows],
                reliability=rho,
                groups=own,
            )

        self.rule_ = fit_rule(np.arange(len(y_index)))
        if self.reliability == "graded":
            self.graded_ = OpinionTrust(modalities).double()
            self.graded_.fit(
                self.rule_,
                opinion_set.logits,
                y_index,
                opinion_set.present,
                fit_rule=fit_rule,
                weight=weight,
                groups=group_of,
            )
        self.modalities_, self.columns_ = opinion_set.names, opinion_set.columns
        self.evidence_ = evidence_of(y_index, classes, weight)
        return self

    def _why_no_update(self) -> str | None:
        check_fitted(self, "rule_")
        return None

    def _labelled_opinions(self, X: Any, y: Any, present: Any, weight: Any) -> LabelledOpinions:
        said = self._read(X, present)
        labels = encode_labels(self._read_labels(y, len(said.logits)), self.classes_)
        return LabelledOpinions(self.rule_, said.logits, labels, said.present, read_rows(weight, None, len(labels))[0])

    def _put_rule(self, rule: BayesRule, evidence: float) -> None:
        self.rule_, self.evidence_ = rule, evidence

    @checked
    def estimate_target_prior(self, opinions: Any, present: Any = None) -> np.ndarray:
        """Return the class shares of these samples, estimated by expectation maximisation: `[class]`.

        With `target_prior="em"` these are the shares that predictions of the same samples use.
        """
        opinion_set = self._read(opinions, present)
        return self._estimate_shares(opinion_set, self.rule_)

    @checked
    def predict_log_proba(self, opinions: Any, present: Any = None) -> Any:
        """Return the log-posterior `[n, class]`, columns in the order of `classes_`."""
        return like_input(opinions, self._log_posterior(opinions, present))

    @checked
    def predict_proba(self, opinions: Any, present: Any = None) -> Any:
        """Return the posterior `[n, class]`, columns in the order of `classes_`."""
        return like_input(opinions, np.exp(self._log_posterior(opinions, present)))

    @checked
    def predict(self, opinions: Any, present: Any = None) -> Any:
        """Return the most probable label of each sample `[n]`."""
        return like_input(opinions, self._labels(opinions, present))

    @checked
    def trust(self, opinions: Any, present: Any = None) -> Any:
        """Return the trust in each expert per sample `[n, modality]`; rows sum to 1 over the present experts."""
        opinion_set = self._read(opinions, present)
        return like_input(opinions, trust_from_weights(self._weights(opinion_set).numpy(), opinion_set.present))

    @checked
    def full_prediction(self, opinions: Any, present: Any = None) -> Prediction:
        """Return output (the log-posterior), opinions and weights as CPU tensors.

        `extra["present"]` is `[n, modality]`, and so is `extra["reliability"]` if it is estimated; modalities are in
        the order of `modalities_`.
        """
        opinion_set, output = self._read(opinions, present), torch.from_numpy(self._log_posterior(opinions, present))
        logits, rho = torch.from_numpy(opinion_set.logits), self._reliability(opinion_set)
        extra = {"present": opinion_set.present} | ({} if rho is None else {"reliability": rho})
        return Prediction(output, opinions=logits, weights=self._weights(opinion_set), extra=extra)

    @checked
    def score(self, opinions: Any, y: Any, sample_weight: Any = None, present: Any = None) -> float:
        """Return the accuracy."""
        predicted = self._labels(opinions, present)
        encode_labels(labels := self._read_labels(y, len(predicted)), self.classes_)
        weight = None if sample_weight is None else check_weight(sample_weight, len(labels))
        return float(accuracy_score(labels, predicted, sample_weight=weight))

    @checked
    def save(self, path: str | Path) -> Path:
        """Write a folder of safetensors and JSON, and experts in the format of skops, for `consilience.load`."""
        self._check_fitted()
        return write_bayes(Path(path), self)

    def _check_fitted(self) -> None:
        check_fitted(self, "rule_")

    def _labels(self, opinions: Any, present: Any) -> np.ndarray:
        found = self._log_posterior(opinions, present).argmax(axis=1)  # checks first that this is fitted
        return self.classes_[found]

    def _log_posterior(self, opinions: Any, present: Any) -> np.ndarray:
        opinion_set, rule = self._read(opinions, present), self.rule_
        return self._fuse(opinion_set, self._target_shares(opinion_set, rule), rule)

    def _fuse(self, opinion_set: OpinionSet, shares: torch.Tensor | None, rule: BayesRule) -> np.ndarray:
        """The log-posterior under class shares; None: those under which the experts were trained.

        rule: That of the whole prediction, since `partial_fit` in another thread may put another one in its place.
        """
        if self.reliability != "graded":
            logits, there = torch.from_numpy(opinion_set.logits), torch.from_numpy(opinion_set.present)
            return rule(logits, there, shares, self._reliability(opinion_set)).numpy()
        prior, target = rule.prior, rule.target if shares is None else shares
        posterior = self._graded(opinion_set, rule).log_posterior
        # One opinion under the shares of y, moved to the target.
        return fuse(posterior[:, None], prior / prior.sum(), target_prior=target / target.sum()).numpy()

    def _target_shares(self, opinion_set: OpinionSet, rule: BayesRule) -> torch.Tensor | None:
        if (target := self.target_prior) is None:
            return None
        if isinstance(target, str):
            target = self._estimate_shares(opinion_set, rule)
        return torch.from_numpy(read_distribution("target_prior", target, len(self.classes_)))

    def _masked(self, X: Any, present: Any) -> MaskedModel:
        opinion_set, rule = self._read(X, present), self.rule_
        # The shares of the classes are estimated from the samples as they are, not with modalities hidden.
        shares = self._target_shares(opinion_set, rule)

        def outputs(rows: np.ndarray, masks: np.ndarray) -> np.ndarray:
            return self._fuse(opinion_set.select(rows, masks), shares, rule)

        extra = {} if self.reliability is None else {"reliability": self._reliability(opinion_set)}
        logits = torch.from_numpy(opinion_set.logits)
        prediction = Prediction(logits[:, 0], opinions=logits, weights=self._weights(opinion_set), extra=extra)
        task = Task("classification", len(self.classes_), classes=self.classes_)
        return MaskedModel(self.modalities_, task, opinion_set.present, prediction, outputs)

    def _estimate_shares(self, opinion_set: OpinionSet, rule: BayesRule) -> np.ndarray:
        """The shares of the classes by expectation maximisation, from the posterior under the experts' prior."""
        spoken = opinion_set.present.any(1)  # samples without any opinion would only pull the estimate to the prior
        posterior, prior = self._fuse(opinion_set, None, rule)[spoken], rule.target.numpy()
        return estimate_target_prior(posterior, prior / prior.sum()) if spoken.any() else prior

    def _conformal_outputs(self, X: Any, present: Any) -> tuple[Outputs, np.ndarray]:
        opinion_set = self._read(X, present)
        return self._outputs(opinion_set), opinion_set.present

    def _calibration_data(self, X: Any, y: Any, present: Any) -> tuple[np.ndarray, np.ndarray, Predict]:
        opinion_set = self._read(X, present)
        labels = self._read_labels(X.y if y is None and isinstance(X, Samples) else y, len(opinion_set.logits))

        def predict(rows: np.ndarray, mask: np.ndarray) -> Outputs:
            return self._outputs(opinion_set.select(rows, mask))

        return opinion_set.present, encode_labels(labels, self.classes_), predict

    def _outputs(self, opinion_set: OpinionSet) -> Outputs:
        """What conformal prediction needs."""
        rho = self._reliability(opinion_set)
        mean = None if rho is None else mean_reliability(rho.double().numpy(), opinion_set.present)
        used = self.rule_
        return Outputs(self._fuse(opinion_set, self._target_shares(opinion_set, used), used), mean)

    def _reliability(self, opinion_set: OpinionSet) -> torch.Tensor | None:
        """The reliability of each expert per sample, `[n, modality]`, if it is estimated."""
        if self.reliability is None:
            return None
        if self.reliability == "graded":
            return self._graded(opinion_set, self.rule_).reliability
        self._check_learned("reliability_")
        return self.reliability_(
            torch.from_numpy(finite_logits(opinion_set.logits)), torch.from_numpy(opinion_set.present)
        )

    def _graded(self, opinion_set: OpinionSet, rule: BayesRule) -> Trusted:
        """Posterior under the shares of y, reliability and trust, learned from spoilt opinions."""
        self._check_learned("graded_")
        return self.graded_(rule, torch.from_numpy(opinion_set.logits), torch.from_numpy(opinion_set.present))

    def _check_learned(self, attribute: str) -> None:
        if not hasattr(self, attribute):
            raise InputError(f"reliability is {self.reliability!r}, but the fusion was fitted without it: fit it again")

    def _weights(self, opinion_set: OpinionSet) -> torch.Tensor:
        """The weight of each expert's calibrated evidence, times its reliability if that is estimated."""
        rule = self.rule_
        weights = rule.expert_weights(torch.from_numpy(opinion_set.present))
        if self.reliability == "graded":
            return weights * self._graded(opinion_set, rule).trust
        rho = self._reliability(opinion_set)
        return weights if rho is None else weights * rho

    def _check_target_prior(self, classes: int) -> None:
        if isinstance(self.target_prior, str):
            if self.target_prior != "em":
                raise unknown_name("target prior", self.target_prior, ["em"], "Or give the classes' shares [class]")
        elif self.target_prior is not None:
            read_distribution("target_prior", self.target_prior, classes)

    def _read_given(self, opinions: Any, y: Any, present: Any) -> tuple[OpinionSet, np.ndarray]:
        """Opinions given, and labels as class indices."""
        opinion_set = read_opinion_set(opinions, present, probabilities=self.from_probabilities)
        labels = self._read_labels(y, len(opinion_set.logits))
        self.classes_ = find_classes(self.classes, labels, opinion_set.logits.shape[2], opinion_set.columns)
        y_index = encode_labels(labels, self.classes_)
        warn_if_perfect(opinion_set, y_index)
        return opinion_set, y_index

    def _train(
        self, X: Any, y: Any, present: Any, sample_weight: Any, groups: Any
    ) -> tuple[OpinionSet, np.ndarray, np.ndarray | None, np.ndarray | None]:
        """Out-of-fold opinions of the experts, which are then trained on all samples."""
        samples = Samples.of(X, present=present)
        labels = self._read_labels(samples.y if y is None else y, len(samples))
        self.classes_ = np.unique(labels) if self.classes is None else read_classes(self.classes)
        y_index = encode_labels(labels, self.classes_)
        experts = experts_by_modality(self.experts, samples.names)
        weight, group_of = read_rows(sample_weight, groups, len(y_index))
        logits = cross_fit_experts(experts, samples, y_index, self.classes_, self.folds, weight, group_of)
        self.experts_ = {}
        for name, expert in experts.items():
            there = np.flatnonzero(samples.present_in(name))
            counted = None if weight is None else weight[there]
            self.experts_[name] = fit_expert(name, clone(expert), samples[name][there], labels[there], counted)
        return OpinionSet(logits, samples.present, samples.names), y_index, weight, group_of

    def _read(self, opinions: Any, present: Any) -> OpinionSet:
        """Opinions as in fitting; with experts, their opinions on the modalities."""
        check_fitted(self, "rule_")
        if self.experts is None:
            opinion_set = read_opinion_set(
                opinions,
                present,
                names=self.modalities_,
                classes=len(self.classes_),
                probabilities=self.from_probabilities,
            )
            if None not in (opinion_set.columns, self.columns_) and opinion_set.columns != self.columns_:
                raise InputError(f"columns of the opinions must be {self.columns_}, got {opinion_set.columns}")
            return opinion_set
        samples = Samples.of(opinions, present=present)
        return expert_opinions(self.experts_, samples, self.modalities_, self.classes_)

    def _read_labels(self, y: Any, n: int) -> np.ndarray:
        if y is None:
            raise InputError("BayesFusion requires y to be passed, but the target y is None")
        labels = check_labels(y)
        if len(labels) != n:
            raise InputError(f"y has {len(labels)} labels, the opinions have {n} rows")
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags
