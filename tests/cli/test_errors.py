"""What goes wrong is one line on standard error that says what to do, and exit code 2."""

import pytest

from cli.conftest import COLUMNS
from consilience.cli import options
from consilience.cli.main import COMMANDS, parse
from consilience.core.settings import settings_of
from consilience.training import TrainingSettings

OUT = ("--out", "{tmp}/run")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "a command is missing: consilience COMMAND, one of compare, train"),
        (("compar", "digits"), "unknown command 'compar': did you mean 'compare'?"),
        (("compare",), "compare: data must be given. See consilience compare --help"),
        (("compare", "digits", "--sed", "3"), "compare: unknown option '--sed': did you mean '--seeds'?"),
        (("compare", "digits", "--zzz"), "compare: unknown option '--zzz'. See consilience compare --help"),
        (("report", "run", "late"), "report: unknown argument 'late'. See"),
        (("compare", "digits", "--methods", "late,concat"), "put spaces between names, --methods late concat"),
        (("compare", "digits", "--levels", "0,5,10"), "put spaces between values, --levels 0 5 10"),
        (("compare", "digits", "--lr", "0,01"), "write a decimal point, --lr 0.01"),
        (("compare", "digits", "--probability", "0,5"), "write a decimal point, --probability 0.5"),
        (
            ("compare", "digits", "--seeds", "x"),
            "compare: --seeds must be a whole number ≥ 1, got 'x'. See",
        ),
        (("compare", "digits", "--levels", "1", "x"), "compare: --levels must be a number ≥ 0, got 'x'"),
        (("compare", "digits", "--config", "no.yaml"), "no.yaml"),
        (("compare", "digits", "--format", "html", *OUT), "unknown format 'html'. Known: console, latex, markdown"),
        (("report", "run", "--format", "markdwn"), "unknown format 'markdwn': did you mean 'markdown'?"),
        (("reproduce", "--list", "--format", "html"), "unknown format 'html'"),
        (("compare", "digit"), "unknown data set 'digit': did you mean 'digits'?"),
        (("compare", "digits", "--methods", "lat", *OUT), "unknown method 'lat': did you mean 'late'?"),
        (("compare", "digits", "--corruption", "gausian", *OUT), "unknown corruption 'gausian': did you mean"),
        (("compare", "digits", "--metric", "acuracy", *OUT), "unknown metric 'acuracy': did you mean 'accuracy'?"),
        (("compare", "digits", "--optimizer", "adm", *OUT), "unknown optimizer 'adm': did you mean 'adam"),
        (("compare", "digits", "--epochs", "0"), "compare: --epochs must be a whole number ≥ 1 or None, got 0"),
        (
            ("compare", "digits", "--patience", "often"),
            "--patience must be a whole number ≥ 1, 'auto' or None, got 'often'",
        ),
        (("compare", "digits", "--encoder", "top=mlp", *OUT), "unknown modality 'top': did you mean 'top_left'?"),
        (
            ("compare", "digits", "--setting", "width=3", *OUT),
            "must have the form METHOD.NAME=VALUE, got width=3",
        ),
        (("compare", "digits", "--modality", "top", *OUT), "unknown modality 'top': did you mean 'top_left'?"),
        (
            ("compare", "{table}", "--modality", "a=heat_*", "--modality", "b", *OUT),
            "must have the form NAME=VALUE",
        ),
        (("compare", "{table}", "--modality", "a=heat_*", "--modality", "a=shop", *OUT), "--modality a is given twice"),
        (("compare", "digits", "--seeds", "0", *OUT), "seeds must be a whole number ≥ 1, got 0"),
        (("compare", "digits", "--jobs", "0", "--methods", "late", *OUT), "--jobs must be a whole number ≥ 1, got 0"),
        (("compare", "digits", "--cluster", "slurm", "--methods", "late", *OUT), "unknown cluster 'slurm'"),
        (("compare", "no.csv", "--target", "y"), "there is no file or folder 'no.csv'"),
        (("compare", "{table}", "--target", "fualt", "--modality", "a=heat_*", *OUT), "did you mean 'fault'?"),
        (("compare", "{table}", "--modality", "a=heat_*", *OUT), "target"),
        (("compare", "{table}", "--target", "fault", *OUT), "modalities"),
        (("compare", "{table}", "--target", "fault", "--modality", "a=temp_*", *OUT), "'temp_*' matches no column"),
        (("compare", "{table}", *COLUMNS, "--methods", "late", "--out", "{table}/run"), "cannot write to {table}/run"),
        (("compare", "{table}", *COLUMNS, "--methods", "late", "--out", "{tmp}"), "exists and holds no comparison"),
        (("train", "digits", "--method", "lat", *OUT), "unknown method 'lat': did you mean 'late'?"),
        (("train", "digits"), "train: --out must be given"),
    ],
)
def test_errors_are_one_line(run, table, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "something").write_text("")
    names = {"table": table, "tmp": tmp_path}
    done = run(*[word.format(**names) for word in words])
    assert said.format(**names) in done.err
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("consilience: error: ")
    assert done.err.count("\n") == 1
    assert not (tmp_path / "run" / "jobs").exists() or not list((tmp_path / "run" / "jobs").glob("*.npz"))


def test_every_setting_of_training_is_an_option():
    _, chosen = parse(["train", "digits", "--out", "m", "--clip", "none", "--patience", "none", "--average", "0.9"])
    assert options.training(chosen) == {"clip": None, "patience": None, "average": 0.9}
    for name, setting in settings_of(TrainingSettings).items():
        if name not in ("seed", "verbose", "on_interrupt", "checkpoint_seconds"):
            given = "none" if setting.default is None else str(setting.default)
            _, chosen = parse(["compare", "digits", f"--{name.replace('_', '-')}", given])
            assert options.training(chosen) == {name: setting.default}


def test_a_file_of_options_is_checked_in_the_same_way(run, tmp_path):
    (tmp_path / "good.yaml").write_text("epochs: 3\nprecision: 64\nlevels: [0, 2]\nclip: none\n")
    _, chosen = parse(["compare", "digits", "--config", str(tmp_path / "good.yaml")])
    assert options.training(chosen) == {"epochs": 3, "precision": "64", "clip": None}
    assert chosen.levels == [0.0, 2.0]
    (tmp_path / "bad.yaml").write_text("epochs: many\n")
    done = run("compare", "digits", "--config", tmp_path / "bad.yaml")
    assert done.err.startswith("consilience: error: compare: --epochs must be a whole number ≥ 1 or None, got 'many'.")


@pytest.mark.parametrize("command", COMMANDS)
def test_only_the_command_that_runs_is_set_up(command, capsys, monkeypatch):
    for name, module in COMMANDS.items():
        if name != command:
            monkeypatch.setattr(module, "add_arguments", None)
    with pytest.raises(SystemExit):
        parse([command, "--help"])
    assert f"usage: consilience {command}" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        parse(["--help"])
    shown = capsys.readouterr().out
    assert all(f"consilience {name} --help" in shown for name in COMMANDS)


def test_debug_shows_the_traceback(run):
    done = run("compare", "digit", "--debug")
    assert done.code == 2
    assert done.err.startswith("Traceback (most recent call last):")
    assert done.err.splitlines()[-1].startswith("consilience: error: unknown data set 'digit'")


def test_an_error_of_our_own_is_not_hidden(run, monkeypatch):
    monkeypatch.setattr("consilience.cli.methods.describe", None)
    with pytest.raises(TypeError):
        run("methods")


@pytest.mark.parametrize(("command", "resumes"), [("compare", True), ("train", False)])
def test_ctrl_c(run, monkeypatch, tmp_path, command, resumes):
    def interrupt(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("consilience.data.load_data", interrupt)
    monkeypatch.setattr("consilience.comparison.sources.load_data", interrupt)
    done = run(command, "digits", "--out", tmp_path / "run")
    assert done.code == 130
    assert done.err.startswith("consilience: stopped")
    assert ("the same command continues from there" in done.err) == resumes


@pytest.mark.parametrize(
    "content",
    [
        b"epochs: \xff\xfe\n",
        b"\0\0",
        b"levels: &a [*a]\n",
        b"levels: " + b"[" * 5000,
        b"a0: &a0 [x, x]\n" + b"".join(b"a%d: &a%d [*a%d, *a%d]\n" % (i, i, i - 1, i - 1) for i in range(1, 40)),
        b"epochs: !!python/object/apply:os.system [ls]\n",
    ],
    ids=["no UTF-8", "null", "itself", "deep", "doubled", "tag"],
)
def test_a_damaged_file_of_options_is_one_line(run, tmp_path, content):
    (tmp_path / "bad.yaml").write_bytes(content)
    for words in (("--config", tmp_path / "bad.yaml"), (f"--config={tmp_path / 'bad.yaml'}",)):
        done = run("compare", "digits", *words)
        assert done.code == 2
        assert done.err.startswith(f"consilience: error: --config: {tmp_path / 'bad.yaml'}")
        assert len(done.err.splitlines()) == 1


def test_an_unknown_key_of_a_config_file_is_named_with_the_nearest(run, tmp_path):
    (tmp_path / "options.yaml").write_text("epohcs: 3\n", encoding="utf-8")
    done = run("compare", "digits", "--config", tmp_path / "options.yaml")
    assert done.code == 2
    assert "--config: unknown option 'epohcs': did you mean 'epochs'?" in done.err
