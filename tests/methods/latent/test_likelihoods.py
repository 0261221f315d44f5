import numpy as np
import pytest
import torch
from torch import distributions as d

from consilience.core.errors import InputError, UnsupportedError
from consilience.core.samples import Modality, Samples
from consilience.methods.latent.likelihoods.likelihood import LIKELIHOODS, build_likelihood, default_likelihood

VECTOR = Modality("v", "vector", (3,))
IMAGE = Modality("i", "image", (2, 3, 3))
SEQUENCE = Modality("s", "sequence", (4, 2))
TOKENS = Modality("t", "tokens", (4,), vocabulary=5)
SCALE = 0.7


def built(modality, name, **settings):
    one = build_likelihood(modality, {"name": name, **settings}).double()
    for parameter in one.parameters():
        torch.nn.init.uniform_(parameter, -0.5, 0.5)
    return one


def oracle(one, decoded):
    """The same distribution by torch.distributions."""
    if one.name == "gaussian":
        return d.Normal(decoded, one.log_scale.exp())
    if one.name == "laplace":
        return d.Laplace(decoded, one.log_scale.exp())
    if one.name == "bernoulli":
        return d.Bernoulli(logits=decoded)
    if one.name == "poisson":
        return d.Poisson(decoded.exp())
    r = one.log_dispersion.exp()
    return d.NegativeBinomial(r.expand_as(decoded), logits=decoded - one.log_dispersion)


NUMERIC = ["gaussian", "laplace", "bernoulli", "poisson", "negative-binomial"]


@pytest.mark.parametrize("modality", [VECTOR, IMAGE, SEQUENCE], ids=lambda one: one.kind)
@pytest.mark.parametrize("name", NUMERIC)
def test_densities_are_those_of_torch(name, modality):
    torch.manual_seed(0)
    one, decoded = built(modality, name), torch.randn(2, 5, *modality.shape).double()
    wanted = oracle(one, decoded)
    x = wanted.sample()[0]
    each = wanted.log_prob(x)
    torch.testing.assert_close(one.log_density(decoded, x), each.flatten(2).sum(-1))
    torch.testing.assert_close(one.mean(decoded), wanted.mean)
    if modality.kind == "sequence":
        mask = torch.arange(3) < torch.tensor([0, 1, 2, 3, 3])[:, None]
        found = one.log_density(decoded, x[:, :3], mask)
        torch.testing.assert_close(found, (each[:, :, :3] * mask[..., None]).sum((-1, -2)))


@pytest.mark.parametrize("name", NUMERIC)
def test_draws_have_the_moments(name):
    torch.manual_seed(0)
    one, decoded = built(VECTOR, name), torch.tensor([-0.5, 0.3, 1.0]).double()
    drawn = one.draw(decoded.expand(40_000, 3), torch.Generator().manual_seed(0))
    wanted = oracle(one, decoded)
    torch.testing.assert_close(drawn.mean(0), wanted.mean, rtol=0, atol=0.06)
    torch.testing.assert_close(drawn.var(0), wanted.variance, rtol=0.1, atol=0)


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
def test_scales(name):
    torch.manual_seed(0)
    decoded, x = torch.randn(4, *IMAGE.shape).double(), torch.randn(4, *IMAGE.shape).double()
    fixed = built(IMAGE, name, scale=SCALE)
    assert not list(fixed.parameters())
    torch.testing.assert_close(fixed.log_density(decoded, x), oracle(fixed, decoded).log_prob(x).sum((1, 2, 3)))
    each = built(IMAGE, name, scale="feature")
    assert each.log_scale.shape == (2, 1, 1)
    torch.testing.assert_close(each.log_density(decoded, x), oracle(each, decoded).log_prob(x).sum((1, 2, 3)))
    with pytest.raises(InputError, match="scale must be 'modality' or 'feature' or a number > 0, got 0"):
        build_likelihood(VECTOR, {"name": name, "scale": 0})
    with pytest.raises(InputError, match="scale must be 'modality' or 'feature' or a number > 0, got 'pixel'"):
        build_likelihood(VECTOR, {"name": name, "scale": "pixel"})


def test_classes_of_tokens_and_vectors():
    torch.manual_seed(0)
    tokens, decoded = build_likelihood(TOKENS), torch.randn(2, 3, 4, 5).double()
    assert tokens.name == "categorical"
    assert tokens.outputs == 20
    ids, mask = torch.randint(5, (3, 4)), torch.arange(4) < torch.tensor([1, 4, 2])[:, None]
    wanted = d.Categorical(logits=decoded).log_prob(ids)
    torch.testing.assert_close(tokens.log_density(decoded, ids, mask), (wanted * mask).sum(-1))
    assert torch.equal(tokens.mean(decoded), decoded.argmax(-1))
    assert torch.equal(tokens.mean_over_draws(decoded), decoded.softmax(-1).mean(0).argmax(-1))
    drawn = tokens.draw(decoded[0, 0, 0].expand(20_000, 5), torch.Generator().manual_seed(0)).bincount() / 20_000
    torch.testing.assert_close(drawn, decoded[0, 0, 0].softmax(-1).float(), rtol=0, atol=0.02)
    vector = build_likelihood(VECTOR, "categorical")
    hot = torch.eye(3).double()
    torch.testing.assert_close(
        vector.log_density(decoded[0, :, 0, :3], hot), d.OneHotCategorical(logits=decoded[0, :, 0, :3]).log_prob(hot)
    )
    assert vector.draw(decoded[0, :, 0, :3]).sum(-1).tolist() == [1, 1, 1]


def test_defaults_by_kind_and_values():
    samples = Samples.of({"v": [[0.0, 1.0, 1.0]], "w": [[0.0, 2.0, 1.0]]})
    assert default_likelihood(VECTOR, samples) == "bernoulli"
    assert default_likelihood(Modality("w", "vector", (3,)), samples) == "gaussian"
    assert default_likelihood(TOKENS, samples) == "categorical"


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (
            "bernoulli",
            [[0.0, 1.0, 0.5], [0.0, 1.5, 0.0]],
            r"'v' does not fit .*'bernoulli': .*\[0, 1\], got 1.5",
        ),
        ("poisson", [[0.0, 2.0, 3.0], [0.5, 1.0, 0.0]], r"counts must be whole numbers ≥ 0, got 0.5 \(row 1\)"),
        ("negative-binomial", [[0.0, -1.0, 3.0], [0.0, 1.0, 0.0]], r"≥ 0, got -1 \(row 0\)"),
        ("categorical", [[0.0, 1.0, 0.0], [0.0, 1.0, 1.0]], r"one-hot.*got 2 \(row 1\)"),
    ],
)
def test_values_that_do_not_fit_are_refused(name, values, message):
    one = build_likelihood(VECTOR, name)
    with pytest.raises(InputError, match=message):
        one.check(Samples.of({"v": np.array(values)}), "v")
    bad = 0 if name == "negative-binomial" else 1
    hidden = Samples.of({"v": np.array(values)}, present=[[row != bad] for row in range(2)])
    one.check(hidden, "v")
    one.check(hidden[[bad]], "v")  # nobody has it


def test_unseen_classes_and_long_sequences_are_refused():
    one = build_likelihood(TOKENS)
    with pytest.raises(InputError, match=r"'t' does not fit .*from 0 to 4, those of the training set, got 7 \(row 1\)"):
        one.check(Samples.of({"t": np.array([[1, 2], [7, 0]])}, kinds={"t": "tokens"}), "t")
    sequence = build_likelihood(SEQUENCE)
    with pytest.raises(InputError, match="'s' has samples of 6 time steps, its decoder gives 4"):
        sequence.log_density(torch.zeros(1, 4, 2), torch.zeros(1, 6, 2), torch.ones(1, 6, dtype=torch.bool))


def test_choices_are_checked():
    assert LIKELIHOODS.names() == sorted([*NUMERIC, "categorical"])
    with pytest.raises(InputError, match=r"unknown likelihood 'gausian': did you mean 'gaussian'.*modality 'v'"):
        build_likelihood(VECTOR, "gausian")
    with pytest.raises(InputError, match="unknown setting 'rate'"):
        build_likelihood(VECTOR, {"name": "poisson", "rate": 2})
    with pytest.raises(UnsupportedError, match="'poisson' is for vector, image, sequence, not for modality t"):
        build_likelihood(TOKENS, "poisson")
    with pytest.raises(InputError, match="must be a name or a mapping"):
        build_likelihood(VECTOR, 3)
