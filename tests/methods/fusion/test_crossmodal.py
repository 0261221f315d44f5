"""MulT's cross-modal attention against loops over samples, heads and positions."""

import numpy as np
import pytest
import torch

from consilience.core.errors import InputError, UnsupportedError
from consilience.encoders.transformer import sinusoids
from consilience.methods import Step
from consilience.methods.fusion.crossmodal import CrossmodalLayer
from toy_batches import VECTORS
from toy_sequences import MIXED, TIMED, build, check_loop, check_padding_and_company, timed_batch

SMALL = {"width": 4, "heads": 2, "layers": 2}
SEQUENCES = {name: TIMED[name] for name in ("sound", "motion")}


def rows_of(linear, x):
    return x @ linear.weight.detach().double().numpy().T + linear.bias.detach().double().numpy()


def test_attention_against_loops():
    torch.manual_seed(0)
    layer = CrossmodalLayer(6, 3, 0.0).double()
    target, source = torch.randn(2, 4, 6).double(), torch.randn(2, 5, 6).double()
    mask = torch.tensor([[True] * 5, [True, False, True, False, False]])
    got = layer.attend(target, source, mask).detach()
    for row in range(2):
        queries = rows_of(layer.queries, target[row].numpy())
        keys, values = np.split(rows_of(layer.keys_values, source[row].numpy()), 2, axis=1)
        attended = np.zeros((4, 6))
        for head in range(3):
            own = slice(2 * head, 2 * head + 2)
            for place in range(4):
                scores = {
                    part: np.exp(queries[place, own] @ keys[part, own] / np.sqrt(2))
                    for part in range(5)
                    if mask[row, part]
                }
                for part, score in scores.items():
                    attended[place, own] += score / sum(scores.values()) * values[part, own]
        np.testing.assert_allclose(got[row], rows_of(layer.mix, attended), rtol=1e-9)


def test_nothing_comes_from_a_source_without_parts():
    torch.manual_seed(0)
    layer = CrossmodalLayer(6, 3, 0.0)
    target, source = torch.randn(1, 4, 6), torch.randn(1, 5, 6, requires_grad=True)
    got = layer(target, source, torch.zeros(1, 5, dtype=torch.bool))
    torch.testing.assert_close(got, target + layer.feed_forward(layer.forward_norm(target)))
    got.sum().backward()
    assert not source.grad.any()


def test_the_whole_pass_against_one_by_hand():
    method, batch = build("mult", SEQUENCES, **SMALL), timed_batch(SEQUENCES)
    features, fusion, row = method.represent(batch), method.fusion, 2
    parts = {}
    for name in SEQUENCES:
        length = batch.lengths[name][row]
        parts[name] = features[name].sequence[row : row + 1, :length] + sinusoids(length, 4)
    last = []
    for name, source in (("sound", "motion"), ("motion", "sound")):
        hidden, real = parts[name], torch.ones(parts[source].shape[:2], dtype=torch.bool)
        for layer in fusion.streams[name][source].layers:
            attended = layer.attend(layer.attention_norm(hidden), layer.attention_norm(parts[source]), real)
            hidden = hidden + attended
            hidden = hidden + layer.feed_forward(layer.forward_norm(hidden))
        hidden = fusion.streams[name][source].norm(hidden)
        for layer in fusion.memories[name].layers:
            hidden = layer(hidden)
        last.append(fusion.memories[name].norm(hidden)[0, -1])
    together = torch.cat(last)
    torch.testing.assert_close(method(batch).joint[row], together + fusion.mix(together))


def test_samples_are_read_alone_and_without_their_padding():
    check_padding_and_company(build("mult", MIXED, **SMALL), MIXED)


def test_what_is_missing_says_nothing_to_anyone():
    method = build("mult", SEQUENCES, **SMALL)
    batch = timed_batch(SEQUENCES, [[True, False]] * 4)
    prediction = method(batch)
    assert not prediction.joint.isnan().any()
    alone = [method.fusion.streams["sound"]["motion"], method.fusion.memories["sound"]]
    torch.stack(list(method.objective(prediction, batch, Step()).values())).sum().backward()
    assert all(weight.grad.isfinite().all() for weight in method.parameters() if weight.grad is not None)
    assert not any(layer.keys_values.weight.grad.any() for layer in alone[0].layers)
    assert not method.fusion.streams["motion"]["sound"].norm.weight.grad.any()
    assert alone[1].norm.weight.grad.any()


def test_a_loop_feeds_back_into_the_parts():
    check_loop("mult", MIXED, **SMALL)


def test_modalities_become_parts():
    method = build("mult", MIXED, {"motion": {"name": "gru", "hidden": 7}}, **SMALL)
    batch = timed_batch(MIXED)
    shapes = {name: encoded.sequence.shape[1:] for name, encoded in method(batch).features.items() if name != "still"}
    assert shapes == {"sound": (6, 4), "motion": (4, 7), "title": (5, 4), "image": (16, 48)}
    assert len(method.fusion.streams["sound"]) == 4
    assert method.fusion.width == 5 * 4 * 4


def test_a_single_modality_attends_to_itself():
    method = build("mult", {"sound": TIMED["sound"]}, **SMALL)
    assert method.fusion.streams["sound"].names == ("sound",)
    assert method(timed_batch({"sound": TIMED["sound"]})).output.shape == (4, 3)


def test_vectors_alone_have_nothing_to_attend_to():
    with pytest.raises(UnsupportedError, match="vectors have one each"):
        build("mult", VECTORS)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"width": 9}, "width must be a multiple of heads, got width 9 and 4 heads"),
        ({"kernel": 0}, "kernel must be a whole number ≥ 1, got 0"),
        ({"dropout": 1.0}, "dropout must be a number"),
    ],
)
def test_bad_settings_are_named(settings, words):
    with pytest.raises(InputError, match=words):
        build("mult", SEQUENCES, **settings)
