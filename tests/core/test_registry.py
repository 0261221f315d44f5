"""The registry: names, near misses, duplicates, modules imported when needed, and plugins found by entry point."""

import subprocess
import sys
from contextlib import ExitStack

import numpy as np
import pytest

import consilience as cs
from consilience.cli.main import main
from consilience.comparison.comparison import reopen
from consilience.core.errors import ConsilienceError, UnknownNameError
from consilience.core.registry import Registry
from consilience.corruption.corruptions import CORRUPTIONS
from consilience.data.named_sets import DATA_SETS
from consilience.encoders.choice import ENCODERS
from consilience.evaluation.metrics import METRICS
from consilience.methods import METHODS

PLUGIN = '''
import numpy as np

from consilience.core.samples import Samples
from consilience.corruption import register_corruption
from consilience.data.dataset import DataSet
from consilience.data.named_sets import register as register_data_set
from consilience.encoders import register_encoder
from consilience.encoders.mlp import Mlp
from consilience.evaluation import Metric, register_metric
from consilience.methods import register
from consilience.methods.opinions.late import Late


@register("guest-method", paper="Guest 2030")
class GuestMethod(Late):
    """Late fusion from another package."""


@register_encoder("guest-encoder")
class GuestEncoder(Mlp):
    """An encoder from another package."""


@register_corruption("guest-noise", kinds=("vector",), level="what is added")
def guest_noise(portion, level):
    return portion.having(portion.values + level)


def share_right(y, prediction, weight=None):
    return float(np.mean(np.asarray(y) == np.asarray(prediction)))


register_metric(Metric("guest_metric", "classification", share_right, usual=False))


@register_data_set("guest-set", description="two modalities, two classes", licence="none")
def guest_set(*, n: int = 60):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    values = {name: rng.normal(size=(n, 3)) + y[:, None] for name in ("a", "b")}
    split = np.array(["train", "train", "train", "validation", "test", "test"] * (n // 6))
    return DataSet("guest-set", Samples.of(values, y), "classification", split)
'''
KINDS = ("methods", "encoders", "corruptions", "metrics", "data_sets")
REGISTRIES = (METHODS, ENCODERS, CORRUPTIONS, METRICS, DATA_SETS)


def install(folder, name: str, code: str, groups=KINDS) -> None:
    """Put a package into a folder as an installer would: a module, and a dist-info with its entry points."""
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    points = [f"[consilience.{group}]\nguest = {name}\n" for group in groups]
    (info / "entry_points.txt").write_text("\n".join(points))


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    """A folder on the path, in which installed packages are found by registries that forget them afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    with ExitStack() as stack:
        for registry in REGISTRIES:
            stack.enter_context(registry.restored())
            monkeypatch.setattr(registry, "_complete", False)
        yield tmp_path
    for name in ("guest", "broken"):
        sys.modules.pop(name, None)


def test_everything_in_a_plugin_is_found_and_used(plugins, tmp_path, capsys):
    install(plugins, "guest", PLUGIN)
    for registry, name in zip(
        REGISTRIES, ("guest-method", "guest-encoder", "guest-noise", "guest_metric", "guest-set"), strict=True
    ):
        assert name in registry.names()
    comparison = cs.compare(
        "guest-set",
        ["guest-method", "late"],
        corruption="guest-noise",
        levels=[0, 3],
        seeds=1,
        metric="guest_metric",
        encoders={"a": "guest-encoder"},
        training={"epochs": 1},
        out=tmp_path / "run",
        verbose=0,
    )
    assert "guest-method" in comparison.table("markdown")
    assert "guest-noise" in comparison.table("markdown")
    assert main(["train", "guest-set", "--method", "guest-method", "--epochs", "1", "--out", str(tmp_path / "m")]) == 0
    assert main(["methods"]) == 0
    assert "guest-method" in capsys.readouterr().out


@pytest.mark.slow
def test_a_set_and_a_method_of_a_plugin_are_compared_by_worker_processes(plugins, tmp_path, capsys):
    install(plugins, "guest", PLUGIN)
    words = ["compare", "guest-set", "--methods", "guest-method", "late", "--levels", "0", "--epochs", "1"]
    assert main([*words, "--folds", "2", "--seeds", "2", "--jobs", "2", "--out", str(tmp_path / "run")]) == 0
    assert "best model: " in capsys.readouterr().out
    findings = reopen(tmp_path / "run").findings
    assert set(findings.values["method"]) == {"guest-method", "late"}
    assert not len(findings.failed)


def test_a_name_is_found_without_its_registry_being_complete(plugins):
    install(plugins, "guest", PLUGIN)
    assert METHODS.find("guest-method").paper == "Guest 2030"
    with pytest.raises(UnknownNameError, match="did you mean 'guest-method'"):
        METHODS.find("guest-methd")


def test_a_plugin_that_does_not_load_is_named(plugins):
    install(plugins, "broken", "import a_package_that_is_not_installed", groups=("methods",))
    message = r"the plugin 'guest' \(broken\) of entry point group 'consilience.methods' failed to load: ModuleNotFound"
    for _ in range(2):  # and again: an incomplete registry is not taken for a complete one
        with pytest.raises(ConsilienceError, match=message):
            METHODS.names()
    assert METHODS.find("concat").name == "concat"  # what does not need the plugin still works


def test_a_plugin_cannot_take_a_name(plugins):
    install(plugins, "guest", PLUGIN.replace("guest-noise", "gaussian"), groups=("corruptions",))
    with METRICS.restored(), pytest.raises(ConsilienceError, match="corruption 'gaussian' is registered twice"):
        CORRUPTIONS.names()


def test_a_registry_is_a_mapping_in_order():
    shapes = Registry[int]("shape")
    shapes.add("square", 4)
    shapes.add("dot", 0)
    assert dict(shapes) == {"dot": 0, "square": 4}
    assert list(shapes) == ["dot", "square"]
    in_order = Registry[int]("shape", alphabetical=False)
    in_order.add("square", 4)
    in_order.add("dot", 0)
    assert in_order.names() == ["square", "dot"]
    assert shapes.get("circle") is None
    assert 3 not in shapes
    with pytest.raises(KeyError):
        shapes["circle"]
    with shapes.restored():
        shapes.add("line", 1)
    assert "line" not in shapes


def test_modules_are_imported_when_they_are_needed(tmp_path, monkeypatch):
    package = tmp_path / "annexe"
    package.mkdir()
    (package / "__init__.py").write_text("from consilience.core.registry import Registry\nTHINGS = Registry('thing')\n")
    for name in ("first_thing", "second"):
        code = f"from annexe import THINGS\nTHINGS.add('{name.replace('_', '-')}', 1)\n"
        (package / f"{name}.py").write_text(code + ("THINGS.add('third', 3)\n" if name == "second" else ""))
    monkeypatch.syspath_prepend(tmp_path)
    import annexe

    annexe.THINGS.__init__("thing", packages=("annexe",))
    assert annexe.THINGS["first-thing"] == 1
    assert "annexe.second" not in sys.modules
    assert annexe.THINGS["third"] == 3
    for name in [name for name in sys.modules if name.partition(".")[0] == "annexe"]:
        del sys.modules[name]


def test_plugin_data_are_what_the_plugin_made(plugins):
    install(plugins, "guest", PLUGIN)
    data = cs.load_data("guest-set", n=30)
    assert data.sizes == {"train": 15, "validation": 5, "test": 10}
    assert np.unique(data.y).tolist() == [0, 1]


def test_threads_find_every_name():
    code = """
from concurrent.futures import ThreadPoolExecutor
import torch
from consilience.methods import METHODS
names = ["late-probs", "best-unimodal", "qmf", "etmc", "pro:", "m2vae", "unimodal:", "lf-lstm"]
with ThreadPoolExecutor(8) as pool:
    print(*pool.map(lambda name: METHODS.find(name).name == name, names), *set(pool.map(lambda _: len(METHODS), names)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *found, length = done.stdout.split()
    assert found == ["True"] * 8
    assert int(length) == len(METHODS)


def test_a_name_of_ours_is_taken_before_its_module_is_imported():
    code = """
from consilience.methods import Method, register
try:
    register("pro:")(type("Mine", (Method,), {}))
except Exception as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("method 'pro:' is registered twice"), done.stdout + done.stderr
