"""JMVAE on images and labels at its smallest: nets as published, images drawn anew, likelihoods that agree."""

import numpy as np
import pytest
import torch

from consilience.comparison.plan import Source
from consilience.comparison.store import Result, Store
from consilience.core.batches import Batch
from consilience.core.errors import MissingDataError
from consilience.core.samples import Samples
from consilience.data import DataSet
from consilience.methods.latent.latent_model import LatentModel
from consilience.reproduction.study import Cell
from consilience.training import Trainer
from paper_scripts import script

jmvae = script("jmvae-mnist")
FULL = jmvae.FULL
SMALL = {"seeds": 1, "train": 60, "test": 20, "latent": 2, "hidden": 8, "epochs": 2, "warmup": 1, "draws": 50}


@pytest.fixture
def squares(monkeypatch):
    """As MNIST is: three classes of grey squares, in different places."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    images = rng.integers(0, 60, (120, 1, 6, 6), dtype=np.uint8)
    for place, label in enumerate(y):
        images[place, 0, 2 * label : 2 * label + 2] = 200
    split = np.repeat(["train", "validation", "test"], [70, 20, 30])
    data = DataSet("mnist", Samples.of({"image": images}, y), "classification", split, official_split=True)
    monkeypatch.setattr(Source, "load", lambda source: data)
    monkeypatch.setattr(Source, "fingerprint", lambda source: "of squares")
    return data


def test_it_ends_in_a_page_with_the_published_figure(squares, tmp_path):
    done = jmvae.run(settings=SMALL, out=tmp_path / "run", verbose=0)
    store = Store(tmp_path / "run")
    results = [store.read(Cell(**job)) for job in store.read_plan()["jobs"]]
    assert [result.arrays["published"].shape for result in results] == [(20,), (20,)]
    text = done.page.read_text(encoding="utf-8")
    assert "−86.86" in text
    assert "−86.85" in text
    assert "60 of 60\u202f000 training images" in done.document.answer[1]  # what is not the recipe is said
    assert [row[0] for row in done.document.tables[0].rows] == ["jmvae, α = 0.1", "m2vae"]


def test_the_recipe_is_the_published_one():
    assert [FULL[name] for name in ("latent", "hidden", "epochs", "warmup", "batch_size")] == [64, 512, 500, 200, 100]
    assert [FULL[name] for name in ("draws", "lr", "train", "test", "seeds")] == [1000, 0.001, None, None, 10]


def test_all_that_is_not_for_testing_is_trained_on(squares):
    train, test = jmvae.images_and_labels(squares, None, None, seed=0)
    assert (len(train), len(test)) == (90, 30)
    assert set(train.index).isdisjoint(test.index)
    assert 0 < train["image"].max() < 1  # grey
    assert np.isin(test["image"], (0, 1)).all()
    np.testing.assert_array_equal(test["label"].argmax(axis=1), test.y)
    again = jmvae.images_and_labels(squares, None, None, seed=1)[1]
    np.testing.assert_array_equal(again["image"], test["image"])  # drawn once and for all
    assert len(jmvae.images_and_labels(squares, 10, None, seed=0)[0]) == 10


def test_nets_are_as_wide_as_published(squares):
    train, _ = jmvae.images_and_labels(squares, None, None, seed=0)
    trained = jmvae.fit(train, Trainer(epochs=1, device="cpu", patience=None), hidden=7, latent=2, objective="jmvae")
    shapes = [tuple(one.weight.shape) for one in trained.model.modules() if isinstance(one, torch.nn.Linear)]
    image, label, both = [(7, 36), (7, 7), (4, 7)], [(7, 3), (7, 7), (4, 7)], [(7, 36), (7, 3), (7, 14), (4, 7)]
    decoders = [(7, 2), (7, 7), (36, 7), (7, 2), (7, 7), (3, 7)]
    assert shapes == [*image, *label, *both, *decoders]


def test_images_are_drawn_anew_in_training_only(squares, monkeypatch):
    train, _ = jmvae.images_and_labels(squares, None, None, seed=0)
    trained = jmvae.fit(train, Trainer(epochs=1, device="cpu", patience=None), hidden=4, latent=2, objective="jmvae")
    seen = []
    monkeypatch.setattr(LatentModel, "forward", lambda self, batch: seen.append(batch["image"]))
    grey = torch.full((500, 1, 6, 6), 0.3)
    whole = torch.ones(500, 2, dtype=torch.bool)
    batch = Batch({"image": grey, "label": torch.zeros(500, 3)}, whole, index=torch.arange(500), weight=torch.ones(500))
    for training in (True, True, False):
        trained.model.train(training)(batch)
    assert seen[0].unique().tolist() == [0, 1]
    assert not torch.equal(seen[0], seen[1])
    assert seen[0].mean().item() == pytest.approx(0.3, abs=0.02)
    assert seen[2] is grey


def test_likelihoods_agree_with_a_sum_over_the_latent(squares):
    train, test = jmvae.images_and_labels(squares, None, 6, seed=0)
    trained = jmvae.fit(train, Trainer(epochs=3, device="cpu", patience=None), hidden=8, latent=1, objective="jmvae")
    grid = torch.linspace(-8, 8, 4001)[:, None]
    with torch.no_grad():
        decoded = trained.model.decode(grid)
    prior = -0.5 * grid[:, 0] ** 2 - 0.5 * np.log(2 * np.pi) + np.log(16 / 4000)
    image = -torch.nn.functional.binary_cross_entropy_with_logits(
        decoded["image"][:, None].expand(-1, 6, -1, -1, -1),
        torch.from_numpy(np.asarray(test["image"])).expand(4001, -1, -1, -1, -1),
        reduction="none",
    ).sum((-3, -2, -1))
    label = decoded["label"].log_softmax(-1)[:, np.asarray(test["label"]).argmax(axis=1)]
    exact = {
        "published": (prior[:, None] + image).logsumexp(0),
        "image": (prior[:, None] + image).logsumexp(0),
        "joint": (prior[:, None] + image + label).logsumexp(0),
        "label": (prior[:, None] + label).logsumexp(0),
    }
    found, effective = jmvae.likelihoods(trained, test, draws=4000)
    for name, values in exact.items():
        np.testing.assert_allclose(found[name], values, atol=0.1, err_msg=name)
        assert effective[name] > 400
    assert jmvae.published_estimate(trained, test, draws=7).value.shape == (6,)


def test_a_better_likelihood_is_marked():
    settings, rng, results = FULL | {"seeds": 6}, np.random.default_rng(0), []
    for objective in ["jmvae", "m2vae"] * 6:
        image = rng.normal(-86.8, 0.01, 30) + (objective == "m2vae")
        arrays = {"published": image, "image": image, "joint": image - 2.3, "label": np.full(30, -2.3)}
        arrays |= {"right": np.ones(30, dtype=bool), "index": np.arange(30)}
        about = {"effective": dict.fromkeys(("published", "image", "joint", "label"), 50.0)}
        about |= {"seconds": 1.0, "measuring_seconds": 1.0, "trained_on": 60000, "device": "cpu"}
        results.append(Result(about, arrays))
    document = jmvae.describe(settings, results)
    assert document.tables[0].rows[0][3] == "+0.06"
    first, second = document.tables[1].rows
    assert "↑" in second[1]
    assert "↑" not in first[1]
    assert "↑" not in second[4] + second[5]
    assert len(document.answer) == 1  # nothing is smaller than the recipe


def test_without_mnist_it_says_what_to_get(tmp_path, monkeypatch):
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path))
    with pytest.raises(MissingDataError, match="MNIST"):
        jmvae.run(quick=True, out=tmp_path / "run")
