"""The same test on the synthetic regression, where a loop is known to help: equal budgets, three degrees of dependence.

Nets are those of experiment B.1: two layers a modality, features side by side, a linear head. Every draw has matrices
and samples of its own; the dependence is the correlation of the noises of both modalities.
"""

import numpy as np
import torch

from consilience.core.modalities import Modality
from consilience.core.seeding import seeded
from consilience.core.targets import Task
from consilience.data import load_data
from consilience.methods import Spec, build
from consilience.training.stacked_data import Trials
from consilience.training.stacked_training import train_side_by_side
from consilience.training.training_settings import TrainingSettings
from consilience.training.trial_optimizer import TrialRates

NAMES = ("x1", "x2")
_TUNING_SEED = 1000  # of the first draw that settings are chosen on; those that are compared lie below
_TEST = 5000


def measure(variant, search, settings, seeds, device):
    """Choose the best trial at each degree of dependence, then measure it on new draws.

    search: the module `fair_search`. Returns test errors `[dependence, seed]` in units of the target's variance, and
    what was chosen at each degree.
    """
    degrees, forms = settings["dependence"], settings["forms"]
    trials = search.draw_trials("synthetic", settings, forms)
    tuning = [_TUNING_SEED + number for number in range(settings["tuning_draws"])]
    losses = np.full((len(trials), len(degrees)), np.inf)
    for members in _by_form(search, variant, trials, range(len(trials))):
        asked = [(number, place, seed) for number in members for place in range(len(degrees)) for seed in tuning]
        trained, _ = _train(
            search, variant, [(trials[number], degrees[place], seed) for number, place, seed in asked], settings, device
        )
        found = trained.losses.cpu().numpy().reshape(len(members), len(degrees), len(tuning)).mean(axis=2)
        losses[list(members)] = found
    chosen, errors = losses.argmin(axis=0), np.zeros((len(degrees), len(seeds)))
    for places in _by_form(search, variant, [trials[number] for number in chosen], range(len(degrees))):
        models = [(trials[chosen[place]], degrees[place], seed) for place in places for seed in seeds]
        trained, test = _train(search, variant, models, settings, device)
        errors[list(places)] = trained.measure(test).cpu().numpy().reshape(len(places), len(seeds))
    return errors, [trials[number] for number in chosen]


def _by_form(search, variant, trials, numbers):
    """Groups of numbers whose trials have one form."""
    groups = {}
    for number in numbers:
        groups.setdefault(str(search.form_of(variant, trials[number])), []).append(number)
    return list(groups.values())


def _train(search, variant, models, settings, device):
    """Train one model for each trial, dependence and seed; returns them with their test samples."""
    family, options = search.form_of(variant, models[0][0])
    encoder = {"name": "mlp", "hidden": [settings["hidden"]] * 2, "dropout": 0.0, "normalise": False}
    modalities = {name: Modality(name, "vector", (settings["d"],)) for name in NAMES}
    spec = Spec(modalities, Task.of_numbers(np.array([-1.0, 1.0])), dict.fromkeys(modalities, encoder))
    methods = []
    for _, _, seed in models:
        with seeded(seed):
            methods.append(build(f"{family}concat", spec, {"width": None, **options}))
    train, validation, test = (part.to(device) for part in draw([model[1:] for model in models], settings))
    training = TrainingSettings(
        epochs=settings["epochs"], batch_size=settings["batch_size"], patience=None, schedule="cosine", clip=1.0
    )
    rates = TrialRates([trial["lr"] for trial, _, _ in models], [trial["weight_decay"] for trial, _, _ in models])
    torch.manual_seed(0)
    return train_side_by_side(methods, train, validation, training, rates=rates, keep_lost=True), test


def draw(asked, settings):
    """Training, validation and test samples for each dependence and seed, standardised by the training samples."""
    n, drawn = settings["n"], {}
    for dependence, seed in dict.fromkeys(asked):
        options = {name: settings[name] for name in ("d", "eta", "sigma2")}
        data = load_data("progressive-synthetic", n=2 * n + _TEST, dependence=dependence, seed=seed, **options)
        parts = [data.samples["x1"], data.samples["x2"], data.y[:, None].astype(np.float32)]
        drawn[dependence, seed] = [(part - part[:n].mean(axis=0)) / part[:n].std(axis=0) for part in parts]
    x1, x2, y = (torch.from_numpy(np.stack([drawn[one][place] for one in asked])) for place in range(3))
    whole = Trials({"x1": x1, "x2": x2}, y)
    # Rows are independent draws, so the first of them are as good a split as any.
    return whole.rows(slice(n)), whole.rows(slice(n, 2 * n)), whole.rows(slice(2 * n, None))
