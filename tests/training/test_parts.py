"""Learning rates, weight decay and layers by part, against AdamW computed by hand."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from consilience import methods
from consilience.core.errors import InputError, UnknownNameError
from consilience.core.samples import Modality, Samples
from consilience.core.targets import Task
from consilience.encoders import build_encoder, encoder_layers, own_transforms
from consilience.methods import Spec
from consilience.preparation import Preparation
from consilience.training import Phase, Trainer
from consilience.training.part_names import check_part_names, within_modalities
from consilience.training.parts import depths_of, parameter_groups, parts_of
from consilience.training.training_settings import TrainingSettings, resolve
from tiny_models import tiny_bert, tiny_vit, tiny_xlnet
from training.toys import make_samples, prepare, weights

SAMPLES = make_samples(48)
PREPARATION = prepare(SAMPLES)
PLAIN = {name: {"name": "mlp", "hidden": [8, 6], "dropout": 0.0} for name in "ab"}


def concat(name="concat", encoders=PLAIN):
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        own = {"dropout": 0.0} if name == "concat" else {}
        return methods.build(name, Spec(PREPARATION.modalities, PREPARATION.task, encoders), own)


def adamw_by_hand(method, rates, decays, steps, scale=lambda step: 1.0):
    """AdamW (Loshchilov and Hutter 2019, algorithm 2) on all samples at once, in 64 bits."""
    method = copy.deepcopy(method).double().train()
    batch = PREPARATION.batch(SAMPLES, dtype=torch.float64)
    first = {name: torch.zeros_like(weight) for name, weight in method.named_parameters()}
    second = {name: torch.zeros_like(weight) for name, weight in method.named_parameters()}
    for step in range(1, steps + 1):
        losses = method.objective(method(batch), batch, methods.Step())
        method.zero_grad()
        sum(losses.values()).backward()
        with torch.no_grad():
            for name, weight in method.named_parameters():
                rate = rates(name) * scale(step - 1)
                weight *= 1 - rate * decays(name)
                first[name].lerp_(weight.grad, 0.1)
                second[name].lerp_(weight.grad**2, 0.001)
                corrected = first[name] / (1 - 0.9**step), second[name] / (1 - 0.999**step)
                weight -= rate * corrected[0] / (corrected[1].sqrt() + 1e-8)
    return {name: weight.detach().float() for name, weight in method.named_parameters()}


def train(method, phases=None, **settings):
    given = {"epochs": 4, "batch_size": len(SAMPLES), "optimizer": "adamw", "device": "cpu", **settings}
    Trainer(PREPARATION, **given).run(method, SAMPLES, phases=phases)
    return weights(method)


def is_of(name, part):
    return name.startswith({"a": "encoders.each.0.", "b": "encoders.each.1.", "head": "head."}[part])


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_every_part_moves_as_adamw_with_its_own_rate_and_decay(schedule):
    rates = {"a": 3e-3, "head": 2e-2}
    decays = {"b": 0.5, "head": 0.1}
    method = concat()
    expected = adamw_by_hand(
        method,
        lambda name: next((rate for part, rate in rates.items() if is_of(name, part)), 1e-3),
        lambda name: next((decay for part, decay in decays.items() if is_of(name, part)), 0.0),
        4,
        (lambda step: 0.5 * (1 + np.cos(np.pi * step / 4))) if schedule == "cosine" else lambda step: 1.0,
    )
    found = train(method, lr=rates, weight_decay=decays, schedule=schedule)
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, atol=2e-5, rtol=1e-4)


def test_equal_rates_by_part_train_as_one_rate():
    one = train(concat(), lr=0.01, weight_decay=0.1)
    by_part = {"a": 0.01, "b": 0.01, "fusion": 0.01, "head": 0.01}
    other = train(concat(), lr=by_part, weight_decay=dict.fromkeys([*by_part], 0.1))
    for name, weight in one.items():
        torch.testing.assert_close(other[name], weight)


def test_rest_is_what_is_not_named():
    named = train(concat(), lr={"a": 1e-3, "rest": 0.02})
    every = train(concat(), lr={"a": 1e-3, "b": 0.02, "fusion": 0.02, "head": 0.02})
    assert all(torch.equal(named[name], every[name]) for name in named)


def test_the_rate_of_a_phase_keeps_the_ratios():
    phase = train(concat(), phases=[Phase(lr=2e-3)], lr={"a": 1e-4, "rest": 1e-3})
    whole = train(concat(), lr={"a": 2e-4, "rest": 2e-3})
    for name, weight in whole.items():
        torch.testing.assert_close(phase[name], weight)


def test_each_layer_has_the_next_ones_rate_times_the_decay():
    method = concat()
    layers = encoder_layers(method.encoders["a"])
    place = {
        name: f"encoders.each.0.stages.{stage}." for name, stage in zip(range(len(layers)), method.encoders["a"].stages)
    }
    assert len(layers) > 1

    def rate(name):
        own = next((layer for layer, prefix in place.items() if name.startswith(prefix)), None)
        return 0.01 if own is None else 0.01 * 0.3 ** (len(layers) - 1 - own)

    expected = adamw_by_hand(method, rate, lambda name: 0.0, 3)
    found = train(method, lr=0.01, layer_decay={"a": 0.3}, epochs=3)
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, atol=2e-5, rtol=1e-4)


def test_layer_decay_as_a_number_is_for_pretrained_encoders():
    groups = parameter_groups(concat(), weights(concat()), resolve(TrainingSettings(layer_decay=0.5, lr=0.01), 48))
    assert {group["rate"] for group in groups} == {0.01}


@pytest.mark.parametrize(
    "method", ["late", "concat", "gradient-blend", "i2moe", "pro:concat", "simbamm", "mmtm", "tmc"]
)
def test_every_parameter_belongs_to_one_part(method):
    built = concat(method)
    parts = parts_of(built)
    assert parts.keys() == dict(built.named_parameters()).keys()
    assert {"a", "b"} <= set(parts.values()) <= {"a", "b", "fusion", "head"}
    by_place = {id(weight) for name in "ab" for weight in built.encoders[name].parameters()}
    for name, weight in built.named_parameters():
        assert (parts[name] in "ab") == (id(weight) in by_place), name


def test_experts_alone_have_their_modality_and_a_head():
    assert set(parts_of(concat("unimodal:a")).values()) == {"a", "head"}


def pretrained(method, model, folder, present=None, **settings):
    """A method on four texts, encoded by a tiny pretrained model, and as many vectors."""
    texts = np.array(["a red square", "a green circle", "small mark", "the left thing"])
    samples = Samples.of(
        {"text": texts, "size": np.random.default_rng(0).normal(size=(4, 2))}, np.arange(4) % 2, present=present
    )
    encoders = {"text": {"name": "pretrained", "model": model(folder), "freeze": False, **settings}}
    preparation = Preparation.fit(samples, Task.of_labels(samples.y), own_transforms(samples.modalities, encoders))
    return methods.build(method, Spec(preparation.modalities, preparation.task, encoders)), samples, preparation


@pytest.mark.parametrize("method", ["concat", "mag", "mmbt"])
def test_a_bert_that_a_method_takes_apart_is_still_the_encoder_of_its_text(method, tmp_path):
    built, _, _ = pretrained(method, tiny_bert, tmp_path)
    parts, depths = parts_of(built), depths_of(built)
    of_bert = {name for name in parts if "word_embeddings" in name or ".layer" in name or "embed" in name}
    assert of_bert
    assert all(parts[name] == "text" for name in of_bert)
    for name in of_bert:
        layer = next((number for number in (1, 2) if f".layer{number}." in name), 0)
        assert depths[name] == (layer, 2), name


def test_layers_of_a_model_that_is_one_stage(tmp_path):
    built, _, _ = pretrained("concat", tiny_xlnet, tmp_path)
    layers = {name: depth for name, depth in depths_of(built).items() if ".layer." in name}
    assert set(layers.values()) == {(1, 2), (2, 2)}
    assert depths_of(built)["encoders.each.0.stages.model.word_embedding.weight"] == (0, 2)


def test_the_norm_after_the_last_layer_belongs_to_it(tmp_path):
    image = Modality("image", "image", (3, 16, 16))
    layers = encoder_layers(build_encoder(image, {"name": "pretrained", "model": tiny_vit(tmp_path)}))
    assert [len(group) for group in layers] == [0, 1, 2]
    assert isinstance(layers[2][1], nn.LayerNorm)


def test_names_are_checked_before_training():
    with pytest.raises(UnknownNameError, match="unknown part 'heads': did you mean 'head'"):
        train(concat(), lr={"heads": 0.1})
    with pytest.raises(UnknownNameError, match=r"unknown part 'fusion'.*layer_decay"):
        train(concat(), layer_decay={"fusion": 0.1})
    with pytest.raises(UnknownNameError, match=r"unknown part 'rest'.*freeze"):
        train(concat(), freeze={"rest": 1})
    with pytest.raises(InputError, match="both a modality and a part"):
        check_part_names({"lr": {"head": 0.1}}, ["head", "foot"])
    with pytest.raises(InputError, match="tuning draws one learning rate"):
        check_part_names({"lr": {"a": 0.1}}, ["a"], tuned=True)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"lr": {"a": 0}}, "lr must be a number > 0, a mapping, each value a number > 0 or None, got"),
        ({"lr": {}}, "lr is a mapping without entries"),
        ({"weight_decay": {"a": -1}}, "weight_decay must be"),
        ({"layer_decay": 1.5}, "layer_decay must be"),
        ({"layer_decay": 0}, "layer_decay must be"),
    ],
)
def test_bad_values_are_refused(settings, said):
    with pytest.raises(InputError, match=said):
        TrainingSettings(**settings)


def test_sets_without_a_modality_are_trained_without_what_is_said_of_it():
    given = {"lr": {"a": 0.1, "head": 0.2}, "freeze": {"c": 2}, "epochs": 3}
    assert within_modalities(given, ["b"]) == {"lr": {"head": 0.2}, "epochs": 3}


def test_what_is_resolved_twice_stays_as_it_was():
    settings = TrainingSettings(lr={"a": 0.1, "rest": 0.2}, weight_decay={"a": 0.3})
    once = resolve(settings, 100)
    assert resolve(once, 100) == once
    assert (once.lr, once.weight_decay, once.lr_by_part, once.weight_decay_by_part) == (
        0.2,
        0.0,
        {"a": 0.1},
        {"a": 0.3},
    )
    assert once.settings()["lr"] == {"a": 0.1, "rest": 0.2}


@pytest.mark.parametrize("given", [{"freeze": {"text": 1}}, {"lr": {"text": 1e-5, "head": 1e-3}}])
def test_an_encoder_that_is_fixed_for_good_is_not_unfrozen_in_silence(given, tmp_path):
    fixed, samples, preparation = pretrained("concat", tiny_bert, tmp_path, freeze=True)
    with pytest.raises(InputError, match=r"given for 'text', whose weights are all fixed: set freeze=False or lora"):
        Trainer(preparation, epochs=2, device="cpu", **given).run(fixed, samples)
    adapted, *_ = pretrained("concat", tiny_bert, tmp_path, freeze=True, lora=2)
    Trainer(preparation, epochs=2, device="cpu", **given).run(adapted, samples)
