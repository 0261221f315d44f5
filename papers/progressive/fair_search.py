"""Equal budgets: as many trials of rates, place, mode and passes for every model, all judged on validation pairs.

Trials of one form (method and settings) are trained side by side, with those of all degrees of dependence.
"""

import time
from functools import cache

import numpy as np
import torch

from consilience.core.seeding import seeded
from consilience.methods import Spec, build, task_losses
from consilience.methods.fusion.gradient_blending import blending_weights
from consilience.methods.progressive.looped_encoder import END
from consilience.training.stacked_predictions import evaluate
from consilience.training.stacked_training import train_side_by_side
from consilience.training.training_settings import TrainingSettings
from consilience.training.trial_optimizer import TrialRates

# Seeds of trials lie beyond those of the models that are compared.
_TUNING_SEED = 1000
_BLEND_RATE = 3e-3  # of the short trainings that find the weights of gradient-blend's heads


def draw_trials(base, settings, forms=None):
    """The settings of every trial of a base method and its variants: rates, and the form of the loop.

    Rates are drawn in as many strata as there are trials; every form of a loop gets rates from all of their range. All
    variants have the same trials; the base method ignores the form.
    """
    random = np.random.default_rng([20260, *base.encode()])
    count, forms = settings["trials"], forms or draw_forms(base, settings)
    order = random.permutation(count)

    def spread(limits, strata):
        low, high = np.log(limits)
        return np.exp(low + (high - low) * (strata + random.uniform(size=count)) / count)

    rates, decays = spread(settings["lr"], np.arange(count)), spread(settings["weight_decay"], order)
    return [
        {"lr": float(rate), "weight_decay": float(decay), "form": forms[number % len(forms)]}
        for number, (rate, decay) in enumerate(zip(rates, decays))
    ]


def draw_forms(base, settings):
    """Some of all places, modes and numbers of passes: those of one base method are the same for all variants."""
    usual = [None, "conv2", "conv3"] + ([] if base == "mfas" else ["conv4"])  # MFAS reads no fourth stage
    every = [
        {"into": place, "mode": mode, "steps": steps}
        for place in settings.get("places", {}).get(base, usual)
        for mode in ("add", "concat")
        for steps in (2, 3)
        if (place, mode) != (END, "concat")  # no layer reads what is behind the last stage
    ]
    random = np.random.default_rng([20261, *base.encode()])
    return [every[number] for number in random.permutation(len(every))[: settings["forms"]]]


def form_of(variant, trial):
    """The name of the family of methods and the method's settings that a trial stands for."""
    return ("", {}) if variant == "base" else (f"{variant}:", trial["form"])


def tune(base, variant, pairs, settings):
    """The validation loss of every trial at every degree of dependence: `[trial, dependence]`."""
    trials, degrees = draw_trials(base, settings), settings["dependence"]
    losses = np.full((len(trials), len(degrees)), np.inf)
    groups = {}
    for number, trial in enumerate(trials):
        groups.setdefault(str(form_of(variant, trial)), []).append(number)
    for members in groups.values():
        asked = [(number, place) for number in members for place in range(len(degrees))]
        trained = train_models(
            base,
            form_of(variant, trials[members[0]]),
            [(degrees[place], _TUNING_SEED) for _, place in asked],
            [trials[number] for number, _ in asked],
            pairs,
            settings,
            starts=[_TUNING_SEED + number for number, _ in asked],
        )
        for (number, place), loss in zip(asked, trained.losses.tolist()):
            losses[number, place] = loss
    return losses


def compare_seeds(base, variant, losses, seeds, pairs, settings):
    """Accuracy and log-loss on test pairs, clean and noisy, of the best trial at each degree, trained with new seeds.

    losses: what `tune` returned. Returns arrays by name, each `[dependence, seed]`, and what was chosen at each degree.
    """
    trials, degrees = draw_trials(base, settings), settings["dependence"]
    chosen = losses.argmin(axis=0)
    names = [f"{what}/{condition}" for condition in ("clean", "noise") for what in ("accuracy", "log-loss")]
    arrays = {name: np.zeros((len(degrees), len(seeds))) for name in names}
    about = [{} for _ in degrees]
    groups = {}
    for place, number in enumerate(chosen):
        groups.setdefault(str(form_of(variant, trials[number])), []).append(place)
    for places in groups.values():
        began = time.perf_counter()
        asked = [(place, seed) for place in places for seed in seeds]
        models = [(degrees[place], seed) for place, seed in asked]
        rates = [trials[chosen[place]] for place, _ in asked]
        form = form_of(variant, rates[0])
        trained = train_models(base, form, models, rates, pairs, settings, starts=[seed for _, seed in models])
        for condition, test in (("clean", pairs.test(models)), ("noise", _corrupted(pairs.test(models), settings))):
            scores = torch.cat(evaluate(trained.method, trained.weights, test, _score), dim=-1).mean(dim=-1).cpu()
            for (place, seed), (right, loss) in zip(asked, scores.tolist()):
                arrays[f"accuracy/{condition}"][place, seeds.index(seed)] = right
                arrays[f"log-loss/{condition}"][place, seeds.index(seed)] = loss
        parameters = sum(parameter.numel() for parameter in trained.method.parameters())
        seconds = (time.perf_counter() - began) / len(places)
        for place in places:
            trial = {name: trials[chosen[place]][name] for name in ("lr", "weight_decay")}
            about[place] = {**trial, "form": form[1], "parameters": parameters, "seconds": seconds}
    return arrays, about


def train_models(base, form, models, trials, pairs, settings, *, starts):
    """Train one model for each dependence and seed in `models`, with the rates of its trial.

    starts: the seed of each model's first weights.
    """
    family, options = form
    spec = Spec(pairs.modalities, pairs.task, {})
    methods = []
    for start in starts:
        with seeded(start):
            methods.append(build(f"{family}{base}", spec, options))
    if base == "gradient-blend":
        weights = find_blend(pairs, tuple(settings["dependence"]), settings["batch_size"])
        for method, (dependence, _) in zip(methods, models):
            method.blend.copy_(torch.tensor(weights[dependence]))
    torch.manual_seed(starts[0])
    return train_side_by_side(
        methods,
        pairs.train(models),
        pairs.validation(models),
        training_of(settings["epochs"], settings["batch_size"]),
        seeds=starts,
        augmenter=pairs.augmenter,
        rates=TrialRates([trial["lr"] for trial in trials], [trial["weight_decay"] for trial in trials]),
        renew=pairs.renewing(models),
        keep_lost=True,
    )


def training_of(epochs, batch_size):
    """Settings of every training: a cosine schedule, gradients cut to a norm of 1; the optimizer is AdamW."""
    return TrainingSettings(epochs=epochs, batch_size=batch_size, patience=None, schedule="cosine", clip=1.0)


@cache
def find_blend(pairs, degrees, batch_size):
    """The weights of gradient-blend's heads, by its rule, at each degree: dependence → one for each head.

    Each head of the base method is trained alone for one epoch. They are found once, with one rate, and are those of
    all variants and trials: a variant that weighs its heads differently would have another loss.
    """
    heads = 3
    models = [(dependence, _TUNING_SEED) for dependence in degrees for _ in range(heads)]
    spec = Spec(pairs.modalities, pairs.task, {})
    methods = []
    for number in range(len(models)):
        with seeded(_TUNING_SEED):
            method = build("gradient-blend", spec, {})
        method.blend.zero_()[number % heads] = 1.0
        methods.append(method)
    trained = train_side_by_side(
        methods,
        pairs.train(models),
        pairs.validation(models),
        training_of(1, batch_size),  # of several epochs, not the last would be kept, but the best of the joint head
        seeds=[_TUNING_SEED] * len(models),
        augmenter=pairs.augmenter,
        rates=TrialRates([_BLEND_RATE] * len(models), [0.0] * len(models)),
        renew=pairs.renewing(models),
    )
    start = {name: weight[None].expand(len(models), *weight.shape) for name, weight in methods[0].state_dict().items()}
    start = {name: weight.to(trained.losses.device) for name, weight in start.items()}
    # Samples of the first epoch that is not learned from stand for those that were learned from, with their noise.
    learned = pairs.renewing(models)(0, list(range(len(models))), pairs.train(models)).rows(slice(0, 2048))
    learned = pairs.augmenter.apply(None, learned, None, None)
    held = pairs.validation(models).rows(slice(0, 2048))
    measured = {}
    for when, weights in (("before", start), ("after", trained.weights)):
        for which, data in (("train", learned), ("held", held)):
            pieces = evaluate(trained.method, weights, data, _head_losses)
            losses = torch.stack(pieces).mean(dim=0).cpu().view(len(degrees), heads, heads)
            measured[which, when] = losses.diagonal(dim1=1, dim2=2)  # of each head where it was trained
    names = [("train", "before"), ("held", "before"), ("train", "after"), ("held", "after")]
    return {
        dependence: blending_weights(*(measured[name][place] for name in names)).tolist()
        for place, dependence in enumerate(degrees)
    }


def _head_losses(method, prediction, batch):
    return method.head_losses(prediction, batch)


def _score(method, prediction, batch):
    """Whether each sample is right, and its log-loss: `[2, batch]`."""
    loss = task_losses(method.task, prediction.output, batch)
    return torch.stack([(prediction.output.argmax(dim=1) == batch.y).to(loss), loss])


def _corrupted(test, settings):
    """Test samples with Gaussian noise on standardised values, on each modality of each sample by chance one half."""
    values = {}
    for number, (name, clean) in enumerate(test.values.items()):
        generator = torch.Generator(clean.device).manual_seed(number)
        hit = torch.rand(clean.shape[1], device=clean.device, generator=generator) < 0.5
        noise = torch.randn(clean.shape[1:], device=clean.device, generator=generator)
        values[name] = clean + settings["test_noise"] * noise * hit.view(-1, *[1] * (clean.ndim - 2))
    return type(test)(values, test.y)
