"""Single empty cells are imputed by the model, which does not learn from the values that fill them."""

import warnings

import numpy as np
import polars as pl
import pytest
import torch

from consilience import MultimodalVAE, load, load_data
from consilience.core.errors import InputError
from consilience.core.modalities import Modality
from consilience.methods.latent.latent_model import checked_gaps
from consilience.methods.latent.likelihoods.likelihood import build_likelihood


@pytest.fixture(scope="module")
def table():
    """Two modalities of a table with empty cells, their true values, and which cells are empty."""
    rng = np.random.default_rng(0)
    x = 20 + 5 * (rng.normal(size=(800, 2)) @ rng.normal(size=(2, 6)) + 0.2 * rng.normal(size=(800, 6)))
    empty = rng.random(x.shape) < 0.08
    empty[:40, :3] = True  # these rows lack a
    names = [f"{'a' if column < 3 else 'b'}{column}" for column in range(6)]
    colour = np.where(x[:, 5] > 20, "red", "green").astype(object)
    colour[::9] = None
    cells = pl.DataFrame(np.where(empty, np.nan, x), schema=names).fill_nan(None)
    return cells.with_columns(b_colour=pl.Series(colour.tolist())), x, empty


@pytest.fixture(scope="module")
def trained(table):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = load_data(table[0], modalities={"a": "a*", "b": "b*"})
    return data, MultimodalVAE(latent=3, epochs=40, lr=3e-3, device="cpu", random_state=0).fit(data.train)


def test_empty_cells_of_a_table_become_the_models_values_and_not_the_median(table, trained, tmp_path):
    (frame, x, empty), (data, model) = table, trained
    samples = data.samples
    imputed, order = model.impute(samples), samples.index
    for name, columns in (("a", slice(0, 3)), ("b", slice(3, 6))):
        cells = empty[order, columns] & samples.present_in(name)[:, None]
        before, after = (np.abs(each[name][:, :3] - x[order, columns])[cells].mean() for each in (samples, imputed))
        assert cells.sum() > 100
        assert after < 0.65 * before
        known = ~empty[order, columns]
        np.testing.assert_array_equal(imputed[name][:, :3][known], samples[name][:, :3][known])
        flags = [feature.endswith("is empty") for feature in data.extra["columns"][name]]
        there = samples.present_in(name)
        np.testing.assert_array_equal(imputed[name][there][:, flags], samples[name][there][:, flags])
    assert imputed.present.all()
    green, red = (data.extra["columns"]["b"].index(f"b_colour={colour}") for colour in ("green", "red"))
    unknown = (order % 9 == 0) & samples.present_in("b")
    assert (samples["b"][unknown][:, [green, red]] == 0).all()
    told = imputed["b"][unknown][:, red] > imputed["b"][unknown][:, green]
    assert (told == (x[order, 5] > 20)[unknown]).mean() > 0.8
    restored = load(model.save(tmp_path / "latent"))
    np.testing.assert_allclose(restored.impute(frame)["a"], model.impute(frame)["a"], rtol=1e-5)


def test_fill_values_have_no_density(table, trained):
    (_, _, empty), (data, model) = table, trained
    samples = data.samples
    order = samples.index
    rows = np.flatnonzero(empty[order, 3] & samples.present_in("b"))[:20]
    columns = data.extra["columns"]["b"]
    assert (samples["b"][rows][:, columns.index("b3 is empty")] == 1).all()
    other = np.array(samples["b"][rows])
    other[:, columns.index("b3")] += 4.0
    likelihood = model.trained_.model.likelihoods["b"]
    decoded, x = torch.randn(1, len(columns)), torch.from_numpy(other)
    standard = model.trained_.preparation.transforms["b"]
    x = (x - standard.mean) / standard.std
    changed = x.clone()
    changed[:, columns.index("b3")] += 1
    torch.testing.assert_close(likelihood.log_density(decoded, x), likelihood.log_density(decoded, changed))
    changed[:, columns.index("b4")] += 1
    assert not torch.isclose(likelihood.log_density(decoded, x), likelihood.log_density(decoded, changed)).any()
    # The density of the others is that of them alone, in the units of the table.
    alone = build_likelihood(Modality("b", "vector", (len(columns),)), "gaussian")
    alone.log_scale.data.fill_(likelihood.clamped_log_scale().item())
    hidden = likelihood.hidden(x)
    expected = alone.pointwise(decoded, x).masked_fill(hidden, 0).sum(-1)
    torch.testing.assert_close(likelihood.log_density(decoded, x), expected)


def test_the_likelihood_of_a_row_with_a_gap_does_not_depend_on_the_unit_of_the_empty_column():
    """With A's column in another unit every density changes by a factor, of rows that know A alone."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(200, 2)) + rng.normal(size=(200, 1))
    x[::4, 0] = np.nan

    def density(factor):
        frame = pl.DataFrame({"a0": x[:, 0] * factor, "a1": x[:, 1], "b": x[:, 1] ** 2}).fill_nan(None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = load_data(frame, modalities={"a": "a*", "b": "b"}).train
            model = MultimodalVAE(latent=2, epochs=2, validation=None, device="cpu", random_state=0).fit(samples)
        return model.trained_.log_likelihood(samples, draws=20, device="cpu").value.numpy(), samples.index

    (values, order), (scaled, _) = density(1.0), density(100.0)
    gap, differences = np.isnan(x[:, 0])[order], values - scaled
    np.testing.assert_allclose(differences[gap], 0, atol=1e-3)
    np.testing.assert_allclose(differences[~gap], np.log(100), atol=1e-3)


def test_saved_gaps_are_checked():
    labs = Modality("labs", "vector", (3,))
    for wrong in ([[3, [0]]], [[2, [0, 2]]], [[2, ["0"]]], [[-1, [0]]], [[2, [0]], [1, [0]]]):
        with pytest.raises(InputError, match="pairs of different features"):
            checked_gaps(labs, wrong)
    with pytest.raises(InputError, match="pairs of different features"):
        checked_gaps(Modality("photo", "image", (3, 4, 4)), [[2, [0]]])


def test_samples_without_gaps_are_returned_as_they_are(trained):
    data, model = trained
    whole = data.samples[(data.samples.present.all(axis=1))]
    flags = {
        name: [place for place, feature in enumerate(features) if "is empty" in feature]
        for name, features in data.extra["columns"].items()
    }
    rows = np.all([(whole[name][:, places] == 0).all(axis=1) for name, places in flags.items()], axis=0)
    assert rows.sum() > 100
    chosen = whole[rows]
    imputed = model.impute(chosen)
    for name in chosen.names:
        np.testing.assert_array_equal(imputed[name], chosen[name])


def test_in_training_encoders_see_some_known_cells_as_empty_ones():
    likelihood = build_likelihood(Modality("labs", "vector", (4,)), None)
    likelihood.gaps = [(3, [0, 1])]
    x = torch.arange(400.0).reshape(100, 4)
    x[:, 3] = -0.5
    x[:10, :2], x[:10, 3] = torch.tensor([7.0, 8.0]), 2.0
    torch.manual_seed(0)
    seen = likelihood.hide_cells(x, 0.3)
    hidden = (seen != x).any(1)
    assert not hidden[:10].any()
    assert 10 < hidden.sum() < 45
    assert (
        seen[hidden] == torch.tensor([[7.0, 8.0, 0.0, 2.0]]).where(torch.tensor([True, True, False, True]), x[hidden])
    ).all()
    without = x[10:]
    assert (likelihood.hide_cells(without, 0.3) == without).all(), "no empty cell shows what one looks like"
