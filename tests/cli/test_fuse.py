"""`consilience fuse`: opinions in files become posteriors in a file, a table of scores and a page."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
import pytest

import consilience as cs
from consilience.data.files import posterior_writer as posteriors
from consilience.evaluation import accuracy, ece, nll

CLASSES = ["cat", "cow", "dog"]
ROWS = 300


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def opinions():
    """Two experts who are right more often than not, the second silent on some rows; true class numbers."""
    rng = np.random.default_rng(0)
    y = rng.choice(3, size=ROWS, p=[0.5, 0.3, 0.2])
    image, audio = (rng.normal(size=(ROWS, 3)) + 2.0 * np.eye(3)[y] for _ in range(2))
    audio[::7] = np.nan
    return image, audio, y


@pytest.fixture(scope="module")
def folder(opinions, tmp_path_factory):
    """The same opinions in every format there is."""
    image, audio, y = opinions
    place = tmp_path_factory.mktemp("opinions")
    np.save(place / "image.npy", image)
    np.save(place / "audio.npy", audio)
    np.save(place / "y.npy", y)
    np.save(place / "both.npy", np.stack([image, audio], axis=1))
    np.savez(place / "both.npz", image=image, audio=audio, y=y)
    words = pl.Series("label", np.array(CLASSES)[y])
    frames = {
        name: pl.DataFrame({one: said[:, k] for k, one in enumerate(CLASSES)}).fill_nan(None)
        for name, said in (("image", image), ("audio", audio))
    }
    for name, frame in frames.items():
        frame.write_parquet(place / f"{name}.parquet")
        frame.write_csv(place / f"{name}.csv")
    frames["audio"].select("dog", "cat", "cow").write_csv(place / "turned.csv", null_value="NA")
    wide = [frame.rename(lambda one, name=name: f"{name}_{one}") for name, frame in frames.items()]
    pl.concat([*wide, words.to_frame()], how="horizontal").write_csv(place / "wide.csv")
    pl.concat([*wide, words.to_frame()], how="horizontal").write_parquet(place / "wide.parquet", row_group_size=50)
    pl.DataFrame({"id": range(ROWS), "label": words}).write_csv(place / "labels.csv")
    p = softmax(image)
    pl.DataFrame({"prediction": words} | {f"probability_{one}": p[:, k] for k, one in enumerate(CLASSES)}).write_csv(
        place / "predicted.csv"
    )
    np.save(place / "image_p.npy", p)
    np.save(place / "audio_p.npy", softmax(audio))
    return place


@pytest.fixture
def expected(opinions):
    image, audio, _ = opinions
    return np.exp(cs.fuse({"image": image, "audio": audio}, present={"audio": ~np.isnan(audio[:, 0])}))


def table_of(text):
    """Name → samples, accuracy, NLL, ECE, as printed."""
    rows = re.findall(r"^ (\S+) +(\d+) +(\S+) +(\S+) +(\S+) *$", text, re.MULTILINE)
    return {name: tuple(map(float, values)) for name, *values in rows}


@pytest.mark.parametrize(
    "words",
    [
        ("image.npy", "audio.npy", "--labels", "y.npy"),
        ("both.npy", "--labels", "y.npy", "--names", "image", "audio"),
        ("both.npz", "--target", "y"),
        ("both.npz", "--target", "y", "--expert", "image", "--expert", "audio=audio"),
        ("image.parquet", "audio.csv", "--labels", "labels.csv", "--target", "label"),
        ("image.csv", "turned.csv", "--labels", "labels.csv", "--target", "label", "--names", "image", "audio"),
        ("image.csv", "audio.npy", "--labels", "y.npy"),
        ("wide.csv", "--target", "label", "--expert", "image=image_*", "audio=audio_*"),
        ("wide.parquet", "--target", "label", "--expert", "image=image_*", "audio=audio_*"),
        ("image_p.npy", "audio_p.npy", "--probabilities", "--labels", "y.npy", "--names", "image", "audio"),
        ("predicted.csv", "audio_p.npy", "--probabilities", "--labels", "y.npy", "--names", "image", "audio"),
    ],
)
def test_every_format_gives_the_posterior_of_fuse_and_its_scores(
    run, folder, tmp_path, monkeypatch, opinions, expected, words
):
    monkeypatch.chdir(folder)
    image, audio, y = opinions
    done = run("fuse", *words, "--out", tmp_path / "fused.npy")
    assert (done.code, done.err) == (0, "")
    np.testing.assert_allclose(np.load(tmp_path / "fused.npy"), expected, atol=1e-9)
    spoken = ~np.isnan(audio[:, 0])
    scores = table_of(done.out)
    wanted = {
        "image": (y, softmax(image)),
        "audio": (y[spoken], softmax(audio[spoken])),
        "fused": (y, expected),
    }
    assert set(scores) == set(wanted)
    for name, (true, p) in wanted.items():
        right = (len(true), 100 * accuracy(true, p.argmax(axis=1)), nll(true, p), ece(true, p))
        np.testing.assert_allclose(scores[name], right, atol=0.051)
        np.testing.assert_allclose(scores[name][2:], right[2:], atol=0.00051)
    assert f"Scored on all {ROWS} rows: none was used in the fit." in done.out


@pytest.mark.parametrize("ending", posteriors.ENDINGS)
def test_outputs(run, folder, tmp_path, monkeypatch, expected, ending):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("consilience.estimators.fuse_files.CELLS", 6 * 70)  # several batches, the last one short
    out = tmp_path / "new" / f"fused{ending}"
    done = run("fuse", "image.csv", "audio.csv", "--log", "--out", out)
    assert (done.code, done.err) == (0, "")
    assert f"{ROWS} log-posteriors: {out}" in done.out
    if ending == ".npy":
        written = np.load(out)
    elif ending == ".npz":
        with np.load(out) as arrays:
            written = arrays["posterior"]
            assert arrays["classes"].tolist() == CLASSES
    else:
        frame = pl.read_csv(out) if ending == ".csv" else pl.read_parquet(out)
        assert frame.columns == ["prediction", *(f"log_probability_{one}" for one in CLASSES)]
        assert frame["prediction"].to_list() == np.array(CLASSES)[expected.argmax(axis=1)].tolist()
        written = frame.drop("prediction").to_numpy()
    np.testing.assert_allclose(np.exp(written), expected, atol=1e-6)
    assert [one.name for one in out.parent.iterdir()] == [out.name]


def test_a_fused_table_can_be_fused_again(run, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    first = tmp_path / "first.csv"
    assert run("fuse", "image.csv", "audio.csv", "--out", first).code == 0
    done = run("fuse", first, "predicted.csv", "--probabilities", "--labels", "labels.csv", "--target", "label")
    assert (done.code, done.err) == (0, "")
    assert set(table_of(done.out)) == {"first", "predicted", "fused"}


def test_priors(run, folder, tmp_path, monkeypatch, opinions):
    monkeypatch.chdir(folder)
    image, audio, y = opinions
    prior, target = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.2, 0.7])
    np.save(tmp_path / "prior.npy", prior)
    pl.DataFrame([target[[2, 0, 1]]], schema=["dog", "cat", "cow"], orient="row").write_csv(tmp_path / "target.csv")
    said, there = {"image": image, "audio": audio}, {"audio": ~np.isnan(audio[:, 0])}
    out = tmp_path / "fused.npy"
    words = ("fuse", "image.csv", "audio.csv", "--out", out)
    for given in (prior, [tmp_path / "prior.npy"]):
        assert run(*words, "--prior", *given, "--target-prior", tmp_path / "target.csv").code == 0
        wanted = np.exp(cs.fuse(said, prior, target_prior=target, present=there))
        np.testing.assert_allclose(np.load(out), wanted, atol=1e-9)
    done = run(*words, "--prior", "empirical", "--labels", "labels.csv", "--target", "label")
    counted = (np.bincount(y) + 1) / (ROWS + 3)
    np.testing.assert_allclose(np.load(out), np.exp(cs.fuse(said, counted, present=there)), atol=1e-9)
    assert "prior counted from the labels that are also used for the scores" in done.out
    done = run(*words, "--target-prior", "em")
    shares = cs.estimate_target_prior(said, np.full(3, 1 / 3), present=there)
    np.testing.assert_allclose(np.load(out), np.exp(cs.fuse(said, target_prior=shares, present=there)), atol=1e-6)
    assert f"from {ROWS} rows, without labels: {' '.join(f'{share:.3g}' for share in shares)}" in done.out


def test_fitted_on_other_files(run, folder, tmp_path, monkeypatch, opinions):
    monkeypatch.chdir(tmp_path)
    image, audio, y = opinions
    for name, rows in (("fit", slice(0, 200)), ("use", slice(200, None))):
        np.save(f"{name}_image.npy", image[rows])
        np.save(f"{name}_audio.npy", audio[rows])
        np.save(f"{name}_y.npy", y[rows])
    fitting = ("--fit", "fit_image.npy", "fit_audio.npy", "--fit-labels", "fit_y.npy")
    done = run("fuse", "use_image.npy", "use_audio.npy", "--labels", "use_y.npy", *fitting, "--out", "fused.npy")
    model = cs.BayesFusion().fit({"a": image[:200], "b": audio[:200]}, y[:200])
    wanted = model.predict_proba({"a": image[200:], "b": audio[200:]})
    np.testing.assert_allclose(np.load("fused.npy"), wanted, atol=1e-9)
    assert done.code == 0
    assert "Fitted on fit_image.npy, fit_audio.npy: κ gaussian, calibration auto" in done.out
    assert "Scored on all 100 rows: none was used in the fit." in done.out


def test_labels_in_sorted_order_are_said(run, folder, monkeypatch):
    monkeypatch.chdir(folder)
    words = ("fuse", "image.npy", "audio.npy", "--labels", "labels.csv", "--target", "label")
    assert f"columns are the labels in sorted order, {', '.join(sorted(CLASSES))}; --classes" in run(*words).err
    assert not run(*words, "--classes", *CLASSES).err


def test_numbers_that_could_be_meant_otherwise_are_said(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        np.save(f"{name}.npy", rng.normal(size=(30, 3)))
    words = ("fuse", "a.npy", "b.npy", "--labels", "y.npy")
    for labels, said in (([1, 2], "no label is 0"), ([-1, 0, 1], "labels in sorted order, -1, 0, 1"), ([0, 2], "")):
        np.save("y.npy", np.resize(labels, 30))
        err = run(*words).err
        assert said in err
        assert bool(err) == bool(said)


def test_rows_that_nobody_has_an_opinion_on_are_counted(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        logits = rng.normal(size=(30, 3))
        logits[[4, 9] if name == "a" else [4, 9, 20]] = np.nan
        np.save(f"{name}.npy", logits)
    done = run("fuse", "a.npy", "b.npy", "--prior", "0.5", "0.3", "0.2", "--out", "fused.npy")
    assert "2 of 30 rows have no opinion at all: their posterior is the prior." in done.out
    np.testing.assert_allclose(np.load("fused.npy")[[4, 9]], [[0.5, 0.3, 0.2]] * 2)


def test_labels_to_fit_on_but_none_to_score(run, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    pl.read_parquet("wide.parquet").drop("label").write_parquet(tmp_path / "new.parquet")
    columns = ("--expert", "image=image_*", "audio=audio_*", "--target", "label", "--kappa", "none")
    words = ("fuse", tmp_path / "new.parquet", *columns, "--fit", "wide.csv")
    done = run(*words, "--out", tmp_path / "fused.csv")
    assert (done.code, done.err) == (0, "")
    assert "Scored" not in done.out
    assert len(pl.read_csv(tmp_path / "fused.csv")) == ROWS
    assert "--report needs --labels" in run(*words, "--report", tmp_path / "page.html").err


@pytest.mark.parametrize("how", ["auto", "graded"])
def test_a_share_that_is_fitted_on_is_not_scored(run, folder, tmp_path, monkeypatch, opinions, how):
    monkeypatch.chdir(folder)
    image, audio, y = opinions
    options = ("--fit-share", "0.4", "--seed", "3", "--kappa", "none", "--reliability", how, "--calibration", "bias")
    done = run("fuse", "image.npy", "audio.npy", "--labels", "y.npy", *options, "--out", tmp_path / "fused.npy")
    fitted = np.random.default_rng(3).random(ROWS) < 0.4
    model = cs.BayesFusion("none", calibration="bias", reliability=how)
    model.fit({"a": image[fitted], "b": audio[fitted]}, y[fitted])
    wanted = model.predict_proba({"a": image, "b": audio})
    np.testing.assert_allclose(np.load(tmp_path / "fused.npy"), wanted, atol=1e-9)
    scores = table_of(done.out)
    assert scores["image"][0] == scores["fused"][0] == (~fitted).sum()
    assert scores["fused"][2] == pytest.approx(nll(y[~fitted], wanted[~fitted]), abs=0.0006)
    assert f"scored on the {(~fitted).sum()} of {ROWS} rows that were not used in the fit" in done.out


def test_folds_fuse_each_row_by_the_others(run, folder, tmp_path, monkeypatch, opinions):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("consilience.estimators.fuse_files.CELLS", 6 * 70)
    image, audio, y = opinions
    words = ("fuse", "wide.csv", "--expert", "image=image_*", "audio=audio_*", "--target", "label")
    done = run(*words, "--folds", "3", "--kappa", "none", "--out", tmp_path / "fused.npy")
    fold = (np.random.default_rng(0).random(ROWS) * 3).astype(int)
    wanted = np.empty((ROWS, 3))
    for one in range(3):
        model = cs.BayesFusion("none").fit({"a": image[fold != one], "b": audio[fold != one]}, y[fold != one])
        wanted[fold == one] = model.predict_proba({"a": image[fold == one], "b": audio[fold == one]})
    np.testing.assert_allclose(np.load(tmp_path / "fused.npy"), wanted, atol=1e-9)
    assert f"Scored on all {ROWS} rows: each was fused by a model that was not fitted on it." in done.out


def test_opinions_that_were_not_out_of_fold_are_warned_of(run, tmp_path, monkeypatch, opinions):
    monkeypatch.chdir(tmp_path)
    _, audio, y = opinions
    np.save("sure.npy", 20 * np.eye(3)[y])
    np.save("audio.npy", audio)
    np.save("y.npy", y)
    done = run("fuse", "sure.npy", "audio.npy", "--labels", "y.npy", "--folds", "2", "--kappa", "none")
    assert done.code == 0
    assert "consilience: 'sure' is right on every sample given to fit" in done.err


def test_rounded_probabilities(run, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    random = np.random.default_rng(0)
    exact = [random.dirichlet([0.3, 0.3, 0.3], size=200) for _ in range(2)]
    for name, p in zip("ab", exact):
        np.save(tmp_path / f"{name}.npy", p.round(2))
    assert (exact[0].round(2) == 0).any()
    words = ("fuse", tmp_path / "a.npy", tmp_path / "b.npy", "--probabilities", "--out", tmp_path / "fused.npy")
    refused = run(*words)
    assert refused.code == 2
    assert refused.err.rstrip().endswith(
        "Logits need no --probabilities. If they were rounded to two decimals, give --rounded 2)"
    )
    assert run(*words, "--rounded", "2").code == 0
    logs = []
    for p in exact:
        p = np.where(p.round(2) == 0, 0.0025, p.round(2))
        logs.append(np.log(p / p.sum(axis=1, keepdims=True)))
    expected = np.exp(logs[0] + logs[1])
    np.testing.assert_allclose(
        np.load(tmp_path / "fused.npy"), expected / expected.sum(axis=1, keepdims=True), rtol=1e-6
    )
    assert run(*words, "--rounded", "3").code == 2  # sums are off by more than that explains


def test_probabilities_taken_as_logits_are_warned_of(run, folder, monkeypatch):
    monkeypatch.chdir(folder)
    done = run("fuse", "image_p.npy", "audio.npy", "--labels", "y.npy")
    assert done.code == 0
    assert "the rows of 'image_p' sum to one and are read as logits" in done.err


def test_report(run, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    done = run("fuse", "both.npz", "--target", "y", "--report", tmp_path / "page.html")
    assert (done.code, done.err) == (0, "")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Fusion of image and audio" in page
    assert page.count("<svg") == 2  # one for wide screens and one for phones
    assert all(f">{name}</text>" in page for name in ("image", "audio", "fused"))
    figure = table_of(done.out)["fused"][3]
    assert f"ECE {figure:.3f}" in page
    assert "consilience fuse both.npz --target y" in re.sub(r"</?span>", "", page)
    assert not re.search(r'(?:src|href)="(?!#)', page)  # nothing is fetched from elsewhere


def test_config_file(run, folder, tmp_path, monkeypatch, expected):
    monkeypatch.chdir(folder)
    (tmp_path / "fuse.yaml").write_text(f"out: {tmp_path / 'fused.npy'}\nprior: [0.2, 0.3, 0.5]\nlog: true\n")
    done = run("fuse", "image.npy", "audio.npy", "--config", tmp_path / "fuse.yaml")
    assert (done.code, done.err) == (0, "")
    assert (np.load(tmp_path / "fused.npy") < 0).all()


@pytest.mark.parametrize("ending", posteriors.ENDINGS)
def test_an_interruption_leaves_the_old_file_and_nothing_else(run, folder, tmp_path, monkeypatch, ending):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("consilience.estimators.fuse_files.CELLS", 6 * 70)
    out = tmp_path / f"fused{ending}"
    out.write_bytes(b"old")
    seen = []

    def stop(*_args, **_kwargs):
        seen.append(1)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return np.zeros((70, 3))

    monkeypatch.setattr("consilience.estimators.fuse_files.Theorem.log_posterior", stop)
    assert run("fuse", "image.npy", "audio.npy", "--out", out).code == 130
    assert out.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [out]


TWO = ("image.npy", "audio.npy")
OUT = ("--out", "{tmp}/fused.npy")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "fuse: files must be given"),
        (("image.npy", *OUT), "holds the opinions of one expert, 'image'; a fusion needs two"),
        (TWO, "fuse: there is no output: give --out"),
        ((*TWO, "--out", "fused.txt"), "--out must end in .npy, .npz, .csv, .parquet, got 'fused.txt'"),
        ((*TWO, "--out", "audio.npy"), "--out audio.npy would overwrite an input file"),
        ((*TWO, "--labels", "y.npy", "--report", "y.npy"), "--report y.npy would overwrite an input file"),
        ((*TWO, "--report", "{tmp}/r.html", *OUT), "--report needs --labels"),
        (("imag.npy", "audio.npy", *OUT), "there is no file or folder 'imag.npy'; did you mean 'image.npy'?"),
        (("bad.mat", "audio.npy", *OUT), "cannot read 'bad.mat': the endings known here are .npy, .npz, .csv"),
        (("torn.npy", "audio.npy", *OUT), "torn.npy is truncated or not a numpy file"),
        (("torn.parquet", "audio.npy", *OUT), "torn.parquet cannot be read as a table"),
        (("word.csv", "audio.npy", *OUT), "word.csv cannot be read as a table: could not parse `x`"),
        (("labels.csv", "audio.npy", "--columns", "logit_*", *OUT), "'logit_*' matches no column"),
        (("wide.parquet", "audio.npy", *OUT), "wide.parquet: column 'label' holds String, opinions are numbers"),
        (("y.npy", "audio.npy", *OUT), "opinions of 'y' must have shape [n, class] or [n, expert, class], got [300]"),
        (("four.npy", "audio.npy", *OUT), "the same classes: four.npy has 4, audio.npy 3"),
        (("header.csv", "header.csv", "--names", "a", "b", *OUT), "header.csv has no rows"),
        (("short.npy", "audio.npy", *OUT), "short.npy has 9 rows, audio.npy has 300"),
        (("short.csv", "audio.npy", *OUT), "short.csv has 9 rows, audio.npy has 300 or more"),
        (("birds.csv", "image.csv", *OUT), "must name the same classes: birds.csv has 'owl', 'jay', 'tit', image.csv"),
        (("image.npy", "image.npy", *OUT), "two experts are called 'image': give names of their own"),
        ((*TWO, "--names", "image", *OUT), "there must be a name for each of 2 experts, got 1: 'image'"),
        ((*TWO, "--expert", "a=b*", *OUT), "experts by column or array need one file that holds them all, got 2"),
        (("both.npz", "--expert", "imag", "audio", *OUT), "unknown array 'imag': did you mean 'image'?"),
        (("wide.csv", "--expert", "a=x_*", "b=audio_*", *OUT), "expert 'a': 'x_*' matches no column"),
        (("wide.csv", "--expert", "a=audio_*", "b=*o_*", *OUT), "belongs to expert 'a' and to 'b'"),
        ((*TWO, "--labels", "labels.csv"), "labels.csv has more than one column: say which holds the labels"),
        ((*TWO, "--labels", "labels.csv", "--target", "labl"), "unknown label column 'labl': did you mean 'label'?"),
        ((*TWO, "--target", "y"), "--target y without --labels needs one file, got 2"),
        ((*TWO, "--labels", "four_y.npy"), "the opinions are on 3 classes, the labels are '0', '1', '2', '3'"),
        (("image.csv", "audio.csv", "--labels", "pets.csv"), "label 'fox' (1 of 300 labels) is none of the classes"),
        ((*TWO, "--labels", "short_y.npy"), "short_y.npy has 9 labels, the opinions have 300 rows or more"),
        ((*TWO, "--labels", "long_y.npy"), "long_y.npy has 301 labels or more, the opinions have 300 rows"),
        ((*TWO, "--classes", "cat", "dog", *OUT), "--classes must name 3 different classes, got cat dog"),
        (
            (*TWO, "--probabilities", *OUT),
            "image.npy: probabilities must be ≥ 0 and sum to one (rows 0, 1, 2, 3, 4 and 295 more",
        ),
        (("both.npz", "--probabilities", *OUT), "both.npz, expert 'image': probabilities must be"),
        ((*TWO, "--rounded", "2", *OUT), "--rounded 2 must be given with --probabilities"),
        ((*TWO, "--probabilities", "--rounded", "0", *OUT), "--rounded must be a whole number ≥ 1 and ≤ 9, got 0"),
        (
            ("part.npy", "audio.npy", *OUT),
            "part.npy: opinions are NaN in part; a row that is all NaN or empty is missing (row 290",
        ),
        (("inf.npy", "audio.npy", *OUT), "inf.npy: logits hold +inf; they are finite, or −inf (row 290"),
        ((*TWO, "--prior", "0.5", "0.5", *OUT), "--prior must be one probability for each of 3 classes, got shape [2]"),
        ((*TWO, "--prior", "0.5", "0.7", "-0.2", *OUT), "--prior must be finite and ≥ 0"),
        ((*TWO, "--prior", "0.5", "0.7", "0.2", *OUT), "--prior must sum to one, it sums to 1.4"),
        ((*TWO, "--prior", "empirical", *OUT), "--prior empirical is counted from --labels, which are not given"),
        ((*TWO, "--prior", "uniform", *OUT), "--prior must be 3 numbers, a file, or empirical, got uniform"),
        ((*TWO, "--prior", "image.csv", *OUT), "--prior image.csv must be a table of one row"),
        ((*TWO, "--kappa", "gaussian", *OUT), "--kappa gaussian is learned from labelled opinions: give --fit"),
        ((*TWO, "--kappa", "gausian", *OUT), "unknown kappa 'gausian': did you mean 'gaussian'?"),
        ((*TWO, "--reliability", "auto", *OUT), "--reliability auto is learned from labelled opinions"),
        ((*TWO, "--folds", "3", *OUT), "--folds needs --labels"),
        ((*TWO, "--labels", "y.npy", "--folds", "1"), "--folds must be a whole number ≥ 2, got 1"),
        ((*TWO, "--labels", "y.npy", "--fit-share", "1.5"), "--fit-share must be a number > 0 and < 1, got 1.5"),
        ((*TWO, "--labels", "y.npy", "--fit-share", ".5", "--folds", "3"), "choose one of --fit-share and --folds"),
        ((*TWO, "--fit", *TWO, "--fit-labels", "y.npy", *OUT), "--fit image.npy is also fused"),
        ((*TWO, "--fit", "four.npy", *OUT), "--fit needs --fit-labels"),
        ((*TWO, "--fit-labels", "y.npy", *OUT), "--fit-labels needs --fit, which is not given"),
        ((".", "audio.npy", *OUT), "'.' is a folder: give a file (.npy"),
        (
            (*TWO, "--labels", "y.npy", "--report", "page.pdf"),
            "--report writes an HTML page, FILE.html, got 'page.pdf'",
        ),
    ],
)
def test_errors_are_one_line(run, folder, tmp_path, monkeypatch, opinions, words, said):
    monkeypatch.chdir(folder)
    image, _, y = opinions
    if not (folder / "four.npy").exists():
        spoil(folder, image, y)
    done = run("fuse", *[word.format(tmp=tmp_path) for word in words])
    assert said in done.err
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("consilience: error: ")
    assert done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def spoil(folder, image, y):
    """Files with something wrong in each."""
    (folder / "bad.mat").write_text("")
    (folder / "torn.npy").write_bytes((folder / "image.npy").read_bytes()[:200])
    (folder / "torn.parquet").write_bytes((folder / "image.parquet").read_bytes()[:200])
    (folder / "word.csv").write_text("a,b,c\n1,2,3\n1,x,3\n")
    (folder / "header.csv").write_text("cat,cow,dog\n")
    np.save(folder / "short.npy", image[:9])
    np.savetxt(folder / "short.csv", image[:9], delimiter=",", header="cat,cow,dog", comments="")
    np.savetxt(folder / "birds.csv", image, delimiter=",", header="owl,jay,tit", comments="")
    np.save(folder / "four_y.npy", np.append(y[1:], 3))
    np.save(folder / "short_y.npy", y[:9])
    np.save(folder / "long_y.npy", np.append(y, 0))
    pl.DataFrame({"pet": ["fox", *np.array(CLASSES)[y[1:]]]}).write_csv(folder / "pets.csv")
    for name, value in (("part", np.nan), ("inf", np.inf)):
        wrong = image.copy()
        wrong[290, 1] = value
        np.save(folder / f"{name}.npy", wrong)
    np.save(folder / "four.npy", np.ones((ROWS, 4)))
