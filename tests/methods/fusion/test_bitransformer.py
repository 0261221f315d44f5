import numpy as np
import pytest
import torch

from consilience import methods
from consilience.core.batches import Batch
from consilience.core.errors import InputError
from consilience.core.samples import Modality
from consilience.encoders.transformer import sinusoids
from consilience.methods.fusion.parts import average_parts
from toy_batches import CLASSES, VECTORS, batch_of

MODALITIES = {
    "title": Modality("title", "tokens", (4,), vocabulary=9),
    "image": Modality("image", "image", (1, 8, 8)),
    "sound": Modality("sound", "sequence", (6, 3)),
}


def build(modalities=MODALITIES, encoders=None, **settings):
    torch.manual_seed(0)
    small = {"width": 8, "heads": 2, "layers": 1, **settings}
    return methods.build("mmbt", methods.Spec(modalities, CLASSES, encoders or {}), small).eval()


def mixed_batch(present=((True,) * 3,) * 3):
    torch.manual_seed(1)
    there = torch.tensor(present)
    values = {"title": torch.randint(1, 9, (3, 4)), "image": torch.randn(3, 1, 8, 8), "sound": torch.randn(3, 6, 3)}
    lengths = {"title": torch.tensor([4, 1, 2]), "sound": torch.tensor([6, 2, 3])}
    y = torch.zeros(3, dtype=torch.int64)
    return Batch(values, there, index=torch.arange(3), weight=torch.ones(3), lengths=lengths, y=y)


def test_the_text_comes_last_and_has_word_vectors_of_the_transformer():
    method = build()
    assert method.fusion.project.names == ("image", "sound", "title")
    assert [name for name, _ in method.encoders["title"].named_parameters()] == ["stages.embed.weight"]
    assert method.encoders["title"].width == 8


def test_what_the_transformer_reads_against_a_row_by_hand():
    method, batch = build(parts=2), mixed_batch()
    seen = {}
    method.fusion.host.register_forward_pre_hook(
        lambda _, given: seen.update(zip(("content", "positions", "mask"), given))
    )
    features = method(batch).features
    fusion = method.fusion
    # Row 1: the start, one part of the image, two of two sounds, one word of one.
    sound = features["sound"].sequence[1, :2] @ fusion.project["sound"].weight.T + fusion.project["sound"].bias
    word = method.encoders["title"].stages["embed"].weight[batch["title"][1, 0]]
    image = fusion.project["image"](features["image"].sequence[1, 0])
    expected = torch.stack(
        [
            fusion.start,
            image + fusion.segments[0],
            *(sound + fusion.segments[1]),
            word + fusion.segments[2],
        ]
    )
    torch.testing.assert_close(seen["content"][1, :5], expected)
    assert seen["positions"][1].tolist() == [0, 0, 0, 1, 0, 1, 2, 3]
    assert seen["mask"][1].tolist() == [True] * 5 + [False] * 3
    host = fusion.host
    hidden = host.layers[0](seen["content"] + sinusoids(8, 8)[seen["positions"]], seen["mask"])
    torch.testing.assert_close(method(batch).joint, host.norm(hidden[:, 0]))


def test_a_vector_is_one_part():
    method = build(VECTORS)
    seen = {}
    method.fusion.host.register_forward_pre_hook(lambda _, given: seen.update(shape=given[0].shape))
    method(batch_of())
    assert seen["shape"] == (6, 3, 8)


def test_samples_do_not_see_what_they_lack():
    method = build()
    some = mixed_batch([[True, True, True], [False, True, False], [True, False, True]])
    together = method(some).output
    for row in range(3):
        torch.testing.assert_close(method(some.select(torch.tensor([row]))).output[0], together[row])
    for name in some.names:
        gone = ~some.present_in(name)
        some.values[name][gone] = 7
    torch.testing.assert_close(method(some).output, together)


def test_an_encoder_chosen_for_the_text_makes_its_parts():
    method = build(encoders={"title": {"name": "gru", "hidden": 5}})
    assert method.fusion.project["title"].in_features == 5
    assert method(mixed_batch()).output.isfinite().all()


def test_parts_are_averaged_in_even_groups_of_real_ones():
    torch.manual_seed(0)
    sequence, mask = torch.randn(4, 7, 3), torch.ones(4, 7, dtype=torch.bool)
    mask[1, 5:], mask[2, 2:], mask[3] = False, False, False
    mask[1, 1] = False  # a gap
    parts, real = average_parts(sequence, mask, 3)
    for row, kept in enumerate([list(range(7)), [0, 2, 3, 4], [0, 1], []]):
        groups = [[] for _ in range(3)]
        for order, place in enumerate(kept):
            groups[order if len(kept) <= 3 else order * 3 // len(kept)].append(sequence[row, place].numpy())
        assert real[row].tolist() == [bool(group) for group in groups]
        for place, group in enumerate(groups):
            np.testing.assert_allclose(parts[row, place], np.mean(group, axis=0) if group else np.zeros(3), atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"width": 9}, "width must be a multiple of heads, got width 9 and 2 heads"),
        ({"layers": 0}, "layers must be a whole number ≥ 1, got 0"),
        ({"parts": 0}, "parts must be a whole number ≥ 1, got 0"),
        ({"dropout": 1.0}, "dropout must be a number"),
    ],
)
def test_bad_settings_are_named(settings, words):
    with pytest.raises(InputError, match=words):
        build(**settings)
