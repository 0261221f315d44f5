import numpy as np
import pytest
import torch
from torch import nn

from consilience import methods
from consilience.core.batches import Batch
from consilience.core.errors import InputError
from consilience.core.samples import Modality
from consilience.encoders import Encoded
from consilience.methods.fusion.mmtm import Exchange, excite, squeeze, stage_widths
from toy_batches import CLASSES, VECTORS, batch_of

KINDS = {
    "image": Modality("image", "image", (1, 8, 8)),
    "sound": Modality("sound", "sequence", (5, 3)),
    "title": Modality("title", "tokens", (4,), vocabulary=9),
}


def build(modalities, encoders=None, **settings):
    torch.manual_seed(0)
    return methods.build("mmtm", methods.Spec(modalities, CLASSES, encoders or {}), settings).eval()


def mixed_batch(present, n=3):
    torch.manual_seed(1)
    there = torch.tensor(present)
    values = {"image": torch.randn(n, 1, 8, 8), "sound": torch.randn(n, 5, 3), "title": torch.randint(1, 9, (n, 4))}
    lengths = {"sound": torch.tensor([5, 2, 3]), "title": torch.tensor([4, 1, 2])}
    return Batch(
        values,
        there,
        index=torch.arange(n),
        weight=torch.ones(n),
        lengths=lengths,
        y=torch.zeros(n, dtype=torch.int64),
    )


def test_gates_against_the_formula():
    torch.manual_seed(0)
    exchange = Exchange({"a": 3, "b": 5}, ratio=4)
    means = {"a": torch.randn(2, 3), "b": torch.randn(2, 5)}
    assert exchange.squeeze.out_features == 2 * (3 + 5) // 4
    gates = exchange(means)
    for row in range(2):
        joint = np.concatenate([means["a"][row], means["b"][row]])
        z = exchange.squeeze.weight.detach().numpy() @ joint + exchange.squeeze.bias.detach().numpy()
        z = np.maximum(z, 0)
        for name in ("a", "b"):
            layer = exchange.excite[name]
            e = layer.weight.detach().numpy() @ z + layer.bias.detach().numpy()
            np.testing.assert_allclose(gates[name][row].detach(), 2 / (1 + np.exp(-e)), rtol=1e-5)


def test_the_whole_pass_against_one_by_hand():
    encoders = {name: {"name": "mlp", "hidden": [4, 6], "dropout": 0.0} for name in VECTORS}
    method, batch = build(VECTORS, encoders), batch_of()
    hidden = {name: batch[name] for name in VECTORS}
    for number, exchange in enumerate(method.exchanges, start=1):
        hidden = {name: method.encoders[name].stages[f"block{number}"](hidden[name]) for name in VECTORS}
        gates = exchange(hidden)
        hidden = {name: hidden[name] * gates[name] for name in VECTORS}
    by_hand = sum(method.heads[name](hidden[name]) for name in VECTORS) / 2
    torch.testing.assert_close(method(batch).output, by_hand)


def test_encoders_are_aligned_at_their_ends():
    method = build(KINDS)  # 3, 1 and 1 stages
    assert [len(method.encoders[name].stages) for name in KINDS] == [3, 1, 1]
    assert [exchange.names for exchange in method.exchanges] == [("image", "sound", "title")]
    deeper = {"sound": {"name": "gru", "layers": 2}}
    assert [exchange.names for exchange in build(KINDS, deeper).exchanges] == [
        ("image", "sound"),
        ("image", "sound", "title"),
    ]
    assert [exchange.names for exchange in build(KINDS, deeper, exchanges=1).exchanges] == [("image", "sound", "title")]
    assert not build(KINDS, exchanges=0).exchanges


def test_what_is_missing_counts_as_zeros_and_changes_no_one_but_by_that():
    method = build(KINDS)
    some = mixed_batch([[True, True, True], [True, False, True], [False, False, True]])
    together = method(some)
    for row in range(3):
        alone = method(some.select(torch.tensor([row])))
        torch.testing.assert_close(alone.output[0], together.output[row])
    assert together.weights.tolist() == [[pytest.approx(1 / 3)] * 3, [0.5, 0, 0.5], [0, 0, 1]]
    assert not together.features["sound"].pooled[1:].any()
    # The mean of a missing modality is zero in the exchange, not its encoder's view of zeros.
    seen = {}
    method.exchanges[0].register_forward_pre_hook(lambda _, given: seen.update(given[0]))
    method(some)
    assert not seen["image"][2].any()
    assert seen["image"][:2].any(1).all()


def test_padding_reaches_no_gate():
    method, batch = build(KINDS), mixed_batch([[True] * 3] * 3)
    expected = method(batch).output
    batch.values["sound"][1, 2:] = 1e6
    batch.values["title"][1, 1:] = 5
    torch.testing.assert_close(method(batch).output, expected)


def test_squeeze_and_excite_of_every_layout():
    gate = torch.tensor([[2.0, 0.5]])
    vector, parts = torch.tensor([[1.0, 3.0]]), torch.tensor([[[1.0, 3.0], [5.0, 7.0]]])
    image = torch.arange(8.0).view(1, 2, 2, 2)
    assert excite(vector, gate).tolist() == [[2, 1.5]]
    assert excite(parts, gate).tolist() == [[[2, 1.5], [10, 3.5]]]
    assert excite(image, gate)[0, :, 1, 1].tolist() == [6, 3.5]
    assert squeeze(image, None).tolist() == [[1.5, 5.5]]
    assert squeeze(parts, torch.ones(1, 5, dtype=torch.bool)).tolist() == [[3, 5]]  # a mask of other parts than these
    whole = excite(Encoded(vector, parts, torch.ones(1, 2, dtype=torch.bool)), gate)
    assert whole.pooled.tolist() == [[2, 1.5]]
    assert whole.sequence[0, 1].tolist() == [10, 3.5]


def test_a_module_of_ones_own_takes_part():
    method = build(VECTORS, {"image": nn.Linear(3, 7)})
    assert method.exchanges[-1].widths == (7, 64)
    assert method(batch_of()).output.isfinite().all()


def test_the_dry_run_leaves_no_trace():
    method = build(KINDS).train()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    assert list(stage_widths(method.encoders["image"], KINDS["image"])) == [12, 24, 48]
    assert all(torch.equal(before[name], value) for name, value in method.state_dict().items())
    assert all(part.training for part in method.modules())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ratio": 0}, "ratio must be a number > 0, got 0"),
        ({"ratio": "4"}, "ratio must be a number > 0, got '4'"),
        ({"exchanges": -1}, "exchanges must be a whole number ≥ 0"),
        ({"exchanges": 1.5}, "exchanges must be a whole number ≥ 0"),
    ],
)
def test_bad_settings_are_named(settings, words):
    with pytest.raises(InputError, match=words):
        build(VECTORS, **settings)
