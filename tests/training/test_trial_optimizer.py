"""Rates of its own for every trial: each learns what torch's AdamW teaches it alone."""

import pytest
import torch

from consilience.core.errors import InputError, TrainingError
from consilience.training.stacked_data import Trials
from consilience.training.stacked_training import train_side_by_side
from consilience.training.training_settings import TrainingSettings
from consilience.training.trial_optimizer import TrialAdamW, TrialRates
from training.test_stacked_training import TRAIN, TRIALS, VALIDATION, made

RATES = TrialRates([0.3, 0.02, 0.004], [0.0, 0.2, 0.05])


def test_every_trial_is_updated_as_by_adamw_of_torch():
    start = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    bias = torch.zeros(3, dtype=torch.float64)  # one number for each trial
    alone = [[start[trial].clone().requires_grad_(), bias[trial].clone().requires_grad_()] for trial in range(3)]
    optimizers = [
        torch.optim.AdamW(own, lr=RATES.lr[trial], weight_decay=RATES.weight_decay[trial])
        for trial, own in enumerate(alone)
    ]
    stacked = [start.clone().requires_grad_(), bias.clone().requires_grad_()]
    together = TrialAdamW(stacked, RATES, base=0.01)

    def loss(weight, shift):
        return ((weight.sin() + shift) ** 2).sum() + weight.prod()

    for step in range(25):
        factor = 1 - step / 30  # a schedule acts on all
        together.param_groups[0]["lr"] = 0.01 * factor
        for trial, optimizer in enumerate(optimizers):
            optimizer.param_groups[0]["lr"] = RATES.lr[trial] * factor
            optimizer.zero_grad()
            loss(*alone[trial]).backward()
            optimizer.step()
        together.zero_grad()
        torch.stack([loss(stacked[0][trial], stacked[1][trial]) for trial in range(3)]).sum().backward()
        together.step()
    for place, weight in enumerate(stacked):
        torch.testing.assert_close(weight, torch.stack([own[place] for own in alone]), atol=1e-6, rtol=1e-5)
    assert not torch.allclose(start, stacked[0], atol=0.1)


@pytest.mark.parametrize("patience", [None, 2])
def test_training_together_is_training_alone_with_the_same_rates(patience):
    """Also where trials end at different times and leave the stack."""
    settings = {"epochs": 12, "batch_size": 10, "patience": patience, "seed": 5, "schedule": "cosine"}
    together = train_side_by_side(made(), TRAIN, VALIDATION, TrainingSettings(**settings), rates=RATES)
    for trial, method in enumerate(made()):
        own = [data.only(torch.tensor([trial])) for data in (TRAIN, VALIDATION)]
        rates = {"optimizer": "adamw", "lr": RATES.lr[trial], "weight_decay": RATES.weight_decay[trial]}
        alone = train_side_by_side([method], *own, TrainingSettings(**settings, **rates))
        torch.testing.assert_close(together.losses[trial], alone.losses[0], atol=1e-5, rtol=1e-4)
        assert together.epochs[trial] == alone.epochs[0]
        for name, weight in alone.trained(0).state_dict().items():
            torch.testing.assert_close(together.trained(trial).state_dict()[name], weight, atol=1e-4, rtol=1e-3)
    assert patience is None or len(set(together.epochs.tolist())) > 1


def test_samples_are_renewed_in_every_epoch():
    seen = []

    def renew(epoch, going, train):
        seen.append((epoch, going))
        shift = float(epoch)
        return Trials({name: value + shift for name, value in TRAIN.values.items()}, TRAIN.y)

    settings = TrainingSettings(epochs=3, batch_size=24, patience=None, optimizer="sgd", lr=1e-12)
    together = train_side_by_side(made(), TRAIN, VALIDATION, settings, renew=renew)
    assert seen == [(epoch, [0, 1, 2]) for epoch in range(3)]
    for trial, method in enumerate(made()):
        for epoch, row in enumerate(together.logs[trial].rows):
            batch = {name: value[trial] + epoch for name, value in TRAIN.values.items()}
            moved = Trials({name: value[None] for name, value in batch.items()}, TRAIN.y[[trial]])
            alone = train_side_by_side([method], moved, moved, TrainingSettings(epochs=1, optimizer="sgd", lr=1e-12))
            assert row["task"] == pytest.approx(alone.logs[0].rows[0]["validation_loss"], rel=1e-4)


def test_a_trial_that_diverges_is_an_error_or_is_kept_as_lost():
    settings = TrainingSettings(epochs=4, batch_size=24, patience=None)
    broken = TrialRates([1e30, 0.02, 0.02], [1e30, 0.0, 0.0])
    with pytest.raises(TrainingError, match=r"the loss of trials \[0\] was never finite"):
        train_side_by_side(made(), TRAIN, VALIDATION, settings, rates=broken)
    kept = train_side_by_side(made(), TRAIN, VALIDATION, settings, rates=broken, keep_lost=True)
    assert kept.losses.isinf().tolist() == [True, False, False]
    for name, weight in made()[0].state_dict().items():
        assert torch.equal(kept.weights[name][0], weight)
    sound = train_side_by_side(made(), TRAIN, VALIDATION, settings, rates=TrialRates([0.02] * 3, [0.0] * 3))
    torch.testing.assert_close(kept.losses[1:], sound.losses[1:])


def test_rates_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="one weight decay for each learning rate, got 1 for 2"):
        TrialRates([0.1, 0.2], [0.0])
    with pytest.raises(InputError, match=r"each lr must be a finite number above 0, got 0\.0"):
        TrialRates([0.1, 0.0], [0.0, 0.0])
    with pytest.raises(InputError, match="each weight_decay must be a finite number at least 0, got nan"):
        TrialRates([0.1], [float("nan")])
    with pytest.raises(InputError, match=f"one learning rate for each of {TRIALS} trials, got 2"):
        train_side_by_side(made(), TRAIN, VALIDATION, rates=RATES.only([0, 1]))
    with pytest.raises(InputError, match=r"rates for 3 models, but stacked weights have the shape \[2, 4\]"):
        TrialAdamW([torch.zeros(2, 4)], RATES, base=0.1)
