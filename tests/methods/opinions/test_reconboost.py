"""`reconboost`: the loss of a turn by hand, whose turn it is, and who learns in it."""

import numpy as np
import pytest
import torch

from consilience.data import load_data
from consilience.methods import Spec, Step
from consilience.methods.opinions.reconboost import Reconboost, boosting_losses
from consilience.training import Callback, Model, Trainer
from consilience.training.step_counts import found_steps
from toy_batches import CLASSES, VECTORS, batch_of

SOME = torch.tensor([[True, True], [True, False], [False, True], [False, False]])


def test_boosting_losses_by_hand():
    random = np.random.default_rng(0)
    losses, logits, y = random.random((4, 2)), random.normal(size=(4, 2, 3)), random.integers(3, size=4)
    expected = np.zeros((4, 2))
    for i in range(4):
        for m in range(2):
            if not SOME[i, m]:
                continue
            explained = 0.0
            if SOME[i, 1 - m]:
                p = np.exp(logits[i, 1 - m])
                explained = p[y[i]] / p.sum()
            expected[i, m] = (1 - 0.6 * explained) * losses[i, m]
    found = boosting_losses(*map(torch.tensor, (losses, logits, y)), SOME, 0.6)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_output_is_the_sum_over_what_is_present():
    method = Reconboost(Spec(VECTORS, CLASSES)).eval()
    with torch.no_grad():
        method.rate.fill_(1.7)
    prediction = method(batch_of(4, SOME))
    expected = 1.7 * (prediction.opinions * SOME[:, :, None]).sum(1)
    torch.testing.assert_close(prediction.output, expected)


def test_each_phase_has_its_own_loss():
    method = Reconboost(Spec(VECTORS, CLASSES)).eval()
    batch = batch_of(4, SOME)
    prediction = method(batch)
    alone = [method.objective(prediction, batch, Step(phase=f"boost {name}")) for name in VECTORS]
    together = method.objective(prediction, batch, Step(phase="all"))
    outside = method.objective(prediction, batch, Step())
    assert [list(losses) for losses in (*alone, together, outside)] == [["experts"]] * 2 + [
        ["task"],
        ["task", "experts"],
    ]
    assert outside["experts"].item() == pytest.approx(sum(losses["experts"].item() for losses in alone), rel=1e-5)


class Watch(Callback):
    """Which encoders moved in each phase."""

    def __init__(self):
        self.moved, self.before = [], {}

    def _now(self, run):
        return {name: next(encoder.parameters()).detach().clone() for name, encoder in run.module.encoders.items()}

    def on_phase_start(self, run):
        self.before = self._now(run)

    def on_step_end(self, run):
        moved = {name for name, value in self._now(run).items() if not torch.equal(value, self.before[name])}
        if not self.moved or self.moved[-1][0] != run.phase:
            self.moved.append((run.phase, moved))
        else:
            self.moved[-1][1].update(moved)


def test_turns_move_one_expert_and_the_correction_all():
    data, watch = load_data("digits"), Watch()
    settings = {"epochs": 16, "batch_size": 32, "device": "cpu", "callbacks": [watch]}
    model = Model.fit("reconboost", data.train[:64], data.validation[:32], trainer=Trainer(**settings))
    everyone = set(data.train.names)
    expected = []
    for name in data.train.names:
        expected += [(f"boost {name}", {name}), ("all", everyone)]
    assert watch.moved == expected
    assert len(model.logs[0].rows) == 16  # half for turns, half for the sum


def test_a_refit_has_as_many_turns():
    data = load_data("digits")
    asked = [[3] * 16]  # twice round, though 100 epochs are three times
    trainer = Trainer(epochs=100, batch_size=32, device="cpu", refit_steps=asked)
    model = Model.fit("reconboost", data.train[:96], trainer=trainer)
    assert len(model.logs[0].rows) == 16
    assert found_steps(model.logs) == asked
