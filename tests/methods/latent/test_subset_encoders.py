import pytest
import torch

from consilience.core.errors import InputError, UnsupportedError
from consilience.methods.latent.diagonal_gaussian import product
from consilience.methods.latent.subsets import all_subsets
from methods.latent.latent_toys import batch_of, gradients, model_of

MIXED = [[1, 1, 1], [1, 1, 0], [0, 1, 1], [0, 0, 1]]
ALL = ["trunk", "own", "poe", "set", "concat"]


@pytest.mark.parametrize("encoder", ALL)
def test_subsets_of_samples_are_those_of_the_batch(encoder):
    """`[S, batch, modality]`, with different sets for different samples, against `[S, modality]`."""
    model, batch = model_of(3, "joint" if encoder != "concat" else "vae", encoder=encoder), batch_of(3)
    every = model.encode(batch, all_subsets(3))
    assert every.mean.shape == (7, 4, 2)
    for count in (2, 9):  # fewer and more sets than there are heads
        picks = torch.randint(7, (count, 4), generator=torch.Generator().manual_seed(0))
        some = model.encode(batch, all_subsets(3)[picks])
        column = torch.arange(4).expand(count, 4)
        torch.testing.assert_close(some.mean, every.mean[picks, column])
        torch.testing.assert_close(some.log_variance, every.log_variance[picks, column])


@pytest.mark.parametrize("encoder", ALL)
def test_nothing_at_all_is_the_prior(encoder):
    model, batch = model_of(3, "joint" if encoder != "concat" else "vae", encoder=encoder), batch_of(3)
    for shape in ((2, 3), (2, 4, 3)):
        made = model.encode(batch, torch.zeros(shape, dtype=torch.bool))
        assert made.mean.shape == (2, 4, 2)
        assert made.mean.abs().max() == made.log_variance.abs().max() == 0


@pytest.mark.parametrize("encoder", [*ALL, "no prior"])
@pytest.mark.parametrize("members", [(), (1,), (0, 2), (0, 1, 2)])
def test_a_set_that_all_samples_have_is_encoded_as_by_masks(encoder, members):
    """And the posterior of a sample does not depend on whether others have the same modalities."""
    objective = {"concat": "vae", "no prior": "mopoe"}.get(encoder, "joint")
    model = model_of(3, objective, encoder=None if encoder == "no prior" else encoder)
    batch = batch_of(3, present=[[1, 1, 1], [1, 1, 1], [1, 0, 0]])
    if hasattr(model.subset_encoder, "met"):
        model.subset_encoder.met.fill_(True)
    mask = torch.tensor([[place in members for place in range(3)]])
    complete = batch.select(torch.arange(2))
    wanted = model.encode(complete, mask)
    made = model.encode_set(complete, members)
    names = [name for place, name in enumerate("abc") if place in members]
    alike, mixed = model.posterior(complete, names), model.posterior(batch, names)
    for values in ("mean", "log_variance"):
        for found in (made, alike, mixed[:2]):
            torch.testing.assert_close(getattr(found, values), getattr(wanted, values)[0])


def test_sets_without_a_network_are_inferred_for_all_rows_at_once_as_for_each():
    """JMVAE trains no network for two of three modalities; rows that differ go another way."""
    model = model_of(3, "jmvae", encoder="own")
    model.subset_encoder.met[:] = torch.tensor([True, True, True, False, True, False, False, True])
    batch = batch_of(3, present=[[1, 0, 1], [1, 0, 1], [0, 1, 0]])
    alike, mixed = model.posterior(batch.select(torch.arange(2))), model.posterior(batch)
    torch.testing.assert_close(alike.mean, mixed.mean[:2])
    torch.testing.assert_close(alike.log_variance, mixed.log_variance[:2])


@pytest.mark.parametrize("encoder", ALL)
def test_what_is_not_in_the_subset_has_no_influence(encoder):
    """Neither a modality outside the set, nor whatever lies in an absent slot."""
    model = model_of(3, "joint" if encoder != "concat" else "vae", encoder=encoder)
    batch, other = batch_of(3, present=MIXED), batch_of(3, present=MIXED)
    sets = batch.present.clone()
    sets[0, 2] = False
    other.values["c"][0] += 5.0
    for column, name in enumerate("abc"):
        other.values[name][~batch.present[:, column]] = 1e3
    made, again = model.encode(batch, sets[None]), model.encode(other, sets[None])
    assert torch.equal(made.mean, again.mean)
    assert torch.equal(gradients(model, made.mean.sum()), gradients(model, again.mean.sum()))


@pytest.mark.parametrize(("objective", "prior"), [("mvae", True), ("mopoe", False)])
def test_products_are_of_the_experts(objective, prior):
    model, batch = model_of(3, objective), batch_of(3)
    parts = [model.subset_encoder.heads[name](one(batch[name]).pooled) for name, one in _encoders(model)]
    mean, log_variance = torch.stack(parts).chunk(2, dim=-1)
    members = torch.tensor([True, False, True])
    wanted = product(mean, log_variance, members[:, None].expand(3, 4), prior)
    made = model.encode(batch, members[None])
    torch.testing.assert_close(made.mean[0], wanted.mean)
    torch.testing.assert_close(made.log_variance[0], wanted.log_variance)


def _encoders(model):
    return model.subset_encoder.encoders.items()


def test_heads_are_two_layers_on_the_members_features():
    model, batch = model_of(3), batch_of(3)
    trunk = model.subset_encoder
    features = [trunk.narrow[name](one(batch[name]).pooled) for name, one in _encoders(model)]
    head = 0b101 - 1
    hidden = features[0] @ trunk.first[0, :, head] + features[2] @ trunk.first[2, :, head] + trunk.first_bias[head]
    mean, _ = (hidden.relu() @ trunk.second[head] + trunk.second_bias[head]).chunk(2, dim=1)
    torch.testing.assert_close(model.encode(batch, torch.tensor([[True, False, True]])).mean[0], mean)


def test_choices_follow_the_objective():
    assert model_of(3).subset_encoder.name == "trunk"
    assert model_of(8, settings={"subsets": "chain"}).subset_encoder.name == "set"
    assert model_of(3, "vae").subset_encoder.name == "concat"
    assert model_of(3, "mvtcae").subset_encoder.name == "poe"
    with pytest.raises(InputError, match=r"unknown subset encoder 'trunks': did you mean 'trunk'"):
        model_of(3, encoder="trunks")
    with pytest.raises(UnsupportedError, match="'mvae' is defined for the subset encoder poe, not 'trunk'"):
        model_of(3, "mvae", encoder="trunk")
