"""Table 10 of Progressive Fusion: parameters counted by hand, and the page."""

from itertools import pairwise

import pytest

from paper_scripts import script

table10 = script("progressive-table10")


def test_parameters_are_counted_where_the_feedback_joins():
    counts = table10.count_model("lowrank")
    convolutions = {"image": 4, "audio": 6}
    # Channels double from 6: kernels 5×5 then 3×3 without bias, and two numbers a channel of each batch norm.
    widths = {name: [6 * 2**stage for stage in range(stages)] for name, stages in convolutions.items()}
    encoders = sum(25 * 6 + sum(9 * a * b for a, b in pairwise(w)) + 2 * sum(w) for w in widths.values())
    fusion = 40 * 120 * (48 + 1 + 192 + 1) + 40 + 120
    assert counts["encoders"] == encoders
    assert counts["base"] == encoders + fusion + 121 * table10.CLASSES
    assert counts["added"]["added to the input"] == 120 * 2
    assert counts["added"]["third stage"] == 120 * (12 + 12)
    assert counts["added"]["behind the last stage"] == 120 * (48 + 192)
    assert counts["dense"] == 120 * (28 * 28 + 112 * 112)
    assert table10.nearest_place("lowrank", counts) == ("behind the last stage", True)


def test_the_page_of_parameters(tmp_path):
    done = table10.run(quick=True, out=tmp_path / "run", verbose=0)
    beside, places, nearest = done.document.tables
    assert [row[0] for row in beside.rows] == ["LFN (lowrank)", "MFM (mfm)", "RefNet (refnet)", "GB (gradient-blend)"]
    for row in beside.rows:
        base, said, loop, said_loop, added, said_added = (float(cell) for cell in row[1:7])
        assert loop - base == pytest.approx(added, abs=1)
        assert said_loop - said == said_added
    assert places.rows[-1][1:] == ("29 k", "21 k", "25 k", "12 k")
    assert nearest.rows[0][2:] == ("behind the last stage", "28 800", "yes")
    assert done.page.exists()


def test_a_place_that_is_too_far_off_is_said_to_be():
    counts = {"added": {"first": 20_000, "second": 40_000}}
    assert table10.nearest_place("lowrank", counts) == ("first", False)  # 29 k are published
