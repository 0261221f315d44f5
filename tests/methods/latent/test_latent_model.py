import numpy as np
import pytest
import torch
from torch import nn

from consilience.core.errors import InputError, TrainingError, UnsupportedError
from consilience.core.samples import Modality, Samples
from consilience.core.targets import Task
from consilience.methods import Prediction, Spec, Step
from consilience.methods.latent.diagonal_gaussian import bayes_product
from consilience.methods.latent.latent_model import LatentModel
from consilience.methods.latent.likelihoods.likelihood import build_likelihood
from consilience.preparation import Preparation
from consilience.training import Trainer
from methods.latent.latent_toys import batch_of, model_of

MIXED = [[1, 1, 1], [1, 1, 0], [0, 1, 1], [0, 0, 1]]


def samples_of(n=240, missing=0.3, seed=0):
    """Three views of two numbers."""
    random = np.random.default_rng(seed)
    z = random.normal(size=(n, 2))
    X = {name: z @ random.normal(size=(2, 4)) + 0.2 * random.normal(size=(n, 4)) for name in "abc"}
    present = random.random((n, 3)) >= missing
    present[np.arange(n), random.integers(3, size=n)] = True
    return Samples.of(X, present=present)


def train(samples, validation=None, epochs=25, **settings):
    preparation = Preparation.fit(samples, Task.none())
    torch.manual_seed(0)
    model = LatentModel(Spec(preparation.modalities, Task.none()), latent=2, **settings)
    trainer = Trainer(preparation, epochs=epochs, batch_size=60, lr=1e-2, device="cpu")
    model.fit(samples, validation, trainer)
    return model.eval(), preparation, trainer.logs[0]


@pytest.mark.parametrize(
    "settings",
    [
        {"settings": {"bound": "tight", "subsets": "chain"}},
        {"subset_encoder": "set", "settings": {"bound": "tight", "subsets": "chain"}},
        {"subset_encoder": "poe", "beta": 0.5, "warmup": 5},
    ],
    ids=["trunk", "set", "poe"],
)
def test_training_on_gaps_learns_to_fill_them(settings):
    samples = samples_of(400)
    model, preparation, log = train(samples[:240], samples[240:300], **settings)
    assert log.rows[-1]["validation_loss"] < log.rows[0]["validation_loss"] - 1.5
    rows = samples[300:]
    batch = preparation.batch(rows[rows.present.all(axis=1)])
    with torch.no_grad():
        decoded = model.decode(model.posterior(batch, ["a", "b"]).mean, ["c"])["c"]
    rebuilt = model.likelihoods["c"].mean(decoded)
    assert ((rebuilt - batch["c"]) ** 2).mean() < 0.5 * batch["c"].var()


def test_a_value_far_from_all_others_does_not_end_training():
    samples = samples_of(300, missing=0)
    X = dict(samples)
    X["a"][:, 3] = 0.0
    X["a"][5, 3] = 1e-3  # a sensor that hardly ever speaks
    X["a"][250, 3] = 1.0  # and once in validation, thousands of deviations from its mean
    samples = Samples.of(X)
    _, _, log = train(samples[:200], samples[200:], epochs=40)
    assert log.best_epoch > 20


def test_seeds_repeat_and_validation_is_quiet():
    samples = samples_of(60)
    first, preparation, log = train(samples, samples, epochs=2)
    again, _, repeated = train(samples, samples, epochs=2)
    assert [row["validation_loss"] for row in log.rows] == [row["validation_loss"] for row in repeated.rows]
    batch = preparation.batch(samples)
    assert torch.equal(first(batch).output, again(batch).output)
    assert torch.equal(first(batch).output, first(batch).output)


@pytest.mark.parametrize("encoder", ["trunk", "own", "set", "poe"])
def test_every_parameter_learns(encoder):
    model, batch = model_of(3, encoder=encoder).train(), batch_of(3, present=MIXED)
    losses = model.objective(model(batch), batch, Step())
    sum(losses.values()).backward()
    assert list(losses) == ["reconstruction", "prior", "mutual"]
    idle = [name for name, one in model.named_parameters() if one.grad is None or not one.grad.abs().sum() > 0]
    assert not idle


def test_beta_warms_up_and_weights_weigh():
    batch = batch_of(3)
    plain = model_of(3, "joint")
    terms = plain(batch).extra["terms"]
    model = model_of(3, "joint", beta=0.5, warmup=4)
    made = model(batch)
    for epoch, beta in ((0, 0.125), (3, 0.5), (9, 0.5)):
        losses = model.objective(made, batch, Step(epoch, 10))
        torch.testing.assert_close(losses["prior"], beta * terms["prior"].mean())
        torch.testing.assert_close(losses["reconstruction"], terms["reconstruction"].mean())
    torch.testing.assert_close(made.output[:, 0], -terms["reconstruction"] - 0.5 * terms["prior"])
    torch.testing.assert_close(model.validation_losses(made, batch), -made.output[:, 0])
    weighed = model_of(3, "joint", weights={"a": 0.0, "b": 2.0})
    z = weighed.encode(batch, batch.present[:1])[0].draw(torch.Generator().manual_seed(0))
    each = weighed.log_densities(weighed.decode(z), batch)
    torch.testing.assert_close(weighed(batch).extra["terms"]["reconstruction"], -(2 * each["b"] + each["c"]))


def test_posteriors_are_of_what_is_given_and_there():
    model, batch = model_of(3), batch_of(3, present=MIXED)
    model.subset_encoder.met[:] = True
    made = model.posterior(batch, ["a", "b"])
    wanted = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]], dtype=torch.bool)
    torch.testing.assert_close(made.mean, model.encode(batch, wanted[None]).mean[0])
    assert made.mean[3].abs().max() == made.log_variance[3].abs().max() == 0
    torch.testing.assert_close(model.posterior(batch).mean, model.encode(batch, batch.present[None]).mean[0])
    with pytest.raises(InputError, match="unknown modality 'd'"):
        model.posterior(batch, ["d"])
    with pytest.raises(InputError, match=r"got the string 'ab': write \['ab'\]"):
        model.posterior(batch, "ab")


def test_subsets_that_were_never_trained_are_inferred_or_refused():
    batch = batch_of(3)
    joint = model_of(3, "joint")
    joint.train()(batch)
    joint.eval().posterior(batch)
    with pytest.raises(UnsupportedError, match=r"'joint' has trained no encoder for a \+ b, nor for each .*'poe'"):
        joint.posterior(batch, ["a", "b"])
    jmvae = model_of(3, "jmvae")
    jmvae.train()(batch)
    made = jmvae.eval().posterior(batch, ["a", "b"])
    alone = jmvae.encode(batch, torch.eye(3, dtype=torch.bool))
    there = torch.tensor([True, True, False])[:, None].expand(3, 4)
    torch.testing.assert_close(made.mean, bayes_product(alone.mean, alone.log_variance, there).mean)
    restored = model_of(3, "jmvae")
    restored.load_state_dict(jmvae.state_dict())  # what was trained is saved
    torch.testing.assert_close(restored.posterior(batch, ["a", "b"]).mean, made.mean)
    mixture = model_of(3, "mmvae").posterior(batch, ["b", "c"])
    assert mixture.mean.shape == (4, 2)


def test_densities_broadcast_over_draws_and_skip_what_is_missing():
    model, batch = model_of(3), batch_of(3, present=MIXED)
    z = torch.randn(6, 4, 2).double()
    found = model.log_densities(model.decode(z), batch)
    assert {name: tuple(one.shape) for name, one in found.items()} == dict.fromkeys("abc", (6, 4))
    assert found["a"][:, 2:].abs().max() == 0
    scale = model.likelihoods["a"].log_scale.exp()
    wanted = torch.distributions.Normal(model.decoders["a"](z), scale).log_prob(batch["a"]).sum(-1)
    torch.testing.assert_close(found["a"][:, :2], wanted[:, :2])


def test_all_kinds_train_together():
    random = np.random.default_rng(0)
    n = 24
    texts = [" ".join(random.choice(["red", "blue", "green"], size=random.integers(1, 5))) for _ in range(n)]
    X = {
        "image": random.normal(size=(n, 1, 8, 8)),
        "counts": random.poisson(3.0, size=(n, 4)),
        "gait": [random.normal(size=(random.integers(2, 6), 2)) for _ in range(n)],
        "words": texts,
    }
    samples = Samples.of(X)
    preparation = Preparation.fit(samples, Task.none())
    torch.manual_seed(0)
    model = LatentModel(Spec(preparation.modalities, Task.none()), latent=2, settings={"subsets": "chain"})
    Trainer(preparation, epochs=2, batch_size=12, device="cpu").run(model, samples)
    batch = preparation.batch(samples)
    decoded = model.decode(model.posterior(batch).mean)
    assert decoded["words"].shape == (n, 4, 5)
    assert decoded["gait"].shape == (n, 5, 2)
    assert all(one.shape == (n,) for one in model.log_densities(decoded, batch).values())


def test_counts_reach_encoders_in_logarithms():
    modality = Modality("genes", "vector", (3,))
    seen = build_likelihood(modality, "poisson").encoder_input(torch.tensor([0.0, 1.0, 99.0]))
    torch.testing.assert_close(seen, torch.tensor([0.0, 1.0, 99.0]).log1p())
    encoder = nn.Linear(3, 2)
    spec = Spec({"genes": modality}, Task.none(), {"genes": encoder})
    model = LatentModel(spec, likelihoods={"genes": "poisson"}, subset_encoder="poe")
    batch = batch_of(1, n=2)
    batch.values, batch.names = {"genes": torch.tensor([[0.0, 1, 99], [5, 5, 5]])}, ("genes",)
    batch.complete = frozenset(["genes"])
    made = model.encode(batch, torch.ones(1, 1, dtype=torch.bool))
    expert = model.subset_encoder.heads["genes"](encoder(batch["genes"].log1p()))
    precision = 1 + (-expert[:, 20:]).exp()
    torch.testing.assert_close(made.variance[0], 1 / precision)


def test_errors_name_the_trouble():
    samples = samples_of(20, missing=0.0)
    empty = Samples.of(samples, present=np.arange(20)[:, None] != np.array([[7, 7, 7]]))
    model = LatentModel(Spec(samples.modalities, Task.none()), likelihoods={"b": "bernoulli"})
    trainer = Trainer(Preparation.fit(samples, Task.none()), epochs=1, device="cpu")
    with pytest.raises(InputError, match=r"the training set has samples of which every modality is missing \(row 7\)"):
        model.fit(empty, None, trainer)
    with pytest.raises(InputError, match=r"modality 'b' does not fit the likelihood 'bernoulli'"):
        model.fit(samples, None, trainer)
    spec = Spec(samples.modalities, Task.none())
    for given, message in (
        ({"weights": {"d": 1.0}}, "unknown modality 'd'.*weights"),
        ({"weights": {"a": -1.0}}, r"weights\['a'\] must be a number ≥ 0, got -1"),
        ({"beta": "much"}, "beta must be a number ≥ 0, got 'much'"),
        ({"latent": 0}, "latent must be a whole number ≥ 1, got 0"),
    ):
        with pytest.raises(InputError, match=message):
            LatentModel(spec, **given)


class Breaking(LatentModel):
    """Its divergence breaks at the third batch."""

    calls = 0

    def objective(self, prediction: Prediction, batch, step):
        self.calls += 1
        losses = super().objective(prediction, batch, step)
        return {**losses, "prior": losses["prior"] * (float("nan") if self.calls == 3 else 1.0)}


def test_a_loss_that_is_not_a_number_stops_at_its_step():
    samples = samples_of(60)
    model = Breaking(Spec(samples.modalities, Task.none()))
    trainer = Trainer(Preparation.fit(samples, Task.none()), epochs=2, batch_size=10, device="cpu")
    with pytest.raises(TrainingError, match=r"the loss term 'prior' became nan in epoch 1 \(batch 3\)"):
        model.fit(samples, None, trainer)
    assert model.calls == 3
    assert all(torch.isfinite(one).all() for one in model.parameters())
