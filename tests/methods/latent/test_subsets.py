import itertools
import math
from fractions import Fraction

import pytest
import torch

from consilience.core.errors import UnsupportedError
from consilience.core.modality_sets import set_numbers
from consilience.methods.latent.subsets import all_subsets, chain, leave_one_out, weight, weights


@pytest.mark.parametrize("n", range(1, 9))
def test_invariants_of_the_weights(n):
    c = [Fraction(math.factorial(k - 1) * math.factorial(n - k), math.factorial(n)) for k in range(1, n + 1)]
    assert [Fraction(weight(n, k)).limit_denominator(10**6) for k in range(1, n + 1)] == c
    assert c == c[::-1]
    subsets = all_subsets(n)
    each = weights(n)[n, subsets.sum(1)]
    assert each.sum().item() == pytest.approx(sum(1 / k for k in range(1, n + 1)), abs=1e-12)  # H_N
    assert (each[:, None] * subsets).sum(0).tolist() == pytest.approx([1.0] * n, abs=1e-12)


@pytest.mark.parametrize("n", range(1, 7))
def test_subsets_and_counts(n):
    subsets = all_subsets(n)
    wanted = {one for k in range(1, n + 1) for one in itertools.combinations(range(n), k)}
    assert {tuple(row.nonzero()[:, 0].tolist()) for row in subsets} == wanted
    assert set_numbers(subsets).tolist() == list(range(1, 2**n))
    assert subsets.sum() == n * 2 ** (n - 1)
    larger, smaller, member = leave_one_out(subsets)
    assert len(larger) == n * (2 ** (n - 1) - 1)
    for one, other, left in zip(subsets[larger], subsets[smaller], member):
        assert (one & ~other).nonzero()[:, 0].tolist() == [left]
        assert not (other & ~one).any()


def test_too_many_modalities_say_how_many_subsets():
    with pytest.raises(UnsupportedError, match=r"13 modalities have 8191 subsets.*subsets='chain'.*'set' or 'poe'"):
        all_subsets(13)


def test_chains_are_nested_and_hold_only_what_is_present():
    present = torch.rand(50, 5, generator=torch.Generator().manual_seed(0)) < 0.6
    drawn = chain(present, torch.Generator().manual_seed(1))
    assert torch.equal(drawn.sets[-1], present)
    assert torch.equal(drawn.newest.sum(0), present.long())
    assert not (drawn.sets[:-1] & ~drawn.sets[1:]).any()
    assert torch.equal(drawn.sets[1:] & ~drawn.sets[:-1], drawn.newest[1:])


def test_every_permutation_of_what_is_present_is_as_likely():
    drawn = chain(torch.tensor([True, False, True, True]).expand(6000, 4), torch.Generator().manual_seed(0))
    order = [tuple(one for one in row.nonzero()[:, 1].tolist()) for row in drawn.newest.transpose(0, 1)]
    counts = [order.count(one) for one in itertools.permutations([0, 2, 3])]
    assert sum(counts) == 6000
    assert sum((count - 1000) ** 2 / 1000 for count in counts) < 20.5  # χ² of 5 degrees, one in a thousand
