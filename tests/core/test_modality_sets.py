"""One numbering of sets of modalities, wherever a table has a row for each set."""

import numpy as np
import pytest
import torch

from consilience.bayes.presence_coefficients import row_of
from consilience.core.modality_sets import MOST_NUMBERED, all_sets, number_of_members, set_numbers
from consilience.evaluation.contributions import all_masks
from consilience.methods.latent.subsets import all_subsets


@pytest.mark.parametrize("modalities", range(1, 8))
def test_a_set_is_found_at_its_number(modalities):
    sets = all_sets(modalities)
    assert sets.shape == (2**modalities, modalities)
    assert len(sets.unique(dim=0)) == 2**modalities
    assert set_numbers(sets).tolist() == list(range(2**modalities))
    by_bits = [int("".join("01"[there] for there in reversed(row)), base=2) for row in sets.tolist()]
    assert by_bits == list(range(2**modalities)), "bit m is modality m"
    assert [number_of_members(row.nonzero()[:, 0].tolist()) for row in sets] == by_bits


def test_every_table_has_its_rows_in_this_order():
    sets = all_sets(4)
    assert row_of(sets).tolist() == set_numbers(sets).tolist()
    np.testing.assert_array_equal(all_masks(4), sets.numpy())
    assert torch.equal(all_subsets(4), sets[1:])


def test_many_modalities_and_further_dimensions():
    present = torch.zeros(2, 3, MOST_NUMBERED, dtype=torch.bool)
    present[1, 2, -1] = True
    assert set_numbers(present)[1, 2].item() == 2 ** (MOST_NUMBERED - 1)
    assert set_numbers(present).sum().item() == 2 ** (MOST_NUMBERED - 1)
