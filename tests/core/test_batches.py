import pytest
import torch

from consilience.core.batches import Batch
from consilience.core.errors import InputError


def batch(**changes) -> Batch:
    torch.manual_seed(0)
    given = {
        "present": torch.tensor([[True, True], [False, True], [True, True]]),
        "index": torch.tensor([7, 8, 9]),
        "weight": torch.tensor([1.0, 2.0, 3.0]),
        "lengths": {"b": torch.tensor([2, 1, 4])},
        "y": torch.tensor([0, 1, 0]),
        "complete": frozenset({"b"}),
    }
    return Batch({"keys": torch.randn(3, 2), "b": torch.randn(3, 4, 5)}, **given | changes)


def test_a_batch_knows_its_parts():
    one = batch()
    assert len(one) == 3
    assert one.names == ("keys", "b")
    assert one["b"].shape == (3, 4, 5)
    assert one.present_in("keys").tolist() == [True, False, True]
    assert one.device == torch.device("cpu")
    assert not one.whole
    assert batch(complete=frozenset({"keys", "b"})).whole


def test_a_batch_needs_neither_lengths_nor_targets():
    bare = Batch({"a": torch.ones(1, 2)}, torch.ones(1, 1).bool(), index=torch.zeros(1).long(), weight=torch.ones(1))
    assert bare.lengths == {}
    assert bare.y is None
    assert bare.select(torch.tensor([0, 0])).y is None
    assert bare.to("cpu").y is None
    assert bare.hiding(torch.tensor([[True]])).y is None


@pytest.mark.parametrize("rows", [[2, 0], [1, 1, 1, 1], []])
def test_select_takes_the_same_rows_of_everything(rows):
    one, chosen = batch(), batch().select(torch.tensor(rows, dtype=torch.int64))
    assert len(chosen) == len(rows)
    assert chosen.names == one.names
    for name in one.names:
        assert torch.equal(chosen[name], one[name][rows])
    assert torch.equal(chosen.present, one.present[rows])
    assert torch.equal(chosen.lengths["b"], one.lengths["b"][rows])
    assert torch.equal(chosen.y, one.y[rows])
    assert torch.equal(chosen.weight, one.weight[rows])
    assert torch.equal(chosen.index, one.index[rows])
    assert chosen.complete == {"b"}


def test_to_moves_every_tensor():
    moved = batch().to("meta")
    tensors = [*moved.values.values(), *moved.lengths.values(), moved.present, moved.index, moved.weight, moved.y]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert moved.device.type == "meta"
    assert moved.complete == {"b"}


def test_hiding_leaves_zeros_and_touches_nothing_else():
    one = batch()
    hidden = torch.tensor([[False, True], [True, False], [False, False]])
    less = one.hiding(hidden)
    assert less.present.tolist() == [[True, False], [False, True], [True, True]]
    assert not less["b"][0].any()
    assert not less["keys"][1].any()
    assert torch.equal(less["b"][1:], one["b"][1:])
    assert less.lengths["b"].tolist() == [0, 1, 4]
    assert less.complete == frozenset()
    assert torch.equal(less.y, one.y)
    assert one.present.tolist() == [[True, True], [False, True], [True, True]]
    assert one["b"][0].any()
    assert one.lengths["b"].tolist() == [2, 1, 4]


@pytest.mark.parametrize("hidden", [torch.ones(2).bool(), torch.ones(3, 1).bool(), torch.ones(3, 2)])
def test_what_to_hide_is_a_mask_of_the_batch(hidden):
    with pytest.raises(InputError, match=r"booleans \[batch, modality\] = \[3, 2\], got"):
        batch().hiding(hidden)
