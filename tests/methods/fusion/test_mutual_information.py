import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from consilience import methods
from consilience.core.errors import InputError
from consilience.core.samples import Modality, Samples
from consilience.core.targets import Task
from consilience.methods.fusion.mutual_information import (
    BOUND,
    CodeGaussian,
    contrastive_losses,
    grouped_entropy,
    log_likelihood,
)
from consilience.preparation import Preparation
from consilience.training import Trainer
from toy_batches import CLASSES, NUMBERS, VECTORS, batch_of

THREE = {name: Modality(name, "vector", (3,)) for name in ("text", "sound", "sight")}
SMALL = {"width": 8, "code": 2, "dropout": 0.0}


def build(modalities=VECTORS, task=CLASSES, **settings):
    torch.manual_seed(0)
    encoders = {name: {"name": "mlp", "hidden": [5], "dropout": 0.0} for name in modalities}
    return methods.build("mim", methods.Spec(modalities, task, encoders), {**SMALL, **settings})


def gaussian_pair(n, correlation, width=3, seed=0):
    """x and y with this correlation in every coordinate: I(x; y) = −width/2 · ln(1 − correlation²)."""
    x, noise = torch.from_numpy(np.random.default_rng(seed).normal(size=(2, n, width)))
    return x, correlation * x + math.sqrt(1 - correlation**2) * noise


def bound(y, mean, log_variance):
    entropy = grouped_entropy(y, torch.zeros(len(y), dtype=torch.int64), 1, torch.ones(len(y)))
    return (log_likelihood(y, mean, log_variance).mean() + entropy).item()


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_the_bound_is_the_mutual_information_of_gaussians_with_the_true_conditional(correlation):
    x, y = gaussian_pair(20_000, correlation)
    exact = -1.5 * math.log(1 - correlation**2)
    variance = torch.full_like(y, math.log(1 - correlation**2))
    assert bound(y, correlation * x, variance) == pytest.approx(exact, abs=0.02)
    for mean, log_variance in ((correlation * x + 0.3, variance), (correlation * x, variance + 0.5)):
        assert bound(y, mean, log_variance) < exact - 0.05


def test_learned_by_likelihood_the_bound_comes_near_from_below():
    x, y = gaussian_pair(2000, 0.8, width=1)
    torch.manual_seed(0)
    guess = CodeGaussian(1, 1, hidden=16).double()
    optimizer = torch.optim.Adam(guess.parameters(), lr=0.02)
    for _ in range(100):
        loss = -log_likelihood(y, *guess(x)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    held_x, held_y = gaussian_pair(20_000, 0.8, width=1, seed=1)
    exact = -0.5 * math.log(1 - 0.64)
    assert exact - 0.05 < bound(held_y, *guess(held_x)) < exact + 0.01


def test_the_entropy_of_one_group_is_a_gaussians():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(50, 3)) @ rng.normal(size=(3, 3))
    exact = multivariate_normal.entropy(cov=np.cov(values.T, bias=True) + 1e-4 * np.eye(3))
    group, weight = torch.zeros(50, dtype=torch.int64), torch.ones(50)
    assert grouped_entropy(torch.tensor(values), group, 1, weight).item() == pytest.approx(exact, abs=1e-6)


def test_the_entropy_of_groups_against_loops():
    rng = np.random.default_rng(1)
    values, group, weight = rng.normal(size=(12, 2)), rng.integers(3, size=12), np.array([2.0] * 8 + [0.0] * 4)
    kept = weight > 0
    scatter, count = {}, {}
    for label in range(4):  # the last has no samples
        inside = values[kept & (group == label)]
        count[label] = len(inside)
        scatter[label] = sum((np.outer(x - inside.mean(0), x - inside.mean(0)) for x in inside), np.zeros((2, 2)))
    within = sum(scatter.values()) / kept.sum()
    expected = sum(
        count[label]
        / kept.sum()
        * multivariate_normal.entropy(cov=(scatter[label] + 2 * within) / (count[label] + 2) + 1e-4 * np.eye(2))
        for label in range(4)
    )
    found = grouped_entropy(*(torch.tensor(each) for each in (values, group)), 4, torch.tensor(weight))
    assert found.item() == pytest.approx(expected, abs=1e-8)


def test_codes_that_do_not_vary_and_batches_of_none_are_finite():
    group = torch.zeros(4, dtype=torch.int64)
    still = torch.ones(4, 2, requires_grad=True)
    grouped_entropy(still, group, 2, torch.ones(4)).backward()
    assert torch.isfinite(still.grad).all()
    assert grouped_entropy(still, group, 2, torch.zeros(4)).item() == 0


def test_the_contrast_against_loops():
    torch.manual_seed(0)
    features, predicted = torch.randn(2, 6, 4).double()
    present = torch.tensor([True, True, False, True, True, False])
    found = contrastive_losses(features, predicted, present)
    for i in range(6):
        if not present[i]:
            assert found[i] == 0
            continue
        scores = {
            j: math.exp(predicted[i] @ features[j] / (predicted[i].norm() * features[j].norm()))
            for j in range(6)
            if present[j]
        }
        assert found[i].item() == pytest.approx(-math.log(scores[i] / sum(scores.values())))


@pytest.mark.parametrize("task", [CLASSES, NUMBERS])
def test_the_objective_is_the_sum_of_its_parts(task):
    method = build(THREE, task)
    batch = batch_of(n=8, task=task, modalities=THREE, present=[[True, i % 3 > 0, i != 2] for i in range(8)])
    prediction = method(batch)
    losses = method.objective(prediction, batch, methods.Step())
    assert list(losses) == ["task", "contrast", "likelihood", "entropy"]
    assert method.pairs == (("text", "sound"), ("text", "sight"), ("sound", "sight"))
    group = batch.y if task.classification else (batch.y[:, 0] > 0).long()
    likelihood = entropy = 0
    for (source, target), guess in zip(method.pairs, method.guesses):
        both = batch.present_in(source) & batch.present_in(target)
        code = method.codes[target](prediction.features[target].pooled[both])
        likelihood += log_likelihood(code, *guess(prediction.features[source].pooled[both])).mean()
        entropy += grouped_entropy(code, group[both], task.outputs if task.classification else 2, both[both].float())
    torch.testing.assert_close(losses["likelihood"], -0.1 * likelihood)
    torch.testing.assert_close(losses["entropy"], -0.1 * entropy)
    alone = method.objective(prediction, batch, methods.Step(phase=BOUND))
    torch.testing.assert_close(alone, {"likelihood": -likelihood})


def test_the_first_phase_trains_the_guesses_alone():
    rng = np.random.default_rng(0)
    samples = Samples.of({"image": rng.normal(size=(40, 3)), "audio": rng.normal(size=(40, 2))}, np.arange(40) % 3)
    task = Task.of_labels(samples.y)
    method = build(task=task, bound_epochs=3)
    before = {name: parameter.detach().clone() for name, parameter in method.named_parameters()}
    trainer = Trainer(Preparation.fit(samples, task), epochs=1, device="cpu")
    after_bound = []
    run = trainer.run

    def watched(module, *given):
        log = run(module, *given)
        after_bound.append(
            [name for name, parameter in module.named_parameters() if not torch.equal(parameter, before[name])]
        )
        return log

    trainer.run = watched
    method.fit(samples, samples, trainer)
    assert [row["phase"] for log in trainer.logs for row in log.rows] == [BOUND, BOUND, BOUND, "fit"]
    assert after_bound[0] == [name for name in before if name.startswith("guesses")]
    assert len(after_bound[1]) == len(before)


def test_what_weighs_nothing_is_not_built():
    method = build(contrast=0, information=0.0)
    batch = batch_of()
    assert list(method.objective(method(batch), batch, methods.Step())) == ["task"]
    assert not [name for name, _ in method.named_parameters() if name.startswith(("guesses", "codes", "predictors"))]
    assert build(THREE, anchor="sound").pairs == (("sound", "text"), ("sound", "sight"))


@pytest.mark.parametrize(
    ("setting", "value"),
    [("contrast", -1), ("information", "much"), ("bound_epochs", -1), ("code", 0), ("anchor", "x")],
)
def test_bad_settings_are_named(setting, value):
    with pytest.raises(InputError, match=setting):
        build(**{setting: value})
