"""Settings by part as options, as settings of one method in a comparison, and as parameters of estimators."""

import json

import pytest

import consilience as cs
from cli.conftest import COLUMNS, QUICK
from consilience import load
from consilience.cli.main import parse
from consilience.cli.options import training
from consilience.core.errors import ConsilienceError

BY_PART = ("--lr", "vibration=2e-3,head=0.02", "--freeze", "vibration=1,heat=3steps", "--weight-decay", "rest=0.1")


def test_options_become_mappings():
    given = training(parse(["train", "digits", "--out", "m", *BY_PART, "--layer-decay", "0.9"])[1])
    assert given == {
        "lr": {"vibration": 2e-3, "head": 0.02},
        "freeze": {"vibration": 1, "heat": "3steps"},
        "weight_decay": {"rest": 0.1},
        "layer_decay": 0.9,
    }
    given = training(parse(["train", "digits", "--out", "m", "--layer-decay", "text=0.9", "--lr", "0.1"])[1])
    assert given == {"layer_decay": {"text": 0.9}, "lr": 0.1}


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--lr", "text=2e-5,head", "--lr must have the form NAME=VALUE[,NAME=VALUE…]"),
        ("--lr", "text=0", "--lr must be a number > 0"),
        ("--lr", "text=1,text=2", "--lr names text twice"),
        ("--lr", "fast", "--lr must be a number > 0"),
        ("--freeze", "3", "--freeze must be a mapping"),
        ("--freeze", "head=soon", "freeze of 'head' must be a number of epochs"),
        ("--freeze", "heads=3", "unknown part 'heads': did you mean 'head'?"),
    ],
)
def test_a_mistake_is_one_line(run, table, tmp_path, option, value, said):
    done = run("train", table, *COLUMNS, "--method", "concat", "--epochs", "2", "--out", tmp_path / "m", option, value)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_training_and_the_saved_model(run, table, tmp_path):
    command = ("train", table, *COLUMNS, "--method", "concat", "--epochs", "2", "--out", tmp_path / "m")
    assert run(*command, *BY_PART).code == 0
    model = load(tmp_path / "m")
    assert model.lr == {"vibration": 2e-3, "head": 0.02}
    assert model.freeze == {"vibration": 1, "heat": "3steps"}
    card = (tmp_path / "m" / "README.md").read_text(encoding="utf-8")
    assert '- lr: \\{"vibration": 0.002, "head": 0.02\\}' in card
    assert '- freeze: \\{"vibration": 1, "heat": "3steps"\\}' in card


def test_a_comparison_of_methods_that_have_not_all_parts(run, table, tmp_path):
    one = 'concat.lr={"vibration": 0.001, "fusion": 0.01}'
    done = run("compare", table, *COLUMNS, "--methods", "late", "concat", *QUICK, "--out", tmp_path, "--setting", one,
               "--freeze", "fusion=1", "--side-by-side")  # fmt: skip
    assert done.code == 0, done.err
    plan = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert plan["asked"]["training"]["freeze"] == {"fusion": 1}


def test_tuning_draws_one_rate():
    data = cs.load_data("digits")
    with pytest.raises(ConsilienceError, match="tuning draws one learning rate for all parts"):
        cs.compare(data, ["late"], seeds=1, levels=(0,), tune=2, training={"lr": {"head": 0.1}})


def test_parameters_of_an_estimator_are_cloned_and_checked():
    from sklearn.base import clone

    model = cs.FusionClassifier("concat", lr={"a": 0.1}, freeze={"a": 2})
    assert clone(model).get_params()["lr"] == {"a": 0.1}
    data = cs.load_data("digits")
    with pytest.raises(ConsilienceError, match="unknown part 'a'"):
        model.set_params(epochs=3).fit(data.train)
