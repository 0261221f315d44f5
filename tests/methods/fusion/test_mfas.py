"""MFAS against its formula, computed with numpy from what the encoders' stages give."""

import numpy as np
import pytest
import torch

from consilience.core.errors import InputError
from consilience.core.samples import Modality
from consilience.encoders import masked_mean
from toy_batches import VECTORS, batch_of
from toy_sequences import MIXED, TIMED, build, check_loop, check_padding_and_company, timed_batch

IMAGES = {"audio": Modality("audio", "image", (1, 64, 64)), "image": Modality("image", "image", (1, 16, 16))}


def level(linear, inputs):
    z = linear.weight.detach().numpy() @ np.concatenate([values.detach().numpy() for values in inputs])
    return np.maximum(z + linear.bias.detach().numpy(), 0)


def test_the_architecture_of_the_paper_against_the_formula():
    method, batch = build("mfas", IMAGES, width=5), batch_of(2, modalities=IMAGES)
    assert method.levels == [{"audio": 4, "image": 2}, {"audio": 5, "image": 3}]
    assert [len(encoder.stages) for encoder in method.encoders.values()] == [5, 3]  # the last would not be read
    means = {}
    for name, encoder in method.encoders.items():
        hidden = batch[name]
        for number, stage in enumerate(encoder.stages.values(), start=1):
            hidden = stage(hidden)
            means[name, number] = hidden.mean((2, 3))
    joint = method(batch).joint.detach()
    for row in range(2):
        first = level(method.fusion.join[0][0], [means["audio", 4][row], means["image", 2][row]])
        inputs = [means["audio", 5][row], means["image", 3][row], torch.from_numpy(first)]
        np.testing.assert_allclose(joint[row], level(method.fusion.join[1][0], inputs), rtol=1e-4, atol=1e-6)


def test_stages_of_sequences_are_averaged_over_real_steps():
    modalities = {"sound": TIMED["sound"], "motion": TIMED["motion"]}
    layers = [{"sound": "layer1"}, {"sound": 2, "motion": 1}]
    encoders = {"sound": {"name": "gru", "hidden": 5, "layers": 3}, "motion": {"name": "gru", "hidden": 4}}
    method, batch = build("mfas", modalities, encoders, layers=layers, width=5), timed_batch(modalities)
    features = method.represent(batch)
    encoder = method.encoders["sound"]
    assert list(encoder.stages) == ["layer1", "layer2"]
    hidden, mask = encoder.start(batch["sound"], batch.lengths["sound"])
    torch.testing.assert_close(features["sound"].stages[1], masked_mean(encoder.advance("layer1", hidden, mask), mask))
    # The last stage that is read is read as the encoder's features: of a GRU, its last state.
    torch.testing.assert_close(features["sound"].stages[2], encoder(batch["sound"], batch.lengths["sound"]).pooled)
    assert [join[0].in_features for join in method.fusion.join] == [5, 5 + 4 + 5]


def test_what_is_missing_gives_zeros():
    method = build("mfas", VECTORS, width=5)
    batch = batch_of(3, [[True, False], [True, True], [False, False]])
    stages = method(batch).features["audio"].stages
    assert all(not given[[0, 2]].any() and given[1].any() for given in stages.values())


def test_samples_are_read_alone_and_without_their_padding():
    check_padding_and_company(build("mfas", MIXED, width=5), MIXED)


def test_a_loop_feeds_back_into_the_encoders():
    check_loop("mfas", MIXED, width=5)


def test_an_encoder_without_stages_is_read_as_it_is():
    method = build("mfas", VECTORS, {"image": {"name": "mlp", "hidden": []}}, width=5)
    assert method.levels == [{"audio": 1}, {"image": 1, "audio": 2}]
    batch = batch_of(3)
    assert torch.equal(method(batch).features["image"].stages[1], batch["image"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"layers": []}, "layers must be a list with a mapping modality → stage for each level, got \\[\\]"),
        ({"layers": {"image": 1}}, "layers must be a list"),
        ({"layers": [{}]}, "a level of layers must be a mapping"),
        ({"layers": [{"imag": 1}]}, "imag"),
        ({"layers": [{"image": 1}]}, "'audio' is read at none"),
        ({"layers": [{"image": 3, "audio": 1}]}, "'image' has stages 1 to 2 \\(block1, block2\\), got 3"),
        ({"layers": [{"image": "conv1", "audio": 1}]}, "conv1"),
        ({"layers": [{"image": 0, "audio": 1}]}, "the stage of 'image' in layers must be a whole number ≥ 1, got 0"),
        ({"activation": "cosine"}, "cosine"),
        ({"width": 0}, "width must be a whole number ≥ 1, got 0"),
    ],
)
def test_bad_settings_are_named(settings, words):
    with pytest.raises(InputError, match=words):
        build("mfas", VECTORS, **settings)
