"""Tiny files in the public formats, then the real ones where CONSILIENCE_DATA says they are."""

import gzip
import json
import lzma
import os
import struct

import numpy as np
import pytest
import scipy.io

from consilience.core.errors import InputError, MissingDataError, UnknownNameError
from consilience.data import load_data
from consilience.data.named_sets import registry
from r_files import factor, matrix, named, saved

rng = np.random.default_rng(0)


def idx(values):
    header = bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape)
    return gzip.compress(header + values.tobytes())


@pytest.fixture
def mnist_dir(tmp_path):
    folder = tmp_path / "mnist"
    folder.mkdir()
    for stem, n in (("train", 80), ("t10k", 20)):
        images = rng.integers(0, 256, size=(n, 28, 28), dtype=np.uint8)
        images[:, 0, 0] = np.arange(n)
        (folder / f"{stem}-images-idx3-ubyte.gz").write_bytes(idx(images))
        (folder / f"{stem}-labels-idx1-ubyte.gz").write_bytes(idx((np.arange(n) % 10).astype(np.uint8)))
    return tmp_path


def views(n_train=80, n_test=20, widths=(240, 76, 216, 47, 64, 6)):
    content = {}
    for part, n in (("train", n_train), ("test", n_test)):
        content[f"gt_{part}"] = (np.arange(n) % 10 + 1).astype(np.uint8)[:, None]
        for number, width in enumerate(widths, 1):
            content[f"x{number}_{part}"] = rng.normal(size=(n, width))
    return content


@pytest.fixture
def handwritten_dir(tmp_path):
    (tmp_path / "handwritten").mkdir()
    scipy.io.savemat(tmp_path / "handwritten" / "handwritten_6views.mat", views())
    return tmp_path


def write_breast(folder, parts):
    """As R saves it: one list of two lists of matrices and a factor."""
    lists = {
        part: named({key: factor(value) if key == "subtype" else matrix(value) for key, value in values.items()})
        for part, values in parts.items()
    }
    path = folder / "breast_tcga" / "breast.TCGA.rda"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(lzma.compress(saved({"breast.TCGA": named(lists)})))


@pytest.fixture
def breast_dir(tmp_path):
    parts = {}
    for part, n in (("data.train", 40), ("data.test", 9)):
        widths = {"mirna": 6, "mrna": 5, "protein": 4} if part == "data.train" else {"mirna": 6, "mrna": 5}
        parts[part] = {name: rng.normal(size=(n, width)) for name, width in widths.items()}
        parts[part]["subtype"] = np.array(["Basal", "Her2", "LumA"])[np.arange(n) % 3]
    write_breast(tmp_path, parts)
    return tmp_path, parts


@pytest.fixture
def mvsa_dir(tmp_path):
    folder = tmp_path / "mvsa_single"
    folder.mkdir()
    arrays = {}
    words = ("negative", "neutral", "positive")
    for part, n in (("train", 30), ("dev", 10), ("test", 12)):
        y = rng.permutation(np.arange(n) % 3).astype(np.int8)
        arrays |= {f"img_{part}": rng.normal(size=(n, 1280)).astype(np.float16), f"y_{part}": y}
        arrays[f"txt_{part}"] = rng.normal(size=(n, 384)).astype(np.float16)
        lines = [json.dumps({"text": f"{part} {row}", "label": words[label]}) for row, label in enumerate(y)]
        (folder / f"qmf_{part}.jsonl").write_text("\n".join(lines) + "\n")
    np.savez(folder / "features_effnetlite0_minilm.npz", **arrays)
    return tmp_path


@pytest.fixture
def predictions_dir(tmp_path):
    folder = tmp_path / "avmnist_predictions"
    folder.mkdir()
    arrays = {
        f"{model}_{run}": rng.dirichlet(np.ones(10), 100)
        for model in ("image", "audio", "centralnet")
        for run in (1, 2, 3)
    }
    np.savez(folder / "test_probabilities.npz", y=(np.arange(100) % 10).astype(np.int8), **arrays)
    return tmp_path, arrays


def test_mnist_whole(mnist_dir):
    data = load_data("mnist", data_dir=mnist_dir)
    assert data.modalities["image"].describe() == "image (image 1×28×28)"
    assert data.samples["image"].dtype == np.uint8
    assert data.official_split
    assert data.drawn_validation
    assert (data.test["image"][:, 0, 0, 0] == np.arange(20)).all()
    assert data.sizes == {"train": 68, "validation": 12, "test": 20}
    assert data.licence == "CC BY-SA 3.0"


def test_mnist_parts_make_up_the_whole(mnist_dir, monkeypatch):
    monkeypatch.setenv("CONSILIENCE_DATA", str(mnist_dir))
    whole = load_data("mnist").samples["image"]
    halves = load_data("mnist", parts="halves").samples
    assert (np.concatenate([halves["left"], halves["right"]], axis=3) == whole).all()
    quarters = load_data("mnist", parts="quadrants").samples
    top = np.concatenate([quarters["top_left"], quarters["top_right"]], axis=3)
    bottom = np.concatenate([quarters["bottom_left"], quarters["bottom_right"]], axis=3)
    assert (np.concatenate([top, bottom], axis=2) == whole).all()
    with pytest.raises(UnknownNameError, match="parts 'half'"):
        load_data("mnist", parts="half")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-30], "truncated or not a gzip file"),
        (lambda content: gzip.decompress(content), "not a gzip file"),
        (lambda content: gzip.compress(gzip.decompress(content)[:-1]), "should hold 80×28×28 bytes and holds 62719"),
        (lambda content: idx(np.zeros(80, np.uint8)), "not an idx file of bytes with 3 dimensions"),
        (lambda content: idx(np.zeros((79, 28, 28), np.uint8)), "79 images"),
        (lambda content: gzip.compress(b""), "not an idx file"),
    ],
)
def test_broken_idx_files(mnist_dir, change, message):
    path = mnist_dir / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=message):
        load_data("mnist", data_dir=mnist_dir)


def test_handwritten_views_are_named_by_width(handwritten_dir):
    data = load_data("handwritten", data_dir=handwritten_dir)
    assert tuple(data.modalities) == ("pix", "fou", "fac", "zer", "kar", "mor")
    assert data.classes.tolist() == list(range(10))
    assert data.sizes == {"train": 68, "validation": 12, "test": 20}
    assert data.official_split


def test_how_much_of_handwritten_is_for_validation(handwritten_dir):
    data = load_data("handwritten", data_dir=handwritten_dir, validation=0.05)
    assert data.sizes == data.resplit(7).sizes == {"train": 76, "validation": 4, "test": 20}
    with pytest.raises(InputError, match=r"validation must be a number ≥ 0\.01 and < 0\.5, got 0\.5"):
        load_data("handwritten", data_dir=handwritten_dir, validation=0.5)


def test_any_mat_of_views(tmp_path):
    content = views(40, 10, widths=(3, 5))
    scipy.io.savemat(tmp_path / "two.mat", content)
    data = load_data(tmp_path / "two.mat")
    assert tuple(data.modalities) == ("view1", "view2")
    assert np.allclose(data.test["view2"], content["x2_test"])
    assert (data.test.y == content["gt_test"][:, 0]).all()
    assert tuple(load_data(tmp_path / "two.mat", modalities=["view2"]).modalities) == ("view2",)
    with pytest.raises(InputError, match="target does not apply"):
        load_data(tmp_path / "two.mat", target="gt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gt_test": None}, "it lacks gt_test"),
        ({"x1_train": None, "x2_train": None}, "it lacks x1_train, x2_train"),
        ({"x2_test": None}, "it lacks x2_test"),
        ({"x1_test": np.zeros((10, 4))}, "view 1 has 3 features in train, 4 in test"),
        ({"x1_train": np.zeros((39, 3))}, r"x1_train must be \[n, feature\] with 40 rows"),
        ({"x1_train": np.array([["a"]], dtype=object)}, "it lacks x1_train"),
    ],
)
def test_other_mat_files_are_refused(tmp_path, change, message):
    content = {name: value for name, value in (views(40, 10, (3, 5)) | change).items() if value is not None}
    scipy.io.savemat(tmp_path / "two.mat", content)
    with pytest.raises(InputError, match=message):
        load_data(tmp_path / "two.mat")


def test_broken_mat_files(tmp_path, handwritten_dir):
    path = handwritten_dir / "handwritten" / "handwritten_6views.mat"
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"not a matlab file at all" * 20):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"handwritten_6views\.mat"):
            load_data("handwritten", data_dir=handwritten_dir)
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x00" * 400)
    with pytest.raises(InputError, match=r"MATLAB 7\.3"):
        load_data("handwritten", data_dir=handwritten_dir)
    scipy.io.savemat(path, views(widths=(3, 5)))
    with pytest.raises(InputError, match=r"got \[3, 5\]"):
        load_data("handwritten", data_dir=handwritten_dir)


def test_mvsa_features_and_raw_text(mvsa_dir):
    data = load_data("mvsa", data_dir=mvsa_dir)
    assert {name: one.shape for name, one in data.modalities.items()} == {"image": (1280,), "text": (384,)}
    assert data.sizes == {"train": 30, "validation": 10, "test": 12}
    assert data.official_split
    assert not data.drawn_validation
    assert data.classes.tolist() == ["negative", "neutral", "positive"]
    raw = load_data("mvsa", data_dir=mvsa_dir, text="raw")
    assert raw.modalities["text"].kind == "text"
    assert raw.test["text"][3] == "test 3"
    assert (raw.samples["image"] == data.samples["image"]).all()


def test_mvsa_texts_must_belong_to_the_features(mvsa_dir):
    path = mvsa_dir / "mvsa_single" / "qmf_dev.jsonl"
    lines = path.read_text().splitlines()
    for content, message in (
        ("\n".join(lines[:-1]), "51 texts and 52 features"),
        ("\n".join(lines[1:] + lines[:1]), "labels differ in rows"),
        ("\n".join(lines)[:-5], "truncated or not JSON lines"),
        ('{"text": 3}\n', "line 1 must have a text and a label"),
    ):
        path.write_text(content)
        with pytest.raises(InputError, match=message):
            load_data("mvsa", data_dir=mvsa_dir, text="raw")
    path.unlink()
    with pytest.raises(MissingDataError, match=r"get qmf_dev\.jsonl from"):
        load_data("mvsa", data_dir=mvsa_dir, text="raw")
    with pytest.raises(UnknownNameError, match="text 'words'"):
        load_data("mvsa", data_dir=mvsa_dir, text="words")


def test_mvsa_without_its_arrays(mvsa_dir):
    np.savez(mvsa_dir / "mvsa_single" / "features_effnetlite0_minilm.npz", y_train=np.zeros(3))
    with pytest.raises(InputError, match="lacks img_train"):
        load_data("mvsa", data_dir=mvsa_dir)


def test_saved_predictions(predictions_dir):
    folder, arrays = predictions_dir
    data = load_data("avmnist-predictions", data_dir=folder, run=2, modalities=["audio", "image"])
    assert tuple(data.modalities) == ("audio", "image")
    assert (data.samples["audio"] == arrays["audio_2"]).all()
    assert not data.official_split
    with pytest.raises(InputError, match="run must be 1, 2 or 3, got 4"):
        load_data("avmnist-predictions", data_dir=folder, run=4)
    arrays["image_1"][5] *= 2
    np.savez(folder / "avmnist_predictions" / "test_probabilities.npz", y=np.arange(100) % 10, **arrays)
    with pytest.raises(InputError, match="image_1 is no probability in row 5"):
        load_data("avmnist-predictions", data_dir=folder)


def test_breast_tcga_has_no_protein_in_its_test_part(breast_dir):
    folder, parts = breast_dir
    data = load_data("breast-tcga", data_dir=folder)
    assert tuple(data.modalities) == ("mrna", "mirna", "protein")
    assert data.classes.tolist() == ["Basal", "Her2", "LumA"]
    assert data.official_split
    assert data.drawn_validation
    assert data.samples.present_in("protein").tolist() == [True] * 40 + [False] * 9
    assert data.samples.present_in("mrna").all()
    assert data.test.y.tolist() == ["Basal", "Her2", "LumA"] * 3
    np.testing.assert_allclose(data.samples["mirna"][40:], parts["data.test"]["mirna"], rtol=1e-6)
    np.testing.assert_allclose(data.samples["protein"][:40], parts["data.train"]["protein"], rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mrna": None}, "data.test lacks mrna; it holds mirna, subtype"),
        ({"mirna": np.zeros((9, 7))}, r"mirna of data.test must have shape \[9, 6\], .* got \[9, 7\]"),
        ({"protein": np.zeros((8, 4))}, r"protein of data.test must have shape \[9, 4\]"),
    ],
)
def test_another_breast_tcga_is_refused(breast_dir, change, message):
    folder, parts = breast_dir
    test = {name: value for name, value in (parts["data.test"] | change).items() if value is not None}
    write_breast(folder, parts | {"data.test": test})
    with pytest.raises(InputError, match=message):
        load_data("breast-tcga", data_dir=folder)
    write_breast(folder, {"data.train": parts["data.train"]})
    with pytest.raises(InputError, match=r"a list breast\.TCGA with lists data\.train"):
        load_data("breast-tcga", data_dir=folder)


@pytest.mark.parametrize("name", [name for name, entry in registry().items() if entry.files])
def test_missing_files_say_what_to_get(name, tmp_path, monkeypatch):
    monkeypatch.delenv("CONSILIENCE_DATA", raising=False)
    files = registry()[name].files
    for directory in (None, tmp_path):
        with pytest.raises(MissingDataError) as caught:
            load_data(name, data_dir=directory)
        said = str(caught.value)
        for part in (*files.names, files.origin, files.licence, f"DIR/{files.folder}", "CONSILIENCE_DATA"):
            assert part in said
    assert str(tmp_path) in said


@pytest.fixture
def real():
    if not os.environ.get("CONSILIENCE_DATA"):
        pytest.skip("the environment variable CONSILIENCE_DATA names no folder with the public data sets")

    def load(name, **options):
        try:
            return load_data(name, **options)
        except MissingDataError as error:
            pytest.skip(str(error))

    return load


def test_real_mnist(real):
    data = real("mnist")
    assert data.sizes == {"train": 51_000, "validation": 9_000, "test": 10_000}
    # Published counts of the training and test labels.
    assert np.bincount(data.y[:60_000]).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert data.test.y[:5].tolist() == [7, 2, 1, 0, 4]


def test_real_handwritten(real):
    data = real("handwritten")
    assert [one.shape[0] for one in data.modalities.values()] == [240, 76, 216, 47, 64, 6]
    assert data.sizes == {"train": 1360, "validation": 240, "test": 400}
    # A zero is hollow and a one is not: the mean picture's middle says that labels are digits.
    pictures = data.samples["pix"].reshape(-1, 16, 15)
    middle = [pictures[data.y == digit].mean(axis=0)[6:10, 6:9].mean() for digit in (0, 1)]
    assert middle[0] < 1 < middle[1]


def test_real_breast_tcga(real):
    data = real("breast-tcga")
    assert [one.shape[0] for one in data.modalities.values()] == [200, 184, 142]
    assert data.sizes == {"train": 128, "validation": 22, "test": 70}
    assert not data.test.present_in("protein").any()
    # The manual of mixOmics gives these counts for the 150 of the training part.
    assert [int((data.y[:150] == one).sum()) for one in data.classes] == [45, 30, 75]


def test_real_mvsa(real):
    data = real("mvsa", text="raw")
    assert data.sizes == {"train": 1555, "validation": 518, "test": 519}
    assert real("mvsa").modalities["text"].shape == (384,)


def test_real_predictions(real):
    accuracy = {}
    for run in (1, 2, 3):
        samples = real("avmnist-predictions", run=run).samples
        for name in samples.names:
            accuracy.setdefault(name, []).append((samples[name].argmax(1) == samples.y).mean())
    means = {name: np.mean(values) for name, values in accuracy.items()}
    assert means == pytest.approx({"image": 0.638, "audio": 0.905, "centralnet": 0.968}, abs=0.001)
