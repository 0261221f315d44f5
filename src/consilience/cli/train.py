"""Train one method, print its scores on the test part, and save it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.cli import options
from consilience.core.errors import InputError
from consilience.core.settings import NonNegativeInt
from consilience.core.stop_signals import STOP

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

    from consilience.data import DataSet

USAGE = "DATA --out FOLDER [options]"
EXAMPLES = """  consilience train digits --method late --out model
  consilience train sensors.csv --target fault --modality 'temp=TS*' --modality 'oil=PS*' --method late --out model"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add data, method and output folder."""
    parser.add_argument("data", type=str, help="name of a data set, or a file")
    method = "fusion method; `consilience methods` lists them (default: auto, for numbers concat)"
    parser.add_argument("--method", type=str, metavar="NAME", help=method)
    parser.add_argument("--out", type=str, required=True, metavar="FOLDER", help="folder of the saved model")
    options.add_option(parser, "seed", NonNegativeInt, "seed of initial weights, batches and dropout", default=0)
    options.add_loading(parser)
    options.add_training(parser)
    options.add_class_weight(parser)


def run(chosen: Namespace, command: list[str]) -> None:
    """Fit on train with early stopping on validation, score on test, save.

    After Ctrl-C in training the best weights so far are scored and saved; then KeyboardInterrupt is raised, so that
    the exit code is that of an interrupted command.
    """
    from consilience.data import load_data
    from consilience.estimators import FusionClassifier, FusionRegressor
    from consilience.training.class_weights import match_classes
    from consilience.training.model_folder import check_replaceable

    options.check_out(Path(chosen.out))
    check_replaceable(Path(chosen.out))  # saving checks it too, but only after training
    data = load_data(chosen.data, **options.loading(chosen))
    kind: Any = FusionClassifier if data.task == "classification" else FusionRegressor
    name = chosen.method or kind().method
    settings = options.settings(chosen)
    for method in settings:
        if method != name:
            raise InputError(f"train: --setting {method}.… is not a setting of {name}")
    if (weights := options.class_weight(chosen)) is not None:
        if data.task != "classification":
            raise InputError(f"train: --class-weight is for classification, and {chosen.data} is a {data.task}")
        further = {"class_weight": match_classes(weights, data.y)}
    else:
        further = {}
    estimator = kind(
        name,
        settings=settings.get(name),
        encoders=options.encoders(chosen) or "auto",
        validation=data.validation,
        random_state=chosen.seed,
        verbose=1,
        **options.training(chosen),
        **further,
    )
    with STOP.patiently():
        estimator.fit(data.train, data.train.y)
        figures, saved = score_and_save(estimator, data, chosen.out)
    for name, value in figures.items():
        print(f"{name:18} {value:.4f}")
    print(f"\nmodel: {saved}")
    if any(log.interrupted for log in estimator.model_.logs):
        raise KeyboardInterrupt


def score_and_save(estimator: Any, data: DataSet, out: str) -> tuple[dict[str, float], Path]:
    """Return the scores on the test part and the folder of the saved model."""
    from consilience.evaluation import evaluate

    probabilities = estimator.predict_proba(data.test) if data.task == "classification" else None
    classes = getattr(estimator, "classes_", None)
    figures = evaluate(data.task, data.test.y, estimator.predict(data.test), probabilities, classes=classes)
    estimator.model_.recipe = data.recipe()
    return figures, estimator.save(out)
