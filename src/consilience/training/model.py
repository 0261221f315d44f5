"""A trained method with everything needed to use it: the preparation of its inputs, the task, the names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from consilience.core.correlation import Correlation
from consilience.core.errors import InputError, SavedModelError
from consilience.core.samples import Samples
from consilience.core.targets import Task, TaskKind
from consilience.corruption import Statistics
from consilience.data import read_with_recipe
from consilience.encoders import EncoderChoice, as_chosen, own_transforms
from consilience.methods import Method, Prediction, Spec, build
from consilience.preparation import Preparation
from consilience.training.devices import resolve_device
from consilience.training.feed import Feed
from consilience.training.loop import Log
from consilience.training.model_folder import read_folder, write_folder
from consilience.training.seeding import seeded
from consilience.training.trainer import Trainer, check_set, input_type, predict
from consilience.training.trust_check import misplaced_trust, warn_of_misplaced_trust


@dataclass
class Model:
    """What training leaves: the method's name and settings, the trained module, and the fitted preparation.

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
    recipe: Mapping[str, Any] | None = None  # how the training data were read, `DataSet.recipe()`
    misplaced_trust: dict[str, Correlation] = field(default_factory=dict)  # what fitting warned of, by modality

    @classmethod
    def fit(
        cls,
        name: str,
        train: Samples,
        validation: Samples | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        encoders: Mapping[str, EncoderChoice] | None = None,
        task: TaskKind | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        trainer: Trainer | None = None,
    ) -> Model:
        """Learn the task, prepare, build the method by name, and train it.

        Warns (`TrustWarning`) if the method came to trust a modality more when it is wrong. That is judged on the
        validation set, for want of one on the training set, whose losses understate it.
        """
        check_set("training", train)
        if validation is not None:
            check_set("validation", validation)
        assert train.y is not None
        learned = Task.of(train.y, task, train.weight)
        if class_weight is not None:
            train = Samples.of(train, weight=weigh_classes(train, learned, class_weight))
        preparation = Preparation.fit(train, learned, own_transforms(train.modalities, encoders or {}))
        # A trainer may be used for several models; what one of them learns stays with it.
        trainer = replace(trainer or Trainer(), preparation=preparation, logs=[])
        spec = Spec(preparation.modalities, learned, dict(encoders or {}))
        with seeded(trainer.seed):
            method = build(name, spec, settings)
        method.fit(train, validation, trainer)
        trainer.forget()
        model = cls(name, dict(settings or {}), dict(encoders or {}), method, preparation, trainer.logs)
        if not trainer.interrupted:
            model.misplaced_trust = misplaced_trust(model, validation or train, device=trainer.device)
            warn_of_misplaced_trust(name, model.misplaced_trust)
        return model

    @property
    def task(self) -> Task:
        """What is predicted."""
        return self.preparation.task

    def reference(self) -> dict[str, Statistics]:
        """Spread and range of each modality in training: what a corruption's level is measured by."""
        return self.preparation.statistics()

    def predict(self, samples: Samples, *, batch_size: int = 512, device: str = "auto") -> Prediction:
        """Output, opinions, weights and joint representation for every sample, on the CPU."""
        target = resolve_device(device)
        feed = Feed(samples, self.preparation, target, dtype=input_type(self.method))
        return predict(self.method.to(target), feed, batch_size)

    def read(self, path: str | Path) -> Samples:
        """New samples from a file laid out as the training data was, read the same way."""
        if self.recipe is None:
            raise SavedModelError(
                "this model does not know how its training data were read: it was not trained from a file. "
                "Give predict a mapping of arrays"
            )
        return read_with_recipe(self.recipe, path)

    def save(
        self, path: str | Path, extra: Mapping[str, Any] | None = None, tensors: Mapping[str, Tensor] | None = None
    ) -> Path:
        """Write a folder of safetensors and JSON; `extra` and `tensors` are JSON and tensors of the caller's own."""
        return write_folder(Path(path), self, dict(extra or {}), dict(tensors or {}))


def load_model(path: str | Path, encoders: Mapping[str, EncoderChoice] | None = None) -> tuple[Model, dict[str, Any]]:
    """Read what `Model.save` wrote. Custom encoders are passed again, since no code is stored."""
    content = read_folder(Path(path), dict(encoders or {}))
    name, settings = content.described["method"], content.described["settings"]
    try:
        preparation = Preparation.from_state(content.preparation_tensors, content.described["preparation"])
        spec = Spec(preparation.modalities, preparation.task, content.encoders)
        with seeded(0):  # what is drawn here is overwritten at once
            method = build(name, spec, settings)
    except SavedModelError as error:
        raise SavedModelError(f"loading {path}: {error}") from error
    except (InputError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise SavedModelError(
            f"loading {path}: the method {name!r} cannot be built as it was saved: {error}. If it was registered by a "
            "package of its own, import that first; if it had encoders of your own, pass the same ones"
        ) from error
    content.load_weights(method)
    return Model(
        name, settings, as_chosen(content.encoders), method, preparation, [], content.described.get("recipe")
    ), content.described["extra"]


def weigh_classes(train: Samples, task: Task, class_weight: Mapping[Any, float] | str) -> np.ndarray:
    """Sample weights `[n]` with each class's weight multiplied in; "balanced" gives every class the same total."""
    if not task.classification:
        raise InputError("class_weight is for classification; a regression has no classes")
    assert task.classes is not None
    assert train.y is not None
    weight = np.ones(len(train)) if train.weight is None else train.weight
    encoded = task.encode(train.y)
    if class_weight == "balanced":
        totals = np.bincount(encoded, weights=weight, minlength=task.outputs)
        # A class whose samples all weigh nothing goes on weighing nothing.
        per_class = totals.sum() / (task.outputs * np.where(totals > 0, totals, 1.0))
    else:
        if not isinstance(class_weight, Mapping):
            raise InputError(
                f"class_weight must be 'balanced', a mapping class → weight, or None, got {class_weight!r}"
            )
        known = {label: position for position, label in enumerate(task.classes.tolist())}
        per_class = np.ones(task.outputs)
        for label, value in class_weight.items():
            if label not in known:
                raise InputError(f"class_weight names {label!r}, which is no class; the classes are {list(known)}")
            if not isinstance(value, int | float | np.number) or not 0 <= value < np.inf:
                raise InputError(f"class_weight of {label!r} must be a number ≥ 0, got {value!r}")
            per_class[known[label]] = value
    return weight * per_class[encoded]
