"""`consilience methods`, `consilience data`, and every command's help."""

import json
import shutil
import subprocess

import pytest

from cli.conftest import COLUMNS
from consilience import methods
from consilience.cli.main import COMMANDS, parse
from consilience.data import list_sets
from consilience.version import __version__


def test_every_method_is_listed(run):
    shown = run("methods").out
    for name, cls in methods.registry().items():
        assert f"\n{name}" in f"\n{shown}"
        assert cls.paper[:40] in shown


def test_methods_as_json(run):
    listed = {one["name"]: one for one in json.loads(run("methods", "--json").out)}
    assert set(listed) == {f"{name}NAME" if name.endswith(":") else name for name in methods.registry()}
    assert listed["late"]["tasks"] == ["classification", "regression"]
    assert "text" in listed["late"]["reads"]
    assert listed["late"]["does"].startswith("The mean of the present experts' logits")


def test_every_set_is_listed(run):
    lines = run("data", "list").out.splitlines()
    assert [line.split()[0] for line in lines] == [one["name"] for one in list_sets()]
    assert any(line.startswith("digits") and "built in" in line for line in lines)
    assert json.loads(run("data", "list", "--json").out) == list_sets()


def test_a_set_is_described(run):
    shown = run("data", "describe", "digits").out
    assert "1797 samples (1079 train, 359 validation, 359 test; split drawn at random), classification" in shown
    assert shown.count(" vector ") == 4
    assert shown.count("  class ") == 10


def test_a_table_is_described(run, table):
    described = json.loads(run("data", "describe", table, *COLUMNS, "--json").out)
    assert [one["name"] for one in described["modalities"]] == ["vibration", "heat"]
    assert described["modalities"][0]["missing"] == pytest.approx(0.2, abs=0.07)
    assert sum(one["samples"] for one in described["classes"]) == described["samples"] == 240
    shown = run("data", "describe", table, *COLUMNS).out
    assert "machines: data of your own" in shown
    assert f"{described['modalities'][0]['missing']:.1%} missing" in shown


def test_modalities_of_arrays_are_kept_by_name(run, arrays):
    described = json.loads(run("data", "describe", arrays, "--modality", "heat", "--json").out)
    assert [one["name"] for one in described["modalities"]] == ["heat"]


def test_numbers_to_predict_are_described(run):
    shown = run("data", "describe", "progressive-synthetic", "--option", "n=200").out
    assert "200 samples" in shown
    assert "  target mean" in shown


@pytest.mark.parametrize("words", [("describe",), ("show", "digits"), ("list", "digits")])
def test_what_can_be_done_with_data(run, words):
    done = run("data", *words)
    assert done.code == 2
    assert "consilience data describe NAME_OR_FILE" in done.err


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_examples(run, command):
    done = run(command, "--help")
    assert done.code == 0
    assert done.out.startswith(f"usage: consilience {command} {COMMANDS[command].USAGE}\n")
    examples = done.out.partition("examples:\n")[2].splitlines()
    assert examples
    assert all(line.startswith(f"  consilience {command}") for line in examples)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(run, command):
    from jsonargparse import ArgumentParser

    parser = ArgumentParser()
    COMMANDS[command].add_arguments(parser)
    named = [action for action in parser._actions if action.option_strings]
    assert [action.option_strings for action in named if not action.help] == []


def test_help_shows_a_default_of_zero(run):
    assert "(default: 0)" in " ".join(run("fuse", "--help").out.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_the_examples_can_be_parsed(command):
    import shlex

    for line in COMMANDS[command].EXAMPLES.splitlines():
        name, _ = parse(shlex.split(line)[1:])
        assert name == command


def test_the_commands_and_the_version(run):
    shown = run("--help").out
    assert all(f"consilience {command} --help" in shown for command in COMMANDS)
    assert run("--version").out == f"consilience {__version__}\n"


def test_a_method_is_explained_by_name(run):
    shown = run("methods", "lowrank").out
    cls = methods.find("lowrank")[0]
    first = (cls.__doc__ or "").strip().splitlines()[0]
    for words in (first, cls.equation, cls.paper, "rank = 40 (a whole number ≥ 1)"):
        assert words in shown
    assert "Rank of the weight tensor." in shown
    (told,) = json.loads(run("methods", "lowrank", "--json").out)
    assert told["settings"]["rank"]["default"] == 40
    assert "did you mean 'lowrank'" in run("methods", "lowrnk").err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_completes_commands_options_and_methods(run, shell):
    script = run("completion", shell).out
    for word in ("compare", "reproduce", "bayes-robust", "methods", "side-by-side"):
        assert word in script
    assert "Known: bash, fish, zsh" in run("completion", "tcsh").err


def test_the_script_of_bash_completes(run, tmp_path):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    (tmp_path / "completion").write_text(run("completion", "bash").out)

    def complete(*words):
        line = " ".join(f"'{word}'" for word in words)
        set_up = f"source ./completion; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}"
        code = f"{set_up}; _consilience; echo ${{COMPREPLY[@]}}"
        done = subprocess.run([bash, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert complete("consilience", "pred") == ["predict"]
    assert complete("consilience", "compare", "--side") == ["--side-by-side"]
    assert complete("consilience", "compare", "digits", "--methods", "late", "bayes-r") == ["bayes-robust"]
    assert complete("consilience", "methods", "qm") == ["qmf"]
