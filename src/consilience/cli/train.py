"""Train one method, say how good it is on the test part, and save it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.cli import options
from consilience.core.errors import InputError

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

USAGE = "DATA --out FOLDER [options]"
EXAMPLES = """  consilience train digits --method late --out model
  consilience train sensors.csv --target fault --modality temp=TS* --modality pressure=PS* --method late --out model"""


def add_arguments(parser: ArgumentParser) -> None:
    """Data, method, and where to save."""
    parser.add_argument("data", type=str, help="a data set's name, or a file")
    parser.add_argument("--method", type=str, default="concat", metavar="NAME", help="consilience methods lists them")
    parser.add_argument("--out", type=str, required=True, metavar="FOLDER", help="where to save the model")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of initial weights and shuffling")
    options.add_loading(parser)
    options.add_training(parser)


def run(chosen: Namespace, command: list[str]) -> None:
    """Fit on train with early stopping on validation, measure on test, save.

    Ctrl-C in training ends in the same way, with the best weights so far, and is raised after that: the exit code is
    that of a command that was stopped.
    """
    from consilience.data import load_data
    from consilience.estimators import FusionClassifier, FusionRegressor
    from consilience.evaluation import evaluate
    from consilience.training.model_folder import check_replaceable

    settings = options.settings(chosen)
    for method in settings:
        if method != chosen.method:
            raise InputError(f"train: --setting {method}.… is of another method than the one trained, {chosen.method}")
    options.check_out(Path(chosen.out))
    check_replaceable(Path(chosen.out))  # again before it is saved; but training may take a day
    data = load_data(chosen.data, **options.loading(chosen))
    kind: Any = FusionClassifier if data.task == "classification" else FusionRegressor
    training, own = options.training(chosen), kind().get_params()
    estimator = kind(
        chosen.method,
        settings=settings.get(chosen.method),
        encoders=options.encoders(chosen) or None,
        validation=data.validation,
        random_state=chosen.seed,
        verbose=1,
        training={name: value for name, value in training.items() if name not in own} or None,
        **{name: value for name, value in training.items() if name in own},
    )
    estimator.fit(data.train, data.train.y)
    probabilities = estimator.predict_proba(data.test) if data.task == "classification" else None
    classes = getattr(estimator, "classes_", None)
    figures = evaluate(data.task, data.test.y, estimator.predict(data.test), probabilities, classes=classes)
    estimator.model_.recipe = data.recipe()
    saved = estimator.save(chosen.out)
    for name, value in figures.items():
        print(f"{name:18} {value:.4f}")
    print(f"\nmodel: {saved}")
    if any(log.interrupted for log in estimator.model_.logs):
        raise KeyboardInterrupt
