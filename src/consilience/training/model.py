"""A trained method with the preparation of its inputs: fit, predict, save and load, and a check of its weights."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.correlation import Correlation, correlation, static_weights
from consilience.core.errors import InputError, SavedModelError, TrustWarning, name_rows
from consilience.core.evenly_spread import evenly_spread
from consilience.core.samples import Samples
from consilience.core.seeding import seeded
from consilience.core.settings import checked
from consilience.core.targets import Task, TaskKind
from consilience.corruption import Corruptor, Statistics
from consilience.data import read_with_recipe
from consilience.encoders import EncoderChoice, as_chosen, describe_encoders, own_transforms
from consilience.methods import Method, Prediction, Spec, build, choose_encoders, expert_losses
from consilience.methods.registration import default_settings, former_defaults
from consilience.preparation import Preparation
from consilience.training.batch_loader import BatchLoader
from consilience.training.building_limits import BuildingLimits
from consilience.training.class_weights import ClassWeight as ClassWeight
from consilience.training.class_weights import weigh_classes
from consilience.training.devices import resolve_device
from consilience.training.loggers import say_trained
from consilience.training.model_folder import (
    EXTRA,
    Folder,
    add_given,
    check_described,
    loading,
    prefixed,
    read_description,
    read_folder,
    write_folder,
)
from consilience.training.module_inventory import ModuleInventory, ready_to_predict
from consilience.training.shared_training import not_sharing
from consilience.training.time_limit import say_out_of_time
from consilience.training.trainer import Trainer, check_set, predict, predict_batch
from consilience.training.training_log import Log

_METHOD, _PREPARATION = "method.", "preparation."
_FIELDS = {"method": str, "settings": dict, "encoders": dict, "preparation": dict, "extra": dict}
# How far the check of trust corrupts samples, the milder of the levels in Zhang et al.: noise of five standard
# deviations, or every second word, on every second modality. Below it, confidence may still fall with the noise where
# it rises beyond.
TRUST_LEVEL = 5.0
# Samples that the check of trust scores. With so many, a correlation of 0.1 is significant.
TRUST_SAMPLES = 500
# Methods to recommend; the one that is warned about is left out.
_UNMOVED_BY_CONFIDENCE = ("late-probs", "bayes-robust")


@dataclass
class Model:
    """A trained method with everything needed to use it.

    Attributes:
        name: Registered name of the method.
        settings: Of the method.
        encoders: Chosen encoders by modality.
        method: The trained module.
        preparation: How samples become batches, fitted on the training samples.
        logs: One log per training run.
        recipe: How the training data were read, `DataSet.recipe()`.
        misplaced_trust: The modalities that fitting warned of, with their correlations.
        rows: Number of training samples; 0 for a model that was loaded.
        fitted_on: The number of training samples ("rows"), of validation samples ("validation"), and the share of the
            training samples in which each modality was missing ("missing"); kept when the model is saved.

    Example:
        >>> from consilience.data import load_data
        >>> data = load_data("digits")
        >>> model = Model.fit("concat", data.train, data.validation, trainer=Trainer(epochs=3))
        >>> model.predict(data.test).output.shape[1]
        10
    """

    name: str
    settings: dict[str, Any]
    encoders: dict[str, EncoderChoice]
    method: Method
    preparation: Preparation
    logs: list[Log]
    recipe: Mapping[str, Any] | None = None
    misplaced_trust: dict[str, Correlation] = field(default_factory=dict)
    rows: int = 0
    fitted_on: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] | None = None
    _inventory: ModuleInventory | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    @checked
    def fit(
        cls,
        name: str,
        train: Samples,
        validation: Samples | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        encoders: Mapping[str, EncoderChoice] | Literal["auto"] | None = None,
        task: TaskKind | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        trainer: Trainer | None = None,
        keep_held_out: bool = False,
        whole: Samples | None = None,
    ) -> Model:
        """Learn the task, prepare, build the method by name, and train it.

        Warns (`TrustWarning`) if the method trusts a modality more when it is wrong. This is measured on the
        validation set; without one on the training set, where losses are too low.

        Args:
            name: Registered name of the method.
            train: Training samples.
            validation: Samples for early stopping. With a trainer that has `refit_steps`, the method is refitted on
                `train`.
            settings: Of the method.
            encoders: Encoders by modality; the method's defaults for the others. "auto": see `choose_encoders`.
            task: Classification or regression. None: as the targets are.
            class_weight: Weight of each class, or "balanced".
            trainer: How to train.
            keep_held_out: Whether a method that cross-fits keeps its out-of-fold opinions, for `held_out_output`.
            whole: Training and validation samples together, from which a method learns that needs no validation
                samples (`Method.needs_validation`).
        """
        check_set("training", train)
        if validation is not None:
            check_set("validation", validation)
        assert train.y is not None
        learned = Task.of(train.y, task, train.weight)
        given = train
        if class_weight is not None:
            train = Samples.of(train, weight=weigh_classes(train, learned, class_weight))
        own = {} if encoders == "auto" else encoders or {}
        preparation = Preparation.fit(train, learned, own_transforms(train.modalities, own))
        # A trainer may be used for several models; what one of them learns stays with it.
        trainer = trainer or Trainer()
        deadline = None if trainer.deadline is None else trainer.deadline.anew()
        trainer = replace(trainer, preparation=preparation, logs=[], deadline=deadline)
        chosen = choose_encoders(name, encoders, preparation.modalities, learned)
        spec = Spec(preparation.modalities, learned, chosen)
        with seeded(trainer.seed):
            method = build(name, spec, settings)
        if whole is not None and len(whole) > len(given) and not method.needs_validation(train, trainer):
            return cls.fit(
                name,
                whole,
                settings=settings,
                encoders=encoders,
                task=task,
                class_weight=class_weight,
                trainer=replace(trainer, preparation=None, deadline=deadline and deadline.anew(refit=False)),
                keep_held_out=keep_held_out,
            )
        with not_sharing(when=trainer.time_limit is not None):
            began = time.perf_counter()
            if trainer.refit_steps is None:
                method.fit(train, validation, trainer)
            else:
                method.refit(train, trainer)
        if trainer.verbose:
            say_trained(name, trainer.logs, time.perf_counter() - began)
        trainer.forget()
        say_out_of_time(name, trainer.logs, trainer.time_limit)
        if not keep_held_out:
            method.forget_held_out()
        model = cls(name, dict(settings or {}), chosen, method, preparation, trainer.logs, rows=len(train))
        absent = 1 - train.present.mean(axis=0)
        model.fitted_on = {
            "rows": len(train),
            "validation": 0 if validation is None else len(validation),
            "missing": {name: float(share) for name, share in zip(train.names, absent)},
        }
        if not trainer.interrupted:
            model.misplaced_trust = misplaced_trust(model, validation or train, device=trainer.device)
            warn_of_misplaced_trust(name, model.misplaced_trust)
        return model

    @property
    def task(self) -> Task:
        """The task: classes or numbers that are predicted."""
        return self.preparation.task

    def reference(self) -> dict[str, Statistics]:
        """Return spread and range of each modality in training, the unit of a corruption's level."""
        return self.preparation.statistics()

    @checked
    def predict(self, samples: Samples, *, batch_size: int = 512, device: str = "auto") -> Prediction:
        """Return output, opinions, weights and joint representation for every sample, on the CPU.

        Raises:
            InputError: If an output is not finite, since weights or values are too large.
        """
        target = resolve_device(device)
        self._inventory = ready_to_predict(self.method, self._inventory, target)
        method, dtype = self.method, self._inventory.input_type
        if len(samples) <= batch_size and not samples.on_disk:
            batch = self.preparation.batch(samples, dtype=dtype)
            batch.index = torch.arange(len(samples))
            prediction = predict_batch(method, batch if target.type == "cpu" else batch.to(target))
        else:
            loader = BatchLoader(samples, self.preparation, target, dtype=dtype)
            prediction = predict(method, loader, batch_size)
        _check_finite(self.name, prediction, self.task)
        return prediction

    @checked
    def read(self, path: str | Path) -> Samples:
        """Read new samples from a file that has the format of the training data."""
        if self.recipe is None:
            raise SavedModelError(
                "reading a file: the model was not trained from a file, so its format is unknown. "
                "Give predict a mapping of arrays"
            )
        return read_with_recipe(self.recipe, path)

    @checked
    def save(
        self, path: str | Path, extra: Mapping[str, Any] | None = None, tensors: Mapping[str, Tensor] | None = None
    ) -> Path:
        """Write a folder of safetensors and JSON.

        Args:
            path: The folder.
            extra: JSON of the caller's own.
            tensors: Tensors of the caller's own, for `read_extra_tensors`.

        Returns:
            The absolute path.
        """
        learned, prepared = self.preparation.state()
        weights = prefixed(_METHOD, self.method.state_dict()) | prefixed(_PREPARATION, learned)
        described = {
            "method": self.name,
            "settings": self.method.saved_settings(self.settings),
            "defaults": default_settings(type(self.method)) if self.defaults is None else self.defaults,
            "encoders": describe_encoders(self.encoders, self.method),
            "preparation": prepared,
            "recipe": self.recipe,
            "fitted_on": self.fitted_on,
            "extra": dict(extra or {}),
        }
        return write_folder(Path(path), Folder(described, weights | prefixed(EXTRA, tensors or {})))


@checked
def load_model(path: str | Path, encoders: Mapping[str, EncoderChoice] | None = None) -> tuple[Model, dict[str, Any]]:
    """Read what `Model.save` wrote. Nothing in the folder is executed, and no other file is read.

    Args:
        path: The folder.
        encoders: What the folder does not hold: the user's own encoder modules, and `frozen` encoders with their model
            and cache.

    Returns:
        The model, and the `extra` that was saved with it.
    """
    folder = Path(path)
    described = read_description(folder)
    if "method" not in described and "estimator" in described:
        raise SavedModelError(f"{path} holds a {described['estimator']}, not a trained method; read it with load")
    check_described(folder, described, _FIELDS)
    content = read_folder(folder)
    chosen = add_given(folder, described["encoders"], encoders or {})
    name, settings = described["method"], described["settings"]
    try:
        with loading(folder, encoders):
            preparation = Preparation.from_state(content.part(_PREPARATION), described["preparation"])
            spec = Spec(preparation.modalities, preparation.task, chosen)
            state = content.part(_METHOD)
            with seeded(0), BuildingLimits(state.values(), name):  # these weights are overwritten at once
                former = former_defaults(name, spec, described.get("defaults"))
                method = build(name, spec, {**former, **settings})
            kept = as_chosen(chosen)
            if "encoder" in settings:  # of a method that has one encoder for all modalities
                settings = {**settings, **as_chosen({"encoder": settings["encoder"]})}
    except SavedModelError as error:
        raise SavedModelError(f"loading {path}: {error}") from error
    except Exception as error:  # a description may hold anything
        raise SavedModelError(
            f"loading {path}: the method {name!r} cannot be built as it was saved: {error}. If it was registered by a "
            "package of its own, import that first; if it had encoders of your own, pass the same ones"
        ) from error
    _load_weights(method, state, folder)
    model = Model(name, settings, kept, method, preparation, [], described.get("recipe"))
    if isinstance(defaults := described.get("defaults"), dict):
        model.defaults = defaults
    model.fitted_on = dict(found) if isinstance(found := described.get("fitted_on"), dict) else {}
    return model, described["extra"]


def _load_weights(method: Method, state: Mapping[str, Tensor], path: Path) -> None:
    if any(value.dtype == torch.float64 for value in state.values()):  # it was trained in 64 bits
        method.double()
    try:
        method.load_state_dict(state)
    except RuntimeError as error:
        reason = str(error).replace("\n\t", " ")
        raise SavedModelError(
            f"the weights in {path} do not fit the method they were saved for: {reason}. If the model had "
            "encoders of your own, pass the same ones"
        ) from error


def _check_finite(name: str, prediction: Prediction, task: Task) -> None:
    """Raise an error if an output is not finite; a class may have the logit −inf, but not all of them."""
    check_finite_rows(
        f"the output of method {name!r}", prediction.output.amax(dim=1) if task.classification else prediction.output
    )


def check_finite_rows(what: str, values: Tensor) -> None:
    """Raise an error that names the rows `[n, ...]` of a prediction which are not finite."""
    if not (finite := values.isfinite()).all():
        broken = ~finite.reshape(len(values), -1).all(dim=1)
        rows = name_rows(broken.nonzero()[:, 0].numpy())
        raise InputError(
            f"prediction: {what} is not finite in {rows}: the values of these samples, or the weights of the model, "
            "are too large or damaged"
        )


def misplaced_trust(model: Model, samples: Samples, *, device: str = "auto") -> dict[str, Correlation]:
    """Find modalities whose weight grows with their own loss on mildly corrupted samples: r(w, ℓ) > 0.

    Zhang et al. 2023, *Provable Dynamic Fusion for Low-Quality Multimodal Data*, theorem 2, requires r ≤ 0 for every
    modality. A weight that depends only on which modalities are present is ignored: it rises with the loss if samples
    that lack others are harder, although it judges none of them.

    Args:
        model: The trained model.
        samples: Samples with y; at most 500 of them, evenly spread, are scored.
        device: Where to predict.

    Returns:
        Modality → correlation, where the whole confidence interval lies above 0. Empty for a method without opinions
        or weights.
    """
    if model.predict(samples[:1], device=device).weights is None:
        return {}
    rows = evenly_spread(len(samples), TRUST_SAMPLES)
    damaged = Corruptor(model.reference()).apply(samples[rows], level=TRUST_LEVEL)
    prediction = model.predict(damaged, device=device)
    if prediction.opinions is None or prediction.weights is None:
        return {}
    assert damaged.y is not None
    y = torch.from_numpy(model.task.encode(damaged.y))
    names = tuple(model.preparation.raw)
    present = torch.from_numpy(damaged.present_among(names))
    # Targets and present modalities; the losses need no inputs.
    batch = Batch({}, present, index=torch.arange(len(y)), weight=torch.ones(len(y)), y=y)
    losses = expert_losses(model.task, prediction.opinions, batch)
    counted = present & prediction.weights.isfinite() & losses.isfinite()
    static = static_weights(prediction.weights.float().nan_to_num().double().numpy(), present.numpy())
    correlations = {
        name: correlation(prediction.weights[:, column], losses[:, column], counted[:, column])
        for column, name in enumerate(names)
        if not static[column]
    }
    return {name: value for name, value in correlations.items() if value.positive}


def warn_of_misplaced_trust(method: str, correlations: Mapping[str, Correlation]) -> None:
    """Warn once of all modalities that `misplaced_trust` found; do nothing if there are none."""
    if not correlations:
        return
    figures = ", ".join(f"{name} (r = {c.r:+.2f}, {c.low:+.2f} … {c.high:+.2f})" for name, c in correlations.items())
    others = " or ".join(name for name in _UNMOVED_BY_CONFIDENCE if name != method)
    warnings.warn(
        f"{method} trusts a modality more when it is wrong: on mildly corrupted samples the weight of {figures} rises "
        "with that modality's own loss. Where features grow with the noise, so does an expert's confidence. Bound them "
        "with an encoder that has a norm layer, such as mlp with normalise=True (its default), or choose a method "
        f"that does not weigh by confidence, such as {others}",
        TrustWarning,
        stacklevel=3,
    )
