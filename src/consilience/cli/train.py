"""Train one method, print its scores on the test part, and save it; without targets, a latent model."""

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
  consilience train patients.csv --modality 'labs=lab_*' --modality ward=ward,age --method m2vae --out latent
  consilience train sensors.csv --target fault --modality 'temp=TS*' --modality 'oil=PS*' --method late --out model"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add data, method and output folder."""
    parser.add_argument("data", type=str, help="name of a data set, or a file")
    method = (
        "fusion method; `consilience methods` lists them (default: auto). Of a file without "
        "--target: the objective of a latent model, such as m2vae"
    )
    parser.add_argument("--method", type=str, metavar="NAME", help=method)
    parser.add_argument("--out", type=str, required=True, metavar="FOLDER", help="folder of the saved model")
    parser.add_argument("--overwrite", action="store_true", help="replace the model in the folder, if it holds one")
    options.add_option(parser, "seed", NonNegativeInt, "seed of initial weights, batches and dropout", default=0)
    verbose = "0: no progress; 1: one line in ten seconds, on a terminal a bar; 2: every epoch and every part"
    options.add_option(parser, "verbose", NonNegativeInt, verbose, default=1)
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
    if not chosen.overwrite and Path(chosen.out).is_dir() and any(Path(chosen.out).iterdir()):
        raise InputError(f"train: {chosen.out} holds a model: give --overwrite to replace it, or another --out")
    data = load_data(chosen.data, **options.loading(chosen))
    if data.task is None:
        train_latent(chosen, data)
        return
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
        verbose=chosen.verbose,
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


def train_latent(chosen: Namespace, data: DataSet) -> None:
    """Fit a latent model on data without targets, print how well it generates the test part, and save it."""
    from consilience.estimators import MultimodalVAE
    from consilience.methods.latent.objectives.objective import OBJECTIVES

    name = chosen.method
    if name not in OBJECTIVES.names():
        raise InputError(
            f"train: {chosen.data} was read without a target: name the column to predict with --target, or train a "
            f"latent model with --method, one of {', '.join(OBJECTIVES.names())}"
            + (f"; got --method {name}" if name else "")
        )
    settings = options.settings(chosen)
    for method in settings:
        if method != name:
            raise InputError(f"train: --setting {method}.… is not a setting of {name}")
    given = settings.get(name, {})
    own = {key: value for key, value in given.items() if key in ("latent", "bound", "subsets", "subset_encoder")}
    model = MultimodalVAE(
        name,
        **own,
        settings={key: value for key, value in given.items() if key not in own} or None,
        encoders=options.encoders(chosen) or None,
        validation=data.validation,
        random_state=chosen.seed,
        verbose=chosen.verbose,
        **options.training(chosen),
    )
    with STOP.patiently():
        model.fit(data.train)
        for part in data.modalities:
            others = [other for other in data.modalities if other != part]
            print(f"error of {part}: {model.generation_errors(data.test, [part])[part]:.4f} given all", end="")
            found = model.generation_errors(data.test, [part], others)[part] if others else None
            print("" if found is None else f", {found:.4f} given the others")
        saved = model.save(chosen.out)
    print(f"\nmodel: {saved}")
    if any(log.interrupted for log in model.trained_.logs):
        raise KeyboardInterrupt


def score_and_save(estimator: Any, data: DataSet, out: str) -> tuple[dict[str, float], Path]:
    """Return the scores on the test part and the folder of the saved model, whose card has them too."""
    from consilience.evaluation import evaluate
    from consilience.report.card_results import card_after_training
    from consilience.training.model_card import write_card
    from consilience.training.model_folder import read_description

    assert data.task is not None
    probabilities = estimator.predict_proba(data.test) if data.task == "classification" else None
    classes = getattr(estimator, "classes_", None)
    figures = evaluate(data.task, data.test.y, estimator.predict(data.test), probabilities, classes=classes)
    estimator.model_.recipe = data.recipe()
    saved = estimator.save(out)
    write_card(saved, read_description(saved), card_after_training(estimator.model_, data, figures))
    return figures, saved
