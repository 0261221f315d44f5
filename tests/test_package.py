"""The package as a whole: light to import, one way through the rooms, every public name there and explained."""

import importlib
import inspect
import json
import pkgutil
import subprocess
import sys

import pytest

import consilience
from documents import ROOT

HEAVY = ["lightning_fabric", "matplotlib", "transformers", "sklearn", "scipy", "polars", "pandas", "torch", "rich"]
MODULES = sorted(module.name for module in pkgutil.walk_packages(consilience.__path__, "consilience."))


def run(code: str) -> object:
    """What the code prints as JSON in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import consilience", set()),
        ("import consilience; dir(consilience); consilience.__version__", set()),
        ("import consilience; consilience.Samples", set()),
        ("import consilience.core.samples", set()),
        ("import consilience.core.targets", set()),
        ("import consilience.training.training_settings", set()),
        ("import consilience.preparation", {"torch"}),
        ("import consilience; consilience.methods.registry()", {"torch"}),
    ],
)
def test_heavy_packages_are_loaded_when_they_are_used(statement, allowed):
    loaded = run(f"{statement}\nimport json, sys\nprint(json.dumps([name for name in {HEAVY} if name in sys.modules]))")
    assert set(loaded) <= allowed


def test_what_training_imports_is_there_before_its_time_is_taken():
    code = """
import json, sys
import consilience
from consilience.comparison.job import import_training
data = consilience.load_data("digits")
import_training("late", {"device": "cpu"})
before = set(sys.modules)
from consilience.training import Model, Trainer
Model.fit("late", data.train[:40], data.validation, trainer=Trainer(epochs=1, device="cpu"))
late = {name if name == "torch._dynamo" else name.partition(".")[0] for name in set(sys.modules) - before}
assert "lightning_fabric" not in sys.modules, "one process on the CPU does not need it"
print(json.dumps(sorted(late & {"consilience", "lightning_fabric", "sklearn", "scipy", "torch._dynamo"})))
"""
    assert run(code) == []


def test_every_module_imports_on_its_own():
    # One interpreter, in which every module is imported as if it were the first: a circle shows from some entry.
    code = f"""
import importlib, json, sys, traceback
import torch  # the others' modules stay; only ours are forgotten
failed = {{}}
for name in {MODULES}:
    for known in [one for one in sys.modules if one.partition(".")[0] == "consilience"]:
        del sys.modules[known]
    try:
        importlib.import_module(name)
    except Exception:
        failed[name] = traceback.format_exc(limit=-1)
print(json.dumps(failed))
"""
    assert run(code) == {}


@pytest.mark.slow
def test_doctests_of_one_file_can_be_run_alone():
    # Its package imports the file, and pytest would run it once more: src/conftest.py prevents that.
    asked = ["--collect-only", "-p", "no:cacheprovider", "src/consilience/methods/fusion/early.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *asked], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", consilience.__all__)
def test_every_public_name_is_there(name):
    assert getattr(consilience, name) is not None
    assert dir(consilience).count(name) == 1
    assert name in vars(consilience)  # and is not looked for again


def test_the_public_names_are_these():
    assert set(consilience.__all__) == {
        "BayesFusion",
        "FusionClassifier",
        "FusionRegressor",
        "FusionState",
        "Monitor",
        "MultimodalVAE",
        "Samples",
        "__version__",
        "compare",
        "corrupt",
        "estimate_target_prior",
        "fuse",
        "load",
        "load_data",
        "methods",
        "progressive",
        "robust_auc",
        "robustness_curve",
        "trust_diagnostics",
    }
    assert len(consilience.__all__) == len(set(consilience.__all__))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'consilience' has no attribute 'fusee'"):
        consilience.fusee  # noqa: B018


@pytest.mark.parametrize("room", MODULES)
def test_everything_public_is_explained(room):
    module = importlib.import_module(room)
    assert module.__doc__, f"{room} does not say what it is for"
    unexplained = []
    for name, thing in vars(module).items():
        if name.startswith("_") or getattr(thing, "__module__", None) != room:
            continue
        if inspect.isfunction(thing) and not thing.__doc__:
            unexplained.append(name)
        if inspect.isclass(thing):
            unexplained += [] if thing.__doc__ else [name]
            unexplained += [
                f"{name}.{part}"
                for part, method in vars(thing).items()
                if not part.startswith("_") and inspect.isfunction(method) and not inspect.getdoc(getattr(thing, part))
            ]
    assert unexplained == []


def test_no_room_bears_the_name_of_a_public_function():
    # Importing a room sets it as an attribute of the package, which would hide the function.
    rooms = {name.split(".")[1] for name in MODULES}
    assert rooms & set(consilience.__all__) == {"methods"}
