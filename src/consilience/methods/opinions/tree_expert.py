"""The expert of a table of numbers whose opinion comes from decision trees: nothing is trained by gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.bayes.calibration import precise_dtype
from consilience.bayes.learned_buffers import Learned
from consilience.core.batches import Batch
from consilience.core.errors import SavedModelError
from consilience.core.samples import Samples
from consilience.encoders import Trees, build_encoder
from consilience.encoders.trees import TreeKind
from consilience.methods import Prediction, Spec
from consilience.methods.opinions.tree_ensembles import TreeEnsemble, TreeTable, read_trees, send_missing
from consilience.methods.opinions.unimodal import Unimodal, samples_with
from consilience.training import Trainer
from consilience.training.shared_training import once
from consilience.training.whole_set import whole_batches

# What the settings are where they are None, by kind: docs/guide/encoders.md says by which figures they were chosen.
TREES: dict[TreeKind, int] = {"extra": 200, "boosted": 100}
LEAF: dict[TreeKind, int] = {"extra": 2, "boosted": 10}
FEATURES_OF_BOOSTING = 0.3
# Extra trees grow until their leaves are pure, which a few samples far away can make very deep.
_DEPTH = 64
# Trees that know the class shares alone, for each class, by which the opinion of a forest is smoothed.
_SMOOTHING = 2


class TreeExpert(Unimodal):
    """The expert of one vector modality, an ensemble of decision trees on its standardised values.

    Its logits are ln p, where p are the class probabilities of the trees mixed with a little of the class shares π:
    no class has probability 0, also one that no training sample has.

        p(c | x) = (1 − ε) p_trees(c | x) + ε π_c

    Extra trees: p_trees is the mean of the class shares in the leaves, and ε = 2C / (trees + 2C) for C classes, as if
    two more trees for each class knew π alone. Boosted trees: p_trees = softmax(raw scores), and ε = 1 / (n + 1) for n
    training samples. Where the modality is missing, the output is ln π.

    Trees see noisy copies of the samples if the training is augmented. Other settings of training, but for the seed,
    have no effect.
    """

    trains_by_gradients = False

    def __init__(self, spec: Spec, modality: str):
        # Not that of Unimodal, which builds a head on features.
        super(Unimodal, self).__init__(spec)
        encoder = build_encoder(spec.modalities[modality], spec.encoders[modality], needs_features=False)
        assert isinstance(encoder, Trees)
        self.modality, self.encoder = modality, encoder
        self.opinion = TreeOpinion(math.prod(spec.modalities[modality].shape), spec.task.outputs)

    def forward(self, batch: Batch) -> Prediction:
        """The opinion of the trees; the class shares where the modality is missing."""
        there = batch.present_in(self.modality)
        log_p = self.opinion(batch[self.modality])
        prior = self.opinion.log_prior.to(log_p)
        output = torch.where(there[:, None], log_p, prior)
        return Prediction(output.to(torch.promote_types(batch[self.modality].dtype, torch.float32)))

    def learn_at_once(self, train: Samples, trainer: Trainer) -> None:
        """Fit the trees to the samples that have the modality."""
        x, y, weight = training_table(train, self.modality, trainer)
        self.opinion.fit(x, y, weight, self.encoder, trainer.seed)  # type: ignore[arg-type]


class TreeOpinion(Learned):
    """Class probabilities from decision trees: what a `TreeExpert` learns.

    Args:
        features: Size of the input.
        classes: Number of classes.
        missing: Whether features may be NaN, which boosted trees then have learned from.
    """

    log_prior: Tensor
    seen: Tensor
    mixed: Tensor
    boosted: Tensor

    def __init__(self, features: int, classes: int, *, missing: bool = False):
        super().__init__()
        self.missing = missing
        self.trees = TreeEnsemble(2 * features if missing else features, classes)
        self.learn(log_prior=torch.full((classes,), -math.log(classes)), mixed=torch.tensor(1.0))
        self.learn(seen=torch.arange(classes), boosted=torch.tensor(False))

    def forward(self, x: Tensor) -> Tensor:
        """x `[batch, feature]` → ln p `[batch, class]`, in 64 bits where the device has them."""
        log_prior = self.log_prior.to(precise_dtype(x))
        if not len(self.trees.root):
            return log_prior.expand(x.shape[0], -1)
        found = self.trees(send_missing(x) if self.missing else x)
        if self.known("boosted"):
            scores = torch.cat([-found / 2, found / 2], dim=1) if found.shape[1] == 1 else found
            found = scores.softmax(dim=1)
        p = found.new_zeros(x.shape[0], len(log_prior)).index_copy(1, self.seen, found)
        mixed = self.mixed.to(p)
        return torch.log((1 - mixed) * p + mixed * log_prior.exp())

    def fit(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray, settings: Trees, seed: int) -> TreeOpinion:
        """Fit trees to x `[n, feature]`, classes y `[n]` and weights `[n]`; without two classes, only class shares."""
        classes = len(self.log_prior)
        used = weight > 0
        x, y, weight = x[used], y[used], weight[used] * used.sum() / max(weight.sum(), 1e-300)
        seen = np.unique(y)
        # One sample, spread over all classes, keeps the share of a class above 0.
        shares = (np.bincount(y, weights=weight, minlength=classes) + 1 / classes) / (len(y) + 1)
        self.learn(log_prior=np.log(shares), seen=seen, boosted=torch.tensor(settings.kind == "boosted"))
        self.trees = TreeEnsemble(self.trees.features, classes).to(self.log_prior.device)
        if len(seen) < 2:
            self.learn(mixed=1.0)
            return self
        # Methods of a comparison have such trees in common.
        own = (settings.kind, settings.trees, settings.leaf, settings.features, settings.leaves, settings.rate)
        grow = partial(_grow, x, y, weight, settings, seed, self.missing)
        table = once(["trees", *own, settings.l2, seed, self.missing, x, y, weight], grow)
        if settings.kind == "boosted":
            self.learn(mixed=1 / (len(y) + 1))
        else:
            ignorant = _SMOOTHING * classes
            self.learn(mixed=ignorant / (len(table.root) + ignorant))
        self.trees.take(table)
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        names = [*self._buffers, "trees.root", "trees.baseline"]
        saved = {name: state_dict[prefix + name] for name in names if prefix + name in state_dict}
        reason = reason_against(saved, len(self.log_prior)) if len(saved) == len(names) else None
        if reason is not None:
            raise SavedModelError(f"the saved trees {prefix.rstrip('.')!r} are damaged: {reason}")
        super()._load_from_state_dict(state_dict, prefix, *args)


def _grow(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray, settings: Trees, seed: int, missing: bool = False
) -> TreeTable:
    """Grow the trees of the settings from x `[n, feature]`, classes y `[n]` and weights `[n]`."""
    model = build_model(settings, len(y), seed)
    if settings.kind == "extra":
        model.fit(x, y, sample_weight=weight)
    else:
        on_one_thread(model.fit, x, y, sample_weight=weight)
    return read_trees(model, missing=missing)


def reason_against(saved: Mapping[str, Tensor], classes: int) -> str | None:
    """What is wrong with the tensors of a saved `TreeOpinion`, which may hold anything; or None."""
    shapes = {"log_prior": (classes,), "mixed": (), "boosted": ()}
    for name, shape in shapes.items():
        if saved[name].shape != shape:
            return f"{name} has the shape {list(saved[name].shape)}"
    seen = saved["seen"]
    if seen.ndim != 1 or seen.dtype != torch.int64 or not set(seen.tolist()) <= set(range(classes)):
        return f"the classes that they tell apart are not among {classes}"
    # Boosting has one score for two classes.
    columns = saved["trees.baseline"].numel()
    told = 2 if saved["boosted"] and columns == 1 else columns
    if saved["trees.root"].numel() and (told != len(seen) or len(seen.unique()) != len(seen)):
        return f"they have {columns} outputs for {len(seen)} classes"
    return None


def training_table(train: Samples, modality: str, trainer: Trainer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The prepared values `[n, feature]`, classes `[n]` and weights `[n]` of the samples that have a modality.

    With augmentation they are noisy copies; samples whose modality it hides are left out of a copy.
    """
    some = samples_with(train, modality)
    rows = train if some is None else some  # where no sample has it, trees of equal values know the class shares
    parts = []
    for batch in whole_batches(rows, trainer, modality):
        assert batch.y is not None
        there = batch.present_in(modality) | (some is None)
        parts.append((batch[modality][there].numpy(), batch.y[there].numpy(), batch.weight[there].double().numpy()))
    x, y, weight = map(np.concatenate, zip(*parts))
    return x, y, weight


def build_model(settings: Trees, samples: int, seed: int) -> Any:
    """The scikit-learn classifier of the settings, for a number of training samples."""
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier

    trees, leaf = settings.trees or TREES[settings.kind], settings.leaf or LEAF[settings.kind]
    if settings.kind == "extra":
        return ExtraTreesClassifier(
            trees,
            min_samples_leaf=leaf,
            max_features=settings.features or "sqrt",
            max_depth=_DEPTH,
            random_state=seed % 2**32,
            n_jobs=1,
        )
    return HistGradientBoostingClassifier(**boosting_arguments(settings, seed))


def boosting_arguments(settings: Trees, seed: int) -> dict[str, Any]:
    """The arguments of scikit-learn's `HistGradientBoosting…` for the settings."""
    return {
        "max_iter": settings.trees or TREES["boosted"],
        "learning_rate": settings.rate,
        "max_leaf_nodes": settings.leaves,
        "min_samples_leaf": settings.leaf or LEAF["boosted"],
        "l2_regularization": settings.l2,
        "max_features": settings.features or FEATURES_OF_BOOSTING,
        "early_stopping": False,
        "random_state": seed % 2**32,
    }


def on_one_thread(fit: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the `fit` of gradient boosting on one thread: sums over threads would differ in the last bits."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # scikit-learn brings it

    with threadpool_limits(1, user_api="openmp"):
        return fit(*args, **kwargs)


def training_seconds(kind: TreeKind, rows: int, features: int, classes: int, trees: int | None = None) -> float:
    """About how long one core fits the trees of one expert, to leave out what takes too long.

    Boosting grows a tree for each class in each round, extra trees serve all classes at once. The constants were
    measured on tables of 140 to 2 000 rows and 6 to 240 features; a machine may take several times as long.

    Args:
        kind: Of the trees.
        rows: Training samples.
        features: Size of the modality.
        classes: Number of classes.
        trees: As in the settings of `trees`.

    >>> training_seconds("boosted", 1000, 50, 100) > 5 * training_seconds("extra", 1000, 50, 100)
    True
    """
    grown = (trees or TREES[kind]) * (classes if kind == "boosted" and classes > 2 else 1)
    if kind == "extra":
        return grown * (4.5e-4 + 9e-9 * rows * math.log2(rows + 2) * math.sqrt(features))
    return grown * (2e-4 + 6e-9 * rows * features)
