"""`consilience generate`: arrays and a picture from a saved latent model."""

import numpy as np
import pytest

from consilience import MultimodalVAE, load
from consilience.cli import generate, main


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "m2vae"
    settings = ("--setting", "m2vae.latent=4", "--setting", "m2vae.subsets=chain")
    assert main(["train", "digits", "--method", "m2vae", *settings, "--epochs", "1", "--out", str(out)]) == 0
    return out


def test_two_quadrants_from_the_others(run, digits, tmp_path):
    out = tmp_path / "generated"
    words = ("--given", "top_left", "top_right", "--of", "bottom_left", "bottom_right", "--number", "3")
    done = run("generate", digits, *words, "--out", out)
    assert done.code == 0, done.err
    assert done.out == f"arrays: {out / 'generated.npz'}\npicture: {out / 'generated.png'}\n"
    with np.load(out / "generated.npz") as arrays:
        assert {name: arrays[name].shape for name in arrays} == {"bottom_left": (359, 16), "bottom_right": (359, 16)}
    assert (out / "generated.png").read_bytes().startswith(b"\x89PNG")


def test_made_up_from_nothing(run, digits, tmp_path):
    done = run("generate", digits, "--of", "top_left", "--number", "2", "--out", tmp_path / "made")
    assert done.code == 0, done.err
    with np.load(tmp_path / "made" / "generated.npz") as arrays:
        assert arrays["top_left"].shape == (2, 16)


def test_a_picture_has_an_end(run, digits, tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "MOST_ROWS", 2)
    done = run("generate", digits, "--of", "top_left", "--number", "300", "--out", tmp_path / "made")
    assert done.code == 0, done.err
    assert done.out.endswith("generated.png (the first 2)\n")
    with np.load(tmp_path / "made" / "generated.npz") as arrays:
        assert arrays["top_left"].shape == (300, 16)
    given = run("generate", digits, "--given", "top_left", "--number", "300", "--out", tmp_path / "made")
    assert given.out.endswith("generated.png (the first 2)\n")


def test_a_model_from_python_and_arrays_of_ones_own(run, tmp_path):
    rng = np.random.default_rng(0)
    X = {"a": rng.normal(size=(30, 3)), "b": rng.normal(size=(30, 2))}
    model = MultimodalVAE(latent=2, epochs=1, device="cpu").fit(X)
    model.save(tmp_path / "model")
    np.savez(tmp_path / "new.npz", a=X["a"][:5], other=np.zeros(2))
    words = ("--given", "a", "--data", tmp_path / "new.npz", "--samples", "4", "--out", tmp_path / "out")
    done = run("generate", tmp_path / "model", *words)
    assert done.code == 0, done.err
    with np.load(tmp_path / "out" / "generated.npz") as arrays:
        assert arrays["b"].shape == (4, 5, 2)
    assert "--data" in run("generate", tmp_path / "model", "--given", "a", "--out", tmp_path / "x").err
    words = ("--given", "b", "--data", tmp_path / "new.npz", "--out", tmp_path / "x")
    assert "--given b, but " in run("generate", tmp_path / "model", *words).err
    assert "has no target to predict" in run("predict", tmp_path / "model", tmp_path / "new.npz").err
    (tmp_path / "bad.npz").write_text("no arrays")
    words = ("--given", "a", "--data", tmp_path / "bad.npz", "--out", tmp_path / "x")
    assert "bad.npz is truncated or not a numpy file" in run("generate", tmp_path / "model", *words).err
    assert load(tmp_path / "model").latent == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--given", "top"), "unknown modality 'top': did you mean 'top_left'"),
        (("--given", "top_left", "--of", "top_left"), "both given and to be generated"),
        (("--number", "0"), "--number must be a whole number ≥ 1"),
        (("--given", "top_left", "--data", "captions"), "captions has none of the model's modalities"),
    ],
)
def test_wrong_words(run, digits, tmp_path, words, message):
    done = run("generate", digits, *words, "--out", tmp_path / "out")
    assert done.code == 2
    assert message in done.err


def test_a_model_without_decoders(run, model, tmp_path):
    done = run("generate", model, "--out", tmp_path / "out")
    assert done.code == 2
    assert "has no decoders; train one with --method m2vae" in done.err


def test_arrays_have_the_names_of_modalities_as_far_as_these_name_files(tmp_path):
    from consilience.core.file_names import file_name
    from consilience.core.files import write_atomically

    names = ["image", "file", "allow_pickle", "../up", "/abs", "a\0b", "a", "\ud800", "x" * 500]
    made = {name: np.full((2, 3), place) for place, name in enumerate(names)}
    made["words"] = np.array(["one", "two"], dtype=object)
    path = write_atomically(tmp_path / "made.npz", lambda file: generate.write_arrays(made, file))
    with np.load(path, allow_pickle=False) as arrays:
        assert set(arrays) == {file_name(name) for name in made} >= {"image", "file", "a", "words"}
        assert all((arrays[file_name(name)] == made[name]).all() for name in made)
