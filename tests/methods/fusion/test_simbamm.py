"""`simbamm`: tokens, masks and the short cut of the last layer, against a plain transformer over all tokens."""

import pytest
import torch

from consilience.core.errors import InputError
from consilience.core.samples import Modality
from consilience.encoders import Encoded
from consilience.methods import Spec
from consilience.methods.fusion.simbamm import Simbamm, TokenTransformer
from toy_batches import CLASSES, VECTORS, batch_of

SOME = torch.tensor([[True, True], [True, False], [False, True], [False, False]])


def by_hand(fusion, features, present):
    """One sample at a time, only the tokens that are there, every layer on all of them."""
    rows = []
    for i, there in enumerate(present):
        tokens = [fusion.start]
        for column, (name, kind) in enumerate(zip(features, fusion.modality)):
            if there[column]:
                tokens.append(fusion.project[name](features[name].pooled[i]) + kind)
        hidden = torch.stack(tokens)[None]
        for layer in fusion.layers:
            hidden = layer(hidden, None)
        rows.append(fusion.norm(hidden[0, 0]))
    return torch.stack(rows)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("present", [SOME, torch.ones(4, 2, dtype=torch.bool)], ids=["some", "all"])
def test_equals_a_transformer_over_what_is_present(layers, present):
    method = Simbamm(Spec(VECTORS, CLASSES), width=8, heads=2, layers=layers).eval()
    batch = batch_of(4, present)
    prediction = method(batch)
    expected = by_hand(method.fusion, prediction.features, present)
    torch.testing.assert_close(prediction.joint, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(prediction.output, method.head(expected), rtol=1e-4, atol=1e-5)


def test_a_modality_with_parts_gives_several_tokens():
    """Two tokens of a sequence of four steps are the means of its halves."""
    modalities = {"motion": Modality("motion", "sequence", (4, 3)), "still": Modality("still", "vector", (2,))}
    steps, still = torch.randn(2, 4, 5), torch.randn(2, 5)
    batch = batch_of(2, modalities=modalities)
    fusion = TokenTransformer({"motion": 5, "still": 5}, 8, 2, 2, 0.0, tokens=2).eval()
    real = torch.ones(2, 4, dtype=torch.bool)
    found = fusion({"motion": Encoded(steps.mean(1), steps, real), "still": Encoded(still)}, batch)
    halves = steps.unflatten(1, (2, 2)).mean(2)
    tokens = [fusion.start.expand(2, 1, -1), fusion.project["motion"](halves) + fusion.modality[0]]
    hidden = torch.cat([*tokens, fusion.project["still"](still[:, None]) + fusion.modality[1]], dim=1)
    for layer in fusion.layers:
        hidden = layer(hidden, None)
    torch.testing.assert_close(found, fusion.norm(hidden[:, 0]), rtol=1e-4, atol=1e-5)


def test_heads_must_divide_the_width():
    with pytest.raises(InputError, match="multiple of heads"):
        Simbamm(Spec(VECTORS, CLASSES), width=10, heads=4)
