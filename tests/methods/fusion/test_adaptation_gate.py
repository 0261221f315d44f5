import numpy as np
import pytest
import torch

from consilience import methods
from consilience.core.batches import Batch
from consilience.core.errors import InputError, UnsupportedError
from consilience.core.samples import Modality, Samples
from consilience.core.targets import Task
from consilience.encoders import own_transforms
from consilience.preparation import Preparation
from tiny_models import WORDS, tiny_bert, tiny_xlnet
from toy_batches import CLASSES, VECTORS

MODALITIES = {
    "title": Modality("title", "tokens", (4,), vocabulary=9),
    "sight": Modality("sight", "vector", (3,)),
    "sound": Modality("sound", "sequence", (4, 2)),
}
SMALL = {"title": {"name": "transformer", "width": 6, "heads": 2, "layers": 2}, "sound": {"name": "gru", "hidden": 5}}


def build(modalities=MODALITIES, encoders=SMALL, **settings):
    torch.manual_seed(0)
    return methods.build("mag", methods.Spec(modalities, CLASSES, encoders), settings).eval()


def mixed_batch(present=((True,) * 3,) * 3, steps=(4, 1, 3)):
    """Three titles of 4, 1 and 2 words."""
    torch.manual_seed(1)
    there = torch.tensor(present)
    values = {"title": torch.randint(1, 9, (3, 4)), "sight": torch.randn(3, 3), "sound": torch.randn(3, 4, 2)}
    lengths = {"title": torch.tensor([4, 1, 2]), "sound": torch.tensor(steps)}
    for column, name in enumerate(values):
        values[name][~there[:, column]] = 0
        if name in lengths:
            lengths[name][~there[:, column]] = 0
    y = torch.zeros(3, dtype=torch.int64)
    return Batch(values, there, index=torch.arange(3), weight=torch.ones(3), lengths=lengths, y=y)


def gate_inputs(method, batch):
    seen = {}
    handle = method.fusion.gate.register_forward_hook(lambda _, given, output: seen.update(given=given, output=output))
    prediction = method(batch)
    handle.remove()
    return prediction, *seen["given"][:2], seen["output"]


def test_the_gate_against_the_formula_word_by_word():
    method, batch = build(beta=0.2), mixed_batch([[True, True, True], [True, False, True], [True, True, True]])
    _, words, sides, output = gate_inputs(method, batch)
    gate = method.fusion.gate
    linear = {
        (kind, name): (layer.weight.detach().numpy(), layer.bias.detach().numpy())
        for kind, layers in (("gate", gate.gates), ("shift", gate.shifts))
        for name, layer in layers.items()
    }
    scaled = []
    for row in range(3):
        for part in range(4):
            t, shift = words[row, part].detach().numpy(), np.zeros(6)
            for name in ("sight", "sound"):
                v = sides[name][row, part].detach().numpy()
                (u, b), (w, c) = linear["gate", name], linear["shift", name]
                if batch.present_in(name)[row]:
                    shift = shift + np.maximum(u @ np.concatenate([v, t]) + b, 0) * (w @ v + c)
            alpha = min(0.2 * np.linalg.norm(t) / np.linalg.norm(shift), 1)
            scaled.append(alpha < 1)
            moved = t + alpha * shift
            expected = (moved - moved.mean()) / np.sqrt(moved.var() + 1e-5)
            np.testing.assert_allclose(output[row, part].detach(), expected, atol=1e-5)
    assert 0 < sum(scaled) < len(scaled)


def test_steps_go_along_with_words_where_there_are_as_many_of_both():
    method, batch = build(), mixed_batch(steps=(4, 1, 3))
    prediction, _, sides, _ = gate_inputs(method, batch)
    sound = prediction.features["sound"]
    torch.testing.assert_close(sides["sound"][:2], sound.sequence[:2])
    torch.testing.assert_close(sides["sound"][2], sound.pooled[2].expand(4, -1))
    torch.testing.assert_close(sides["sight"], prediction.features["sight"].pooled[:, None].expand(-1, 4, -1))


def test_without_the_others_the_host_is_a_transformer_with_one_more_norm():
    """β has no say where nothing shifts: the whole chain, stage by stage."""
    method, batch = build(layer=1), mixed_batch([[True, False, False]] * 3)
    host, gate = method.fusion.reader.encoder, method.fusion.gate
    hidden = method.encoders["title"](batch["title"], batch.lengths["title"]).sequence
    mask = torch.arange(4) < batch.lengths["title"][:, None]
    hidden = host.advance("layer1", host.stages["embed"](hidden), mask)
    hidden = host.advance("layer2", gate.norm(hidden), mask)
    torch.testing.assert_close(method(batch).joint, host.finish(hidden, mask).pooled)


def test_samples_do_not_see_what_they_lack_and_are_read_without_words():
    method = build()
    some = mixed_batch([[True, True, True], [False, True, False], [False, True, True]])
    together = method(some).output
    for row in range(3):
        torch.testing.assert_close(method(some.select(torch.tensor([row]))).output[0], together[row])
    for name in some.names:
        some.values[name][~some.present_in(name)] = 7
    torch.testing.assert_close(method(some).output, together)
    some.values["sight"] += 1
    assert ((method(some).output - together).abs().amax(1) > 1e-4).all()


def test_the_host_is_chosen_or_found():
    assert build().fusion.host == "title"
    assert build(host="sound").fusion.host == "sound"
    sequences = {name: MODALITIES[name] for name in ("sight", "sound")}
    method = build(sequences, {})
    assert method.fusion.host == "sound"
    assert list(method.encoders["sound"].stages) == ["project"]
    with pytest.raises(UnsupportedError, match="time steps"):
        build(VECTORS, {})
    with pytest.raises(InputError, match="'sight' is neither"):
        build(host="sight")
    with pytest.raises(InputError, match="modality 'titel'"):
        build(host="titel")


def test_an_encoder_that_cannot_be_taken_apart_stays_whole():
    method = build(encoders={"title": {"name": "gru", "hidden": 5}})
    batch = mixed_batch()
    prediction, words, _, output = gate_inputs(method, batch)
    torch.testing.assert_close(words, prediction.features["title"].sequence)
    torch.testing.assert_close(prediction.joint[1], output[1, 0])
    with pytest.raises(InputError, match="layer must be a whole number from 0 to 0"):
        build(encoders={"title": {"name": "gru", "hidden": 5}}, layer=1)


@pytest.mark.parametrize(
    ("setting", "value"), [("beta", 0), ("beta", True), ("layer", -1), ("layer", 3), ("dropout", 1)]
)
def test_bad_settings_are_named(setting, value):
    with pytest.raises(InputError, match=f"{setting} must be"):
        build(**{setting: value})


@pytest.mark.parametrize("model", [tiny_bert, tiny_xlnet])
def test_a_pretrained_model_is_the_host(model, tmp_path):
    """With nothing but text and the gate taken out, it is the pretrained model."""
    texts = np.array([" ".join(WORDS[:count]) for count in (2, 5, 3, 4)])
    samples = Samples.of({"text": texts, "sight": np.random.default_rng(0).normal(size=(4, 3))}, y=np.arange(4) % 2)
    encoders = {"text": {"name": "pretrained", "model": model(tmp_path), "freeze": False}}
    task = Task.of_labels(samples.y)
    preparation = Preparation.fit(samples, task, own_transforms(samples.modalities, encoders))
    spec = methods.Spec(preparation.modalities, task, encoders)
    batch = preparation.batch(samples)
    method = methods.build("mag", spec).eval()
    alone = methods.build("concat", spec.only("text")).encoders["text"].eval()
    method.fusion.gate.forward = lambda words, *_: words
    torch.testing.assert_close(method(batch).joint, alone(batch["text"], batch.lengths["text"]).pooled)

    method = methods.build("mag", spec).eval()
    batch = batch.hiding(torch.tensor([[False, False], [True, False], [False, True], [False, False]]))
    method(batch).output.sum().backward()
    assert method.fusion.gate.shifts["sight"].weight.grad.abs().sum() > 0
    assert next(method.encoders["text"].parameters()).grad.abs().sum() > 0


def test_progressive_fusion_starts_out_as_the_method_itself():
    torch.manual_seed(0)
    base = methods.build("mag", methods.Spec(MODALITIES, CLASSES, SMALL)).eval()
    torch.manual_seed(0)
    looped = methods.build("pro:mag", methods.Spec(MODALITIES, CLASSES, SMALL), {"steps": 3}).eval()
    batch = mixed_batch([[True, True, True], [False, True, True], [True, True, False]])
    assert torch.equal(looped(batch).output, base(batch).output)
