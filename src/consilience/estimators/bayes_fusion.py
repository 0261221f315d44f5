"""Bayesian fusion of opinions as a scikit-learn estimator: for models that are trained already, or for its experts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, clone
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from consilience.bayes.bayes_rule import BayesRule
from consilience.bayes.opinion_inputs import read_distribution
from consilience.bayes.priors import estimate_target_prior
from consilience.bayes.reliability import OpinionReliability
from consilience.core.errors import InputError, unknown_name
from consilience.core.samples import Samples
from consilience.core.targets import check_labels
from consilience.estimators.bayes_fusion_saving import write_bayes
from consilience.estimators.class_order import encode_labels, find_classes, read_classes
from consilience.estimators.estimator_inputs import like_input
from consilience.estimators.opinion_sources import Heard, cross_fit_experts, fit_expert, hear, opine
from consilience.estimators.sklearn_parameters import NestedParameters
from consilience.evaluation.trust import trust_from_weights
from consilience.methods import Prediction


class BayesFusion(ClassifierMixin, NestedParameters):
    """Fuse what several experts say into one posterior, with the dependence between them learned from their opinions.

    kappa: how dependence is estimated: "gaussian", "copula", or "none" · calibration: of each expert, "temperature",
    "robust" (also a share of what it says that has nothing to do with the class, which bounds its influence: for
    experts who are sometimes wrong and sure of it), "bias" (also a bias per class) or None · prior: the classes' shares
    under which the experts were trained, "empirical" (those of y) or `[class]` · target_prior: the shares where it is
    used: None (the same), `[class]`, or "em", estimated from all the samples that are predicted together ·
    reliability: None, or "auto": experts who speak otherwise than they did in fitting are believed less (for those who
    are wrong in their usual voice it can do harm: there calibration="robust" helps) · from_probabilities: whether
    opinions are probabilities instead of logits · classes: the labels in the order of the opinions' columns, where they
    are not the sorted labels of y · experts: None, and opinions are fused; or a scikit-learn classifier, or a mapping
    modality → classifier, and X holds the modalities themselves · folds: of the experts' cross-fitting.

    Opinions for fitting must be on samples that the experts were not trained on (out-of-fold, or a set held out);
    with `experts` that is seen to.

    >>> from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    >>> from consilience import load_data
    >>> data = load_data("digits")
    >>> model = BayesFusion(experts=LinearDiscriminantAnalysis()).fit(data.train, data.train.y)
    >>> bool(model.score(data.test, data.test.y) > 0.95)
    True
    >>> model.predict_proba(data.test, present={"top_left": [False] * len(data.test)}).shape[1]
    10
    """

    nested = ("experts",)

    def __init__(
        self,
        kappa: str = "gaussian",
        *,
        calibration: str | None = "temperature",
        prior: Any = "empirical",
        target_prior: Any = None,
        reliability: str | None = None,
        from_probabilities: bool = False,
        classes: Any = None,
        experts: Any = None,
        folds: int = 5,
    ):
        self.kappa = kappa
        self.calibration = calibration
        self.prior = prior
        self.target_prior = target_prior
        self.reliability = reliability
        self.from_probabilities = from_probabilities
        self.classes = classes
        self.experts = experts
        self.folds = folds

    def fit(self, opinions: Any, y: Any = None, present: Any = None) -> BayesFusion:
        """Learn from opinions (mapping name → `[n, class]`, or `[n, modality, class]`) and labels y `[n]`.

        With `experts`: from modalities (mapping name → values, or `Samples`). present: `[n, modality]`.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        if self.reliability not in (None, "auto"):
            raise unknown_name("reliability", self.reliability, ["auto"], "Or None: every expert is taken as sound")
        heard, y_index = (self._hear if self.experts is None else self._train)(opinions, y, present)
        modalities, classes = heard.logits.shape[1:]
        prior = None if isinstance(self.prior, str) else read_distribution("prior", self.prior, classes)
        if isinstance(self.prior, str) and self.prior != "empirical":
            raise unknown_name("prior", self.prior, ["empirical"], "Or give the classes' shares [class]")
        if prior is not None and (prior[y_index] == 0).any():
            rows = np.flatnonzero(prior[y_index] == 0)
            raise InputError(f"prior: class {self.classes_[y_index[rows[0]]].item()!r} has share 0, but occurs in y")
        self._check_target_prior(classes)
        rule = BayesRule(modalities, classes, kappa=self.kappa, calibration=self.calibration).double()  # type: ignore[arg-type]
        rho = None
        if self.reliability == "auto":
            self.reliability_ = OpinionReliability(modalities).double()
            rho = self.reliability_.fit(_finite(heard.logits), heard.present)
        self.rule_ = rule.fit(heard.logits, y_index, heard.present, prior=prior, reliability=rho)
        self.modalities_, self.columns_ = heard.names, heard.columns
        return self

    def predict_log_proba(self, opinions: Any, present: Any = None) -> Any:
        """The log-posterior `[n, class]`, columns in the order of `classes_`."""
        return like_input(opinions, self._log_posterior(opinions, present))

    def predict_proba(self, opinions: Any, present: Any = None) -> Any:
        """The posterior `[n, class]`, columns in the order of `classes_`."""
        return like_input(opinions, np.exp(self._log_posterior(opinions, present)))

    def predict(self, opinions: Any, present: Any = None) -> Any:
        """The most probable label of each sample `[n]`."""
        return like_input(opinions, self._labels(opinions, present))

    def trust(self, opinions: Any, present: Any = None) -> Any:
        """How far each expert is trusted on each sample: `[n, modality]`, rows sum to 1 over what is present."""
        heard = self._read(opinions, present)
        return like_input(opinions, trust_from_weights(self._weights(heard).numpy(), heard.present))

    def full_prediction(self, opinions: Any, present: Any = None) -> Prediction:
        """All that is said, in tensors on the CPU: output (the log-posterior), opinions and weights.

        `extra["present"]` is who was there, `[n, modality]`; modalities are in the order of `modalities_`.
        """
        heard = self._read(opinions, present)
        output = torch.from_numpy(self._log_posterior(opinions, present))
        said, extra = torch.from_numpy(heard.logits), {"present": heard.present}
        return Prediction(output, opinions=said, weights=self._weights(heard), extra=extra)

    def score(self, opinions: Any, y: Any, sample_weight: Any = None, present: Any = None) -> float:
        """The share of samples whose label is predicted right."""
        labels = check_labels(y)
        encode_labels(labels, self.classes_)
        return float(accuracy_score(labels, self._labels(opinions, present), sample_weight=sample_weight))

    def save(self, path: str | Path) -> Path:
        """Write a folder of safetensors and JSON, and experts as skops has them, for `consilience.load`."""
        check_is_fitted(self, "rule_")
        return write_bayes(Path(path), self)

    def _labels(self, opinions: Any, present: Any) -> np.ndarray:
        chosen = self._log_posterior(opinions, present).argmax(axis=1)
        return self.classes_[chosen]

    def _log_posterior(self, opinions: Any, present: Any) -> np.ndarray:
        heard = self._read(opinions, present)
        logits, there = torch.from_numpy(heard.logits), torch.from_numpy(heard.present)
        rho = self._reliability(heard)
        posterior = self.rule_(logits, there, reliability=rho)
        if self.target_prior is None:
            return posterior.numpy()
        target = self.target_prior
        if isinstance(target, str):
            # Samples on which no one has an opinion would only pull the estimate back to the prior.
            spoken = there.any(1)
            prior = self.rule_.prior
            target = estimate_target_prior(posterior[spoken], prior) if bool(spoken.any()) else prior
        shares = read_distribution("target_prior", target, len(self.classes_))
        return self.rule_(logits, there, torch.from_numpy(shares), rho).numpy()

    def _reliability(self, heard: Heard) -> torch.Tensor | None:
        """How far each expert is sound on each sample, `[n, modality]`, if that is judged."""
        if self.reliability is None:
            return None
        return self.reliability_(torch.from_numpy(_finite(heard.logits)), torch.from_numpy(heard.present))

    def _weights(self, heard: Heard) -> torch.Tensor:
        """The weight of each expert's calibrated evidence, times how far it is sound if that is judged."""
        weights, rho = self.rule_.expert_weights(torch.from_numpy(heard.present)), self._reliability(heard)
        return weights if rho is None else weights * rho

    def _check_target_prior(self, classes: int) -> None:
        if isinstance(self.target_prior, str):
            if self.target_prior != "em":
                raise unknown_name("target prior", self.target_prior, ["em"], "Or give the classes' shares [class]")
        elif self.target_prior is not None:
            read_distribution("target_prior", self.target_prior, classes)

    def _hear(self, opinions: Any, y: Any, present: Any) -> tuple[Heard, np.ndarray]:
        """Opinions given, and labels as class indices."""
        heard = hear(opinions, present, probabilities=self.from_probabilities)
        labels = self._read_labels(y, len(heard.logits))
        self.classes_ = find_classes(self.classes, labels, heard.logits.shape[2], heard.columns)
        y_index = encode_labels(labels, self.classes_)
        _warn_if_perfect(heard, y_index)
        return heard, y_index

    def _train(self, X: Any, y: Any, present: Any) -> tuple[Heard, np.ndarray]:
        """Out-of-fold opinions of the experts, who are then trained on all samples."""
        samples = Samples.of(X, present=present)
        labels = self._read_labels(samples.y if y is None else y, len(samples))
        self.classes_ = np.unique(labels) if self.classes is None else read_classes(self.classes)
        y_index = encode_labels(labels, self.classes_)
        experts = self._experts_of(samples.names)
        logits = cross_fit_experts(experts, samples, y_index, self.classes_, self.folds)
        self.experts_ = {}
        for name, expert in experts.items():
            there = np.flatnonzero(samples.present_in(name))
            self.experts_[name] = fit_expert(name, clone(expert), samples[name][there], labels[there])
        return Heard(logits, samples.present, samples.names), y_index

    def _experts_of(self, names: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(self.experts, Mapping):
            return dict.fromkeys(names, self.experts)
        for name in self.experts:
            if name not in names:
                raise unknown_name("modality", name, names, "It was given in experts")
        for name in names:
            if name not in self.experts:
                raise InputError(f"experts: there is none for modality {name!r}; give one, or leave the modality out")
        return {name: self.experts[name] for name in names}

    def _read(self, opinions: Any, present: Any) -> Heard:
        """Opinions as in fitting; with experts, theirs on the modalities given."""
        check_is_fitted(self, "rule_")
        if self.experts is None:
            heard = hear(
                opinions,
                present,
                names=self.modalities_,
                classes=len(self.classes_),
                probabilities=self.from_probabilities,
            )
            if None not in (heard.columns, self.columns_) and heard.columns != self.columns_:
                raise InputError(f"the opinions' columns must be {self.columns_}, as in fitting, got {heard.columns}")
            return heard
        samples = Samples.of(opinions, present=present)
        logits = np.zeros((len(samples), len(self.modalities_), len(self.classes_)))
        there = np.zeros(logits.shape[:2], dtype=bool)
        for name in samples.names:
            if name not in self.modalities_:
                raise unknown_name("modality", name, self.modalities_, "The fusion was fitted on the known ones")
            place, rows = self.modalities_.index(name), np.flatnonzero(samples.present_in(name))
            there[rows, place] = True
            if len(rows):
                logits[rows, place] = opine(self.experts_[name], samples[name][rows], self.classes_)
        return Heard(logits, there, self.modalities_)

    def _read_labels(self, y: Any, n: int) -> np.ndarray:
        if y is None:
            raise InputError("BayesFusion requires y to be passed, but the target y is None")
        labels = check_labels(y)
        if len(labels) != n:
            raise InputError(f"y has {len(labels)} labels, the opinions have {n} rows")
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.dict = True
        tags.input_tags.three_d_array = True
        return tags


def _finite(logits: np.ndarray) -> np.ndarray:
    """Logits with −inf as the least probability there is, to be measured."""
    return np.maximum(logits, logits.max(axis=2, keepdims=True) - 745.0)


def _warn_if_perfect(heard: Heard, y: np.ndarray) -> None:
    wrong = (heard.logits.argmax(axis=2) != y[:, None]) & heard.present
    never = np.flatnonzero(heard.present.any(axis=0) & ~wrong.any(axis=0))
    perfect = [heard.names[place] for place in never]
    if perfect:
        warnings.warn(
            f"{', '.join(map(repr, perfect))} is right on every sample given to fit. If these are the samples the "
            "experts were trained on, their opinions look better than they are: use out-of-fold opinions "
            "(sklearn.model_selection.cross_val_predict), or samples held out",
            UserWarning,
            stacklevel=4,
        )
