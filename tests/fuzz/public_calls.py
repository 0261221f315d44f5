"""The table of public calls: for each a valid call on tiny data."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, wraps
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

import consilience as cs
from consilience import evaluation, methods
from consilience.core.modalities import Modality
from consilience.core.targets import Task
from consilience.corruption import Corruptor, corruption_names, find_corruption
from consilience.data import DataSet
from consilience.training import Model, Phase, Trainer, TrainingSettings, load_model

N = 12
_random = np.random.default_rng(0)
A, B = _random.normal(size=(N, 3)), _random.normal(size=(N, 2))
STEPS, WORDS = _random.normal(size=(N, 4, 2)), _random.integers(1, 9, size=(N, 5))
Y = np.arange(N) % 2
NUMBERS = A[:, 0] + B[:, 1]
LOGITS = {"a": _random.normal(size=(N, 2)), "b": _random.normal(size=(N, 2))}
PROBABILITIES = np.exp(LOGITS["a"]) / np.exp(LOGITS["a"]).sum(axis=1, keepdims=True)
PRESENT = np.ones((N, 2), dtype=bool)
PRESENT[0, 0] = PRESENT[1, 1] = False
WEIGHT = np.linspace(0.5, 1, N)
HALF = np.array([0.5, 0.5])
ALL = np.ones((N, 2), dtype=bool)
QUICK = {"epochs": 1, "device": "cpu"}


@dataclass(frozen=True)
class Door:
    """One public call.

    Attributes:
        name: As a user writes it.
        call: Takes the arguments by name.
        valid: Makes the arguments of a valid call; arguments of which every entry of a mapping is spoilt are mappings.
        fixed: Arguments that are not replaced.
        skip: (argument, hostile value) that would be valid and take long: processes, machines.
        slow: A valid call takes more than a tenth of a second.
        any_number: The result may be NaN or infinite.
        takes_options: Further arguments by name are options.
        never_right: Even the valid call is refused, since what it needs takes too long to make.
    """

    name: str
    call: Callable[..., Any]
    arguments: Callable[[], dict[str, Any]]
    fixed: tuple[str, ...] = ()
    skip: tuple[tuple[str, str], ...] = ()
    slow: bool = False
    any_number: bool = False
    takes_options: bool = False
    never_right: bool = False


def modalities() -> dict[str, Any]:
    """Two vectors, `[12, 3]` and `[12, 2]`."""
    return {"a": A.copy(), "b": B.copy()}


def samples() -> cs.Samples:
    """The same with labels, weights and a missing modality."""
    return cs.Samples.of(modalities(), Y, present=PRESENT, weight=WEIGHT)


def data_set() -> DataSet:
    """The same with a split."""
    return DataSet(
        "toy", cs.Samples.of(modalities(), Y), "classification", np.array(["train", "validation", "test"] * 4)
    )


@cache
def fitted(kind: str) -> Any:
    """One fitted estimator of each kind."""
    if kind == "classifier":
        return cs.FusionClassifier("late", **QUICK).fit(modalities(), Y)
    if kind == "table":
        columns = {"a": slice(0, 3), "b": [3, 4]}
        return cs.FusionClassifier("late", columns=columns, **QUICK).fit(np.hstack([A, B]), Y)
    if kind == "regressor":
        return cs.FusionRegressor("late", **QUICK).fit(modalities(), NUMBERS)
    if kind == "bayes":
        return cs.BayesFusion(target_prior="em", reliability="auto").fit(LOGITS, Y)
    if kind == "experts":
        return cs.BayesFusion(experts=LogisticRegression(), folds=2).fit(modalities(), Y)
    if kind.startswith("calibrated "):
        name = kind.removeprefix("calibrated ")
        return copy.deepcopy(fitted(name)).calibrate(*calibration(name))
    if kind == "latent":
        return cs.MultimodalVAE(latent=2, **QUICK).fit(modalities())
    if kind == "model":
        return Model.fit("late", samples(), trainer=Trainer(**QUICK))
    if kind == "progressive":
        return Model.fit("pro:concat", samples(), trainer=Trainer(**QUICK))
    raise KeyError(kind)


def calibration(kind: str) -> tuple[Any, Any]:
    """Samples and targets of a kind of estimator."""
    return LOGITS if kind == "bayes" else modalities(), NUMBERS if kind == "regressor" else Y


@cache
def saved(kind: str) -> str:
    """The folder of a saved estimator."""
    import tempfile

    return str(fitted(kind).save(f"{tempfile.mkdtemp(prefix='fuzz-saved-')}/model"))


class TwoBranches(torch.nn.Module):
    """A module of the user's own, for `progressive`."""

    def __init__(self) -> None:
        super().__init__()
        self.sound, self.sight = torch.nn.Linear(3, 4), torch.nn.Linear(2, 4)
        self.join, self.head = torch.nn.Linear(8, 4), torch.nn.Linear(4, 2)

    def forward(self, sound: torch.Tensor, sight: torch.Tensor) -> torch.Tensor:
        """Logits `[n, 2]`."""
        both = torch.cat([self.sound(sound).relu(), self.sight(sight).relu()], dim=1)
        return self.head(self.join(both).relu())


def example() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs of `TwoBranches`."""
    return torch.ones(3, 3), torch.ones(3, 2)


def spec() -> methods.Spec:
    """What a method is built from."""
    return methods.Spec({"a": Modality("a", "vector", (3,)), "b": Modality("b", "vector", (2,))}, Task.of_labels(Y))


def state() -> cs.FusionState:
    """A state with two opinions."""
    return cs.FusionState(HALF).update(LOGITS["a"]).update(**opinion())


def opinion() -> dict[str, Any]:
    """The second opinion of `state`, as arguments."""
    return {
        "opinion": LOGITS["b"].copy(),
        "prior": HALF.copy(),
        "present": PRESENT[:, 0].copy(),
        "weight": WEIGHT.copy(),
        "reliability": WEIGHT.copy(),
        "from_probabilities": False,
    }


def _method(kind: str, name: str, /, **valid: Any) -> Door:
    """A method of a fitted estimator."""
    fresh = {"save", "export_encoder"}
    return Door(
        f"{kind}.{name}",
        lambda **given: getattr(fitted(kind), name)(**given),
        lambda: {key: _fresh(value) for key, value in valid.items()},
        slow=name in fresh or "picture" in name,
        any_number=name == "generation_errors",  # NaN for a modality that no sample has
    )


def _fresh(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {name: _fresh(entry) for name, entry in value.items()}
    return value


@wraps(cs.corrupt)
def _corrupted(X: Any, *given: Any, **named: Any) -> Any:
    """`corrupt`, less the rows of modalities that X does not have: these are NaN in the result, as they were given."""
    result = cs.corrupt(X, *given, **named)
    if not isinstance(result, dict):
        return result
    there = cs.Samples.of(X).present_among(tuple(result))
    return {name: np.asarray(values)[there[:, place]] for place, (name, values) in enumerate(result.items())}


def _function(name: str, function: Callable[..., Any], /, **more: Any) -> Door:
    """A function; what is not a field of `Door` is one of its valid arguments."""
    fields = {key: more.pop(key) for key in list(more) if key in ("slow", "any_number", "skip", "fixed")}
    options = any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in inspect.signature(function).parameters.values()
    )
    return Door(
        name, function, lambda: {key: _fresh(value) for key, value in more.items()}, takes_options=options, **fields
    )


def _estimator(cls: Any, fit: dict[str, Any], then: str, **parameters: Any) -> Door:
    """Every parameter of an estimator, which is fitted and used."""
    defaults = cls().get_params(deep=False)

    def call(**given: Any) -> Any:
        model = cls(**given).fit(**fit)
        return getattr(model, then)(next(iter(fit.values())))

    processes = tuple((name, value) for name in ("devices", "nodes") for value in ("5", "Fraction"))
    return Door(f"{cls.__name__}()", call, lambda: {**defaults, **parameters}, skip=processes)


def _metric(name: str, second: str, **more: Any) -> Door:
    by_class = {"probabilities": PROBABILITIES, "classes": [0, 1]}
    numbers = {"prediction": NUMBERS + 0.5 if name in ("mse", "mae", "pearson", "acc2", "acc7") else Y[::-1].copy()}
    truth = NUMBERS if name in ("mse", "mae", "pearson", "acc2", "acc7") else Y
    valid = {"y": truth, **(by_class if second == "probabilities" else numbers), "weight": WEIGHT, **more}
    # The correlation of a constant is NaN, the likelihood of a class that was ruled out infinite.
    return _function(f"evaluation.{name}", getattr(evaluation, name), any_number=True, **valid)


_NOISE = {"corruption": "gaussian", "level": 1.0, "probability": 0.5, "modalities": ["a"], "random_state": 0}
_PARTS = {"present": PRESENT}

DOORS: tuple[Door, ...] = (
    _function(
        "fuse",
        cs.fuse,
        opinions=LOGITS,
        prior=HALF,
        target_prior=HALF,
        present=PRESENT,
        weights={"a": WEIGHT},
        reliability={"a": WEIGHT},
        log_kappa=np.zeros((N, 2)),
        from_probabilities=False,
        return_conflict=True,
        out=np.zeros((N, 2)),
        check=True,
    ),
    _function("fuse(array)", cs.fuse, opinions=np.stack([LOGITS["a"]] * 2, axis=1), prior=None, weights=PRESENT * 1.0),
    _function("FusionState", lambda **given: cs.FusionState(**given).log_posterior(), prior=HALF, target_prior=HALF),
    *(
        Door(
            f"FusionState.{name}",
            lambda name=name, **given: getattr(state(), name)(**given).log_posterior(),
            opinion,
        )
        for name in ("update", "retract")
    ),
    Door("FusionState.merge", lambda **given: state().merge(**given).log_posterior(), lambda: {"other": state()}),
    Door(
        "FusionState.log_posterior",
        lambda **given: state().log_posterior(**given),
        lambda: {"log_kappa": np.zeros((N, 2)), "return_conflict": True},
    ),
    Door(
        "FusionState.first update",
        lambda **given: cs.FusionState(HALF).update(**given).log_posterior(),
        lambda: {"opinion": LOGITS["a"].copy()},
    ),
    _function(
        "estimate_target_prior",
        cs.estimate_target_prior,
        opinions=LOGITS,
        prior=HALF,
        present=PRESENT,
        weights={"a": WEIGHT},
        log_kappa=np.zeros((N, 2)),
        from_probabilities=False,
        iterations=20,
        tolerance=1e-3,
    ),
    _estimator(cs.FusionClassifier, {"X": modalities(), "y": Y}, "predict_proba", method="late", **QUICK),
    _estimator(cs.FusionRegressor, {"X": modalities(), "y": NUMBERS}, "predict", method="late", **QUICK),
    _estimator(cs.MultimodalVAE, {"X": modalities()}, "transform", latent=2, **QUICK),
    _estimator(cs.BayesFusion, {"opinions": LOGITS, "y": Y}, "predict_proba", classes=[0, 1], prior=HALF),
    Door(
        "FusionClassifier.fit",
        lambda **given: cs.FusionClassifier("late", **QUICK).fit(**given).predict_proba(modalities()),
        lambda: {"X": modalities(), "y": Y.copy(), "present": PRESENT.copy(), "sample_weight": WEIGHT.copy()},
    ),
    Door(
        "FusionClassifier(columns).fit",
        lambda X, y, **columns: cs.FusionClassifier("late", **columns, **QUICK).fit(X, y).predict_proba(X),
        lambda: {"X": np.hstack([A, B]), "y": Y.copy(), "columns": {"a": slice(0, 3), "b": [3, 4]}},
    ),
    Door(
        "FusionClassifier(sequences).fit",
        lambda X, y, kinds: cs.FusionClassifier("late", kinds=kinds, **QUICK).fit(X, y).predict_proba(X),
        lambda: {
            "X": {"a": STEPS.copy(), "b": WORDS.copy(), "c": ["one two", "three"] * 6},
            "y": Y.copy(),
            "kinds": {"b": "tokens"},
        },
    ),
    Door(
        "FusionRegressor.fit",
        lambda **given: cs.FusionRegressor("late", **QUICK).fit(**given).predict(modalities()),
        lambda: {"X": modalities(), "y": NUMBERS.copy(), "present": PRESENT.copy(), "sample_weight": WEIGHT.copy()},
    ),
    Door(
        "MultimodalVAE.fit",
        lambda **given: cs.MultimodalVAE(latent=2, **QUICK).fit(**given).transform(modalities()),
        lambda: {"X": modalities(), "y": Y.copy(), "present": PRESENT.copy(), "sample_weight": WEIGHT.copy()},
    ),
    Door(
        "BayesFusion.fit",
        lambda **given: cs.BayesFusion().fit(**given).predict_proba(LOGITS),
        lambda: {"opinions": _fresh(LOGITS), "y": Y.copy(), "present": PRESENT.copy()},
    ),
    Door(
        "BayesFusion(experts).fit",
        lambda experts, folds, **given: cs.BayesFusion(experts=experts, folds=folds).fit(**given).modalities_,
        lambda: {
            "opinions": modalities(),
            "y": Y.copy(),
            "present": PRESENT.copy(),
            "experts": {"a": LogisticRegression(), "b": LogisticRegression()},
            "folds": 2,
        },
    ),
    *(
        _method(kind, name, X=modalities(), **_PARTS)
        for kind, names in (
            ("classifier", ("predict", "predict_proba", "trust", "full_prediction")),
            ("regressor", ("predict",)),
        )
        for name in names
    ),
    _method("table", "predict_proba", X=np.hstack([A, B]), **_PARTS),
    _method("classifier", "score", X=modalities(), y=Y, sample_weight=WEIGHT, **_PARTS),
    _method("regressor", "score", X=modalities(), y=NUMBERS, sample_weight=WEIGHT, **_PARTS),
    *(_method("bayes", name, opinions=LOGITS, **_PARTS) for name in ("predict", "predict_proba", "trust")),
    _method("bayes", "full_prediction", opinions=LOGITS, **_PARTS),
    _method("bayes", "score", opinions=LOGITS, y=Y, sample_weight=WEIGHT, **_PARTS),
    *(
        Door(
            f"{kind}.calibrate",
            lambda kind=kind, **given: copy.deepcopy(fitted(kind)).calibrate(**given),
            lambda kind=kind: {**dict(zip(("X", "y"), calibration(kind))), **_PARTS},
        )
        for kind in ("classifier", "regressor", "bayes")
    ),
    *(
        _method(f"calibrated {kind}", name, X=calibration(kind)[0], **{share: 0.5}, **_PARTS, **more)
        for kind in ("classifier", "bayes")
        for name, share, more in (
            ("predict_set", "coverage", {"score": "raps", "weigh_reliability": False, "allow_empty": True}),
            ("abstain", "risk", {"confidence": 0.5}),
        )
    ),
    # An interval may be infinite.
    replace(
        _method("calibrated regressor", "predict_interval", X=modalities(), coverage=0.5, score="absolute", **_PARTS),
        any_number=True,
    ),
    *(
        _method(
            kind,
            "explain",
            X=calibration(kind)[0],
            y=calibration(kind)[1],
            value="output" if kind == "regressor" else "log-probability",
            of=None,
            coverage=0.5,
            permutations=4,
            random_state=0,
            **_PARTS,
        )
        for kind in ("classifier", "regressor", "bayes")
    ),
    _method("experts", "predict_proba", opinions=modalities(), **_PARTS),
    *(_method(kind, "save", path="model") for kind in ("classifier", "bayes", "experts", "latent")),
    *(_method(kind, "set_params") for kind in ("classifier", "bayes")),
    Door("classifier.read", lambda path: fitted("classifier").read(path), lambda: {"path": "no.csv"}, never_right=True),
    _method("latent", "encode", X=modalities(), given=["a"], **_PARTS),
    _method("latent", "transform", X=modalities(), **_PARTS),
    _method("latent", "generate", names=["b"], given=modalities(), samples=2, noise=True, **_PARTS),
    _method("latent", "sample", n=2, names=["a"], noise=True),
    _method("latent", "impute", X=modalities(), **_PARTS),
    _method("latent", "log_likelihood", X=modalities(), of=["a"], given=["b"], importance_samples=3, present=ALL),
    _method("latent", "generation_errors", X=modalities(), of=["a"], given=["b"], **_PARTS),
    Door(
        "latent.variation_of_information",
        lambda X, first, second, **given: fitted("latent").variation_of_information(X, first, second, **given),
        lambda: {"X": modalities(), "first": "a", "second": ["b"], "importance_samples": 3, "present": PRESENT.copy()},
    ),
    Door(
        "latent.coherence",
        lambda **given: fitted("latent").coherence(**given),
        lambda: {
            "X": modalities(),
            "classifier": fitted("classifier"),
            "of": ["a"],
            "given": ["b"],
            "y": Y.copy(),
            "with_given": True,
        },
    ),
    _method("latent", "interpolate", X=modalities(), Y=modalities(), names=["a"], steps=2),
    _method("latent", "interpolation_picture", X=modalities(), Y=modalities(), name="a", steps=2),
    _method("latent", "traversal_picture", X=modalities(), name="a", dimensions=[0], span=1.0, steps=2),
    _method("latent", "linear_probe", train=samples(), test=samples(), given=["a"]),
    _method("latent", "export_encoder", name="a", path="encoder"),
    Door(
        "load",
        lambda **given: cs.load(**given).get_params(),
        lambda: {"path": saved("classifier"), "encoders": None, "decoders": None, "trusted": ()},
    ),
    Door(
        "load(experts)",
        lambda **given: cs.load(**given).get_params(),
        lambda: {"path": saved("experts"), "trusted": []},
    ),
    _function("corrupt", _corrupted, X=modalities(), reference=modalities(), clip=True, index=np.arange(N), **_NOISE),
    Door(
        "Corruptor.apply",
        lambda reference, **given: Corruptor(reference).apply(**given),
        lambda: {"reference": samples(), "X": samples(), "corruption": {"a": "blank"}, "level": 2},
    ),
    _function("corruption_names", corruption_names, kind="vector"),
    _function("find_corruption", find_corruption, name="blank"),
    Door(
        "robustness_curve",
        lambda **given: cs.robustness_curve(fitted("classifier"), **given).values,
        lambda: {
            "X": modalities(),
            "y": Y.copy(),
            "corruption": "gaussian",
            "levels": [0, 1],
            "metric": "accuracy",
            "probability": 0.5,
            "modalities": ["a"],
            "reference": modalities(),
            "random_state": 0,
            "repeats": 2,
        },
        takes_options=True,
    ),
    Door(
        "robustness_curve(model)",
        lambda **given: cs.robustness_curve(**given).values,
        lambda: {"model": fitted("bayes"), "X": _fresh(LOGITS), "y": Y.copy(), "levels": [0, 1]},
    ),
    _function("robust_auc", cs.robust_auc, curve=([0, 1], [1.0, 0.5]), baseline=([0, 1], [0.5, 0.5]), kind="gain"),
    Door(
        "trust_diagnostics",
        lambda **given: cs.trust_diagnostics(**given).n,
        lambda: {
            "model": fitted("classifier"),
            "X": modalities(),
            "y": Y.copy(),
            "corruption": "gaussian",
            "level": 1.0,
            "probability": 0.5,
            "modalities": ["a"],
            "reference": modalities(),
            "random_state": 0,
            "train": samples(),
            "delta": 0.05,
            "confidence": 0.9,
        },
        takes_options=True,
    ),
    Door(
        "compare",
        lambda **given: cs.compare(**given).findings.methods,
        lambda: {
            "data": data_set(),
            "methods": ["late"],
            "corruption": "gaussian",
            "levels": [0, 1],
            "seeds": 1,
            "repeats": 1,
            "probability": 0.5,
            "metric": "accuracy",
            "reference": "late",
            "settings": {"late": {}},
            "encoders": {"a": "mlp"},
            "training": dict(QUICK),
            "tune": 0,
            "out": "run",
            "jobs": 1,
            "side_by_side": False,
            "thorough": False,
            "cluster": None,
            "verbose": 0,
            "command": "compare",
        },
        skip=(("seeds", "5"), ("repeats", "5"), ("jobs", "5"), ("tune", "5")),
        slow=True,
        takes_options=True,
    ),
    Door(
        "load_data",
        lambda **given: len(cs.load_data(**given).samples),
        lambda: {
            "name_or_path": "gaussians",
            "target": None,
            "modalities": None,
            "data_dir": None,
            "kinds": None,
            "split": None,
            "fill": None,
            "task": None,
            "seed": 0,
        },
        takes_options=True,
    ),
    _function(
        "Samples.of",
        cs.Samples.of,
        X=modalities(),
        y=Y,
        kinds={"a": "vector"},
        lengths={},
        present=PRESENT,
        weight=WEIGHT,
        index=np.arange(N),
    ),
    _function(
        "Samples.of(sequences)",
        cs.Samples.of,
        X={"a": STEPS, "b": WORDS, "c": ["one two", None] * 6},
        kinds={"b": "tokens"},
        lengths={"a": np.full(N, 4), "b": np.full(N, 5)},
        present={"a": PRESENT[:, 0]},
    ),
    *(
        Door(
            f"Samples.{method}",
            lambda method=method, **given: getattr(samples(), method)(**given),
            lambda valid=valid: {key: _fresh(value) for key, value in valid.items()},
        )
        for method, valid in (
            ("__getitem__", {"key": np.arange(3)}),
            ("select", {"rows": np.arange(3)}),
            ("only", {"names": ["a"]}),
            ("present_in", {"name": "a"}),
            ("present_among", {"names": ["a"]}),
            ("read", {"name": "a", "rows": slice(0, 3)}),
        )
    ),
    Door(
        "Samples.of(Samples)",
        lambda **given: cs.Samples.of(samples(), **given),
        lambda: {
            "y": Y.copy(),
            "weight": WEIGHT.copy(),
            "present": {"a": PRESENT[:, 0]},
            "kinds": None,
            "index": np.arange(N),
        },
    ),
    _function("TrainingSettings", TrainingSettings, **TrainingSettings(**QUICK).settings()),
    Door(
        "Trainer",
        lambda **given: Model.fit("late", samples(), trainer=Trainer(**given)).name,
        lambda: {"preparation": None, "checkpoint": None, "callbacks": None, **QUICK},
    ),
    Door(
        "Phase",
        lambda **given: Phase(**given),
        lambda: {"name": "fit", "epochs": 1, "lr": 0.1, "parameters": None},
    ),
    Door(
        "Model.fit",
        lambda **given: Model.fit(**given).name,
        lambda: {
            "name": "late",
            "train": samples(),
            "validation": samples(),
            "settings": {},
            "encoders": {"a": "mlp"},
            "task": "classification",
            "class_weight": {0: 1.0, 1: 2.0},
            "trainer": Trainer(**QUICK),
        },
    ),
    Door(
        "Model.predict",
        lambda **given: fitted("model").predict(**given).output,
        lambda: {"samples": samples(), "batch_size": 5, "device": "cpu"},
    ),
    Door(
        "load_model",
        lambda **given: load_model(**given)[0].name,
        lambda: {"path": saved("classifier"), "encoders": None},
    ),
    _function(
        "progressive",
        cs.progressive,
        model=TwoBranches(),
        encoders={"sound": "sound", "sight": "sight"},
        fusion="join",
        steps=2,
        mode="add",
        example=example(),
    ),
    Door(
        "progressive(method)",
        lambda **given: cs.progressive(**given),
        lambda: {"model": methods.build("concat", spec()), "steps": 2, "mode": "add"},
        takes_options=True,
    ),
    _function("methods.available", methods.available, modalities=["a"]),
    _function("methods.find", methods.find, name="concat", modalities=["a"]),
    _function("methods.build", methods.build, name="concat", spec=spec(), settings={"width": 4}),
    *(
        _metric(name, "prediction")
        for name in ("accuracy", "balanced_accuracy", "macro_f1", "mse", "mae", "pearson", "acc7")
    ),
    _metric("acc2", "prediction", zeros="positive"),
    *(_metric(name, "probabilities") for name in ("nll", "brier")),
    *(_metric(name, "probabilities", bins=3) for name in ("ece", "reliability_bins")),
    _function(
        "evaluation.evaluate",
        evaluation.evaluate,
        any_number=True,
        task_kind="classification",
        y=Y,
        prediction=Y,
        probabilities=PROBABILITIES,
        metrics=["accuracy", "nll"],
        classes=[0, 1],
        weight=WEIGHT,
    ),
    _function(
        "evaluation.find_metric", evaluation.find_metric, metric="accuracy", task_kind="classification", targets=1
    ),
    _function("evaluation.trust_from_weights", evaluation.trust_from_weights, weights=PRESENT * 1.0, present=PRESENT),
    _function(
        "evaluation.trust_quality",
        evaluation.trust_quality,
        weights=A,
        losses=A,
        present=A > -9,
        corrupted=A > 0,
        names=["a", "b", "c"],
    ),
    Door(
        "evaluation.step_features",
        lambda **given: evaluation.step_features(**given),
        lambda: {"model": fitted("progressive"), "samples": samples(), "batch_size": 5, "device": "cpu"},
    ),
    _function(
        "DataSet",
        lambda **given: DataSet(**given).describe(),
        name="toy",
        samples=samples(),
        task="classification",
        split=np.array(["train", "validation", "test"] * 4),
        description="",
        licence="",
        extra={},
    ),
    Door("DataSet.part", lambda **given: len(data_set().part(**given)), lambda: {"name": "train"}),
    Door("DataSet.resplit", lambda **given: len(data_set().resplit(**given).train), lambda: {"seed": 0}),
)
