"""`ChangeDetector` against ranks counted by brute force, a slow loop over all starts, and the share that it states."""

import json
import math
from copy import deepcopy
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad

from consilience.evaluation.change_detection import CELLS, ChangeDetector, count_cells, share_cells

SIDES = ("low", "high", "both")
ALL = np.ones(3, dtype=bool)


def slow_evidence(reference, stream, active, categories, side, draws):
    """The evidence after each row of one quantity, with every start played on its own.

    Args:
        reference: List of (cell, category).
        stream, active, categories: Of each row.
        side: As for `ChangeDetector`.
        draws: Random number of each row.
    """
    seen, ranks, found = list(reference), [], [0.0]
    for cell, on, category, draw in zip(stream, active, categories, draws, strict=True):
        if not on:
            found.append(found[-1])
            continue
        own = [other for other, its in seen if its == category]
        lower, equal = sum(other < cell for other in own), sum(other == cell for other in own)
        ranks.append((lower + draw * (equal + 1)) / (len(own) + 1))
        seen.append((cell, category))
        found.append(math.log(slow_capital(ranks, side)))
    return np.array(found[1:])


def slow_capital(ranks, side):
    """What one unit has become: a part of it begins at every row, and the rest has not been put in."""

    def kept(t):
        return 1 / (1 + math.log(1 + t))

    bets = []
    if side in ("low", "both"):
        bets += [[e * p ** (e - 1) for p in ranks] for e in (0.15, 0.5)]
    if side in ("high", "both"):
        bets += [[e * (1 - p) ** (e - 1) for p in ranks] for e in (0.15, 0.5)]
    # The last bet is on a histogram of the ranks before, in which each row counts 1 % less than the next.
    bins = [min(int(10 * p), 9) for p in ranks]
    last = []
    for t, own in enumerate(bins):
        weights = [0.99 ** (t - 1 - s) for s in range(t)]
        same = sum(weight for s, weight in enumerate(weights) if bins[s] == own)
        last.append(10 * (same + 1) / (sum(weights) + 10))
    bets.append(last)
    n, total = len(ranks), kept(len(ranks))
    for start in range(1, n + 1):
        put_in = kept(start - 1) - kept(start)
        total += sum(put_in / len(bets) * math.prod(bet[start - 1 :]) for bet in bets)
    return total


def played(detector, stream, active=None, categories=None):
    """The evidence `[row, quantity]` of a stream of cells `[row, quantity]`."""
    active = np.ones(stream.shape, dtype=bool) if active is None else active
    categories = np.zeros(len(stream), dtype=int) if categories is None else categories
    found = [
        detector.update(cells, on, int(category), row).copy()
        for row, (cells, on, category) in enumerate(zip(stream, active, categories, strict=True))
    ]
    return np.array(found)


def with_reference(cells, sides=SIDES, seed=0):
    detector = ChangeDetector(sides, seed)
    for row in cells:
        detector.add_reference(row, np.ones(len(sides), dtype=bool), 0)
    return detector


def normal_cells(rng, rows, quantities=1, shift=0.0):
    return np.clip(128 + 30 * (rng.normal(size=(rows, quantities)) + shift), 0, CELLS - 1).astype(int)


@pytest.mark.parametrize("distinct", [CELLS, 5])
def test_evidence_is_that_of_a_slow_loop_over_all_starts(distinct):
    rng = np.random.default_rng(distinct)
    reference, stream = (rng.integers(distinct, size=(n, 3)) for n in (12, 40))
    stream[20:] = np.minimum(stream[20:] + distinct // 2, distinct - 1)
    known, active = (rng.random(size=(n, 3)) < 0.8 for n in (12, 40))
    own, categories = (rng.integers(2, size=n) for n in (12, 40))
    detector = ChangeDetector(SIDES, seed=7)
    for cells, on, category in zip(reference, known, own):
        detector.add_reference(cells, on, int(category))
    found = played(detector, stream, active, categories)
    draws = np.random.default_rng(7).random((40, 3))
    for q, side in enumerate(SIDES):
        before = [(cells[q], category) for cells, on, category in zip(reference, known, own) if on[q]]
        expected = slow_evidence(before, stream[:, q], active[:, q], categories, side, draws[:, q])
        np.testing.assert_allclose(found[:, q], expected, rtol=1e-9, atol=1e-9)
    assert (found[-1] > 1).any()  # the values rose, so that there is something to compare


def test_a_row_without_anything_active_changes_nothing():
    detector = with_reference(normal_cells(np.random.default_rng(0), 30, 3))
    before = detector.update(np.array([3, 3, 3]), ALL, 0, 0).copy()
    after = detector.update(np.array([250, 250, 250]), ~ALL, 0, 1)
    np.testing.assert_array_equal(after, before)
    assert detector.counts[0].sum() == 3 * 31


@pytest.mark.parametrize("share", [0.1, 0.02])
def test_of_exchangeable_streams_at_most_the_stated_share_reaches_the_threshold(share):
    streams, rows = 300, 120
    rng = np.random.default_rng(1)
    # One quantity for each stream: they are independent, and each is compared with its own past only.
    sides = [SIDES[n % 3] for n in range(streams)]
    levels = np.where(np.arange(streams) % 2, CELLS, 6)  # half of them with many equal values
    every = rng.integers(levels, size=(40 + rows, streams))
    detector = with_reference(every[:40], sides)
    highest = played(detector, every[40:]).max(axis=0)
    raised = (highest >= math.log(1 / share)).mean()
    assert raised <= share + 3 * math.sqrt(share * (1 - share) / streams)
    assert np.exp(highest).min() < 1.5  # evidence is not kept down from above: it moves around 1
    assert highest.std() > 0.1


def test_bets_are_fair_for_uniform_ranks():
    # What they pay must be 1 in the mean. The mean of a simulation would not show it: bets on ends have no variance.
    detector = ChangeDetector(["both"])
    for rank in np.random.default_rng(2).random(30) ** 2:
        detector._bets(np.array([rank]), np.array([0]))
    past = detector.ranks.copy()

    def paid(rank, bet):
        detector.ranks = past.copy()
        return math.exp(detector._bets(np.array([rank]), np.array([0]))[0, bet])

    for bet in range(4):
        # In parts that become smaller towards both ends, where one of the densities is infinite.
        ends = [*10.0 ** np.arange(-11, 0), 0.5, *(1 - 10.0 ** np.arange(-1, -12, -1))]
        inside = sum(quad(paid, low, high, args=(bet,))[0] for low, high in pairwise(ends))
        outside = 1e-11 ** (0.15, 0.5)[bet % 2]  # by hand: of ε p^(ε − 1) from 0 to 1e-11
        assert inside + outside == pytest.approx(1, abs=1e-3)
    tenths = [paid(rank, 4) for rank in np.arange(0.05, 1, 0.1)]
    assert np.mean(tenths) == pytest.approx(1)
    assert tenths[0] > 1 > tenths[-1]


@pytest.mark.parametrize(("side", "shift"), [("low", -2), ("high", 2), ("both", 2), ("both", -2)])
def test_a_shift_is_found_and_its_start_is_named(side, shift):
    rng = np.random.default_rng(3)
    detector = with_reference(normal_cells(rng, 200), [side])
    before, after = normal_cells(rng, 100), normal_cells(rng, 60, shift=shift)
    evidence = played(detector, np.concatenate([before, after]))[:, 0]
    assert evidence[:100].max() < math.log(100)
    first = int((evidence >= math.log(1000)).argmax())
    assert 100 <= first < 130
    assert abs(detector.since(0) - 100) <= 10


def test_a_rise_is_found_later_by_the_side_low_than_by_high():
    # It is found by both: a change without regard to its direction counts with every side.
    rng = np.random.default_rng(4)
    sides = [*["low"] * 40, *["high"] * 40, *["both"] * 40]
    evidence = played(with_reference(normal_cells(rng, 200, 120), sides), normal_cells(rng, 60, 120, shift=1.5))
    rows = np.where((reached := evidence >= math.log(1e4)).any(axis=0), reached.argmax(axis=0), 60).reshape(3, 40)
    low, high, both = rows.mean(axis=1)
    assert high <= both < low - 3


def test_bets_against_the_direction_of_a_change_lose_and_do_not_count():
    rng = np.random.default_rng(5)
    detector = with_reference(normal_cells(rng, 200, 3))
    played(detector, np.repeat(normal_cells(rng, 25, shift=2), 3, axis=1))
    assert (detector.capital[:, :2] < math.log(0.5)).all()
    assert (detector.capital[:, 2:4] > math.log(1000)).all()
    # "low" has only the bet on the histogram of ranks to win with, which is a third of its stake.
    assert detector.log_evidence[0] == pytest.approx(detector.capital[0, 4] - math.log(3), abs=1e-3)


def test_restart_forgets_the_evidence_and_keeps_the_values():
    rng = np.random.default_rng(6)
    detector = with_reference(normal_cells(rng, 100, 3))
    found = played(detector, normal_cells(rng, 40, 3, shift=3))[-1].copy()
    counts = detector.counts[0].copy()
    detector.restart(1)
    assert found[1] > 5
    assert detector.log_evidence.tolist() == [found[0], 0.0, found[2]]
    np.testing.assert_array_equal(detector.counts[0], counts)
    # From here on the quantity is as in a detector that had seen these values as its reference.
    fresh = ChangeDetector(SIDES)
    fresh.counts = {0: counts.copy()}
    fresh._random.bit_generator.state = deepcopy(detector._random.bit_generator.state)
    later = normal_cells(rng, 20, 3, shift=-2)
    np.testing.assert_allclose(played(detector, later)[:, 1], played(fresh, later)[:, 1])


def test_state_goes_through_json_and_continues_to_the_last_bit():
    rng = np.random.default_rng(7)
    detector = with_reference(normal_cells(rng, 50, 3))
    categories = rng.integers(3, size=60)
    stream, active = normal_cells(rng, 60, 3, shift=0.5), rng.random(size=(60, 3)) < 0.9
    played(detector, stream[:30], active[:30], categories[:30])
    other = ChangeDetector(SIDES, seed=99)
    other.restore(json.loads(json.dumps(detector.state())))
    ours, theirs = (played(each, stream[30:], active[30:], categories[30:]) for each in (detector, other))
    np.testing.assert_array_equal(ours, theirs)
    assert [detector.since(q) for q in range(3)] == [other.since(q) for q in range(3)]
    assert detector.state() == other.state()


def _set(state, name, value):
    state[name] = value


DAMAGES = {
    "other shape": lambda state: _set(state, "capital", [[0.0]]),
    "not finite": lambda state: _set(state, "log_evidence", [float("nan"), 0.0, 0.0]),
    "infinite": lambda state: _set(state, "rise", np.full((3, 5), np.inf).tolist()),
    "ranks below zero": lambda state: _set(state, "ranks", np.full((3, 10), -1e308).tolist()),
    "evidence too large": lambda state: _set(state, "log_evidence", [1e308, 0.0, 0.0]),
    "steps below zero": lambda state: _set(state, "steps", [-5, 0, 0]),
    "no such cell": lambda state: _set(state, "counts", {"0": [[0, CELLS, 1]]}),
    "no such quantity": lambda state: _set(state, "counts", {"0": [[3, 0, 1]]}),
    "a count below zero": lambda state: _set(state, "counts", {"0": [[0, 0, -1]]}),
    "a count too large": lambda state: _set(state, "counts", {"0": [[0, 0, 2 * 10**12]]}),
    "no pairs of three": lambda state: _set(state, "counts", {"0": [[0, 0]]}),
    "text": lambda state: _set(state, "steps", ["a", "b", "c"]),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_restore_refuses_values_out_of_range(damage):
    detector = with_reference(normal_cells(np.random.default_rng(8), 20, 3))
    state = json.loads(json.dumps(detector.state()))
    damage(state)
    with pytest.raises(ValueError):  # noqa: PT011 - the words are of numpy for some of them
        ChangeDetector(SIDES).restore(state)


@pytest.mark.parametrize("name", ["steps", "counts", "random"])
def test_restore_needs_every_part(name):
    state = ChangeDetector(SIDES).state()
    del state[name]
    with pytest.raises(KeyError, match=name):
        ChangeDetector(SIDES).restore(state)


def test_cells_keep_the_order_and_stay_in_range():
    share = share_cells(np.linspace(0, 1, 1001))
    assert (np.diff(share) >= 0).all()
    assert (share.min(), share.max()) == (0, CELLS - 1)
    odds = np.array([-6.0, -3.0, 0.0, 3.0, 6.0])
    np.testing.assert_array_equal(np.diff(share_cells(1 / (1 + np.exp(-odds)))), 32)  # 3 of 24 in the log-odds
    for largest in (1, 255, 256, 5000):
        counts = count_cells(np.arange(largest + 1), largest)
        assert (np.diff(counts) >= 0).all()
        assert (counts.min(), counts.max()) == (0, min(largest, CELLS - 1))
