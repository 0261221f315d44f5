import numpy as np
import pytest
import torch
from torch.nn import functional

from consilience.core.errors import UnknownNameError
from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.methods import Spec, Step
from consilience.methods.opinions.unimodal import BestUnimodal, Unimodal
from consilience.preparation import Preparation
from consilience.training import Model, Trainer
from toy_batches import CLASSES, NUMBERS, VECTORS, batch_of


def test_an_expert_sees_one_modality():
    method = Unimodal(Spec(VECTORS, CLASSES), "audio").eval()
    batch, other = batch_of(5), batch_of(5)
    other.values["image"] = torch.randn(5, 3)
    assert torch.equal(method(batch).output, method(other).output)
    other.values["audio"] = torch.randn(5, 2)
    assert not torch.equal(method(batch).output, method(other).output)
    assert method(batch).weights is None
    with pytest.raises(UnknownNameError, match="unknown modality 'adio': did you mean 'audio'"):
        Unimodal(Spec(VECTORS, CLASSES), "adio")


def test_without_its_modality_an_expert_knows_its_bias():
    present = torch.tensor([[True, False], [True, True]])
    method = Unimodal(Spec(VECTORS, CLASSES), "audio").eval()
    torch.testing.assert_close(method(batch_of(2, present)).output[0], method.head.bias)


def test_an_expert_learns_from_those_who_have_its_modality():
    present = torch.tensor([[True, False], [True, True], [False, True], [True, False]])
    batch = batch_of(4, present, weight=[5.0, 1.0, 3.0, 7.0])
    method = Unimodal(Spec(VECTORS, CLASSES), "audio").eval()
    prediction = method(batch)
    each = functional.cross_entropy(prediction.output, batch.y, reduction="none")
    expected = (1.0 * each[1] + 3.0 * each[2]) / 16.0
    torch.testing.assert_close(method.objective(prediction, batch, Step())["task"], expected)


@pytest.mark.parametrize("task", [CLASSES, NUMBERS], ids=["classes", "numbers"])
@pytest.mark.parametrize("make", [lambda spec: Unimodal(spec, "image"), BestUnimodal], ids=["unimodal", "best"])
def test_gradients_are_finite_when_everything_is_missing(make, task):
    batch = batch_of(4, torch.zeros(4, 2, dtype=torch.bool), task)
    method = make(Spec(VECTORS, task))
    losses = sum(method.objective(method(batch), batch, Step()).values())
    assert losses == 0
    losses.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in method.parameters() if parameter.grad is not None)


def samples_of(n=90, seed=0):
    """Three modalities that tell the class clearly ("good"), somewhat ("fair") and not at all ("bad")."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, size=n)
    values = {
        name: random.normal(size=(n, 2)) + spread * (2 * y - 1)[:, None]
        for name, spread in (("bad", 0.0), ("good", 2.0), ("fair", 0.6))
    }
    return Samples.of(values, y)


@pytest.fixture(scope="module")
def model():
    return Model.fit("best-unimodal", samples_of(), samples_of(60, 1), trainer=Trainer(epochs=8, lr=0.01, device="cpu"))


def test_experts_are_ranked_by_their_best_validation_loss(model):
    lowest = [min(row["validation_loss"] for row in log.rows) for log in model.logs]
    assert model.method.ranking.tolist() == np.argsort(lowest).tolist() == [1, 2, 0]
    assert len(model.logs) == 3


def test_the_best_decides_or_the_next_best_that_is_present(model):
    test = samples_of(8, 2)
    subsets = [[bool(number & 1), bool(number & 2), bool(number & 4)] for number in range(8)]  # bad, good, fair
    prediction = model.predict(test.replaced({}, present=np.array(subsets)), device="cpu")
    experts = [expert for _, expert in model.method.experts.items()]
    for row, (bad, good, fair) in enumerate(subsets):
        chosen = 1 if good else 2 if fair else 0 if bad else None
        expected = [0.0, 0.0, 0.0]
        if chosen is not None:
            expected[chosen] = 1.0
        assert prediction.weights[row].tolist() == expected
        decided = 1 if chosen is None else chosen  # where nothing is there, the bias of the best
        assert torch.equal(prediction.output[row], prediction.opinions[row, decided])
    torch.testing.assert_close(prediction.output[0], experts[1].head.bias.detach())


def test_without_validation_the_last_training_loss_ranks(monkeypatch):
    samples = samples_of(40)
    preparation = Preparation.fit(samples, Task.of(samples.y))
    method = BestUnimodal(Spec(preparation.modalities, preparation.task))
    # The first was lowest in passing; what counts is where its weights ended.
    runs = iter([[0.1, 0.9], [0.8, 0.5], [0.9, 0.7]])

    class Log:
        def __init__(self, losses):
            self.rows = [{"task": loss} for loss in losses]

    trainer = Trainer(preparation, device="cpu")
    monkeypatch.setattr(trainer, "run", lambda *_: Log(next(runs)))
    method.fit(samples, None, trainer)
    assert method.ranking.tolist() == [1, 2, 0]


def test_each_expert_has_its_own_loss():
    present = torch.tensor([[True, False], [True, True], [False, True], [True, False]])
    batch = batch_of(4, present, weight=[5.0, 1.0, 3.0, 7.0])
    method = BestUnimodal(Spec(VECTORS, CLASSES)).eval()
    losses = method.objective(method(batch), batch, Step())
    for name, expert in method.experts.items():
        torch.testing.assert_close(losses[name], expert.objective(expert(batch), batch, Step())["task"])
    assert list(losses) == list(VECTORS)


def test_experts_are_those_trained_alone(model):
    spec = Spec(model.preparation.modalities, model.task)
    alone = Unimodal(spec, "good")
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        start = BestUnimodal(spec)
    alone.load_state_dict(start.experts["good"].state_dict())
    Trainer(model.preparation, epochs=8, lr=0.01, device="cpu").run(alone, samples_of(), samples_of(60, 1))
    for name, value in alone.state_dict().items():
        assert torch.equal(model.method.experts["good"].state_dict()[name], value)


def test_experts_are_judged_by_the_samples_they_can_see():
    """A modality that is perfect where it is there, but mostly missing, still ranks first."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    rare = np.eye(2)[y] * 4 + rng.normal(scale=0.1, size=(400, 2))
    rare[rng.random(400) < 0.8] = np.nan
    common = np.eye(2)[y] + rng.normal(scale=0.7, size=(400, 2))
    samples = Samples.of({"common": common, "rare": rare}, y)
    model = Model.fit("best-unimodal", samples[:300], samples[300:], trainer=Trainer(epochs=20, lr=0.01, device="cpu"))
    assert model.method.ranking.tolist() == [1, 0]
