"""The page of a protocol over several sets, on tiny generated data: ranks, and no more than they bear."""

import numpy as np
import pytest
from scipy.stats import rankdata

from consilience.comparison.comparison import Comparison
from consilience.comparison.results import CLEAN, EVERYTHING, Standing
from consilience.reproduction.protocol import read_protocol
from consilience.reproduction.rank_page import answer
from consilience.reproduction.run_protocol import run_protocol

PROTOCOL = """title: Which?
page: ranks
defaults:
  data: gaussians
  n: 90
  methods: [late, concat, early]
  corruption: [gaussian, missing]
  levels: [0, 5]
  seeds: 1
  training: {epochs: 1}
parts:
  part-0: {seed: 0}
  part-1: {seed: 1}
  part-2: {seed: 2, set: third}
  part-3: {seed: 3, set: third}
  absent: {data: av-mnist, data_dir: nowhere}
  left: {quick: false}
notes: [A note.]
"""


def of(ranks, critical, p, label=EVERYTHING, methods=("a", "b", "c", "d", "e")):
    return Standing(label, methods, ranks, 8, critical, p)


@pytest.mark.parametrize(
    ("standing", "said"),
    [
        (of((1.0, 2.0, 3.0, 4.0, 5.0), 2.5, 0.001), "It is significantly better than `d` and `e`; between it"),
        (
            of((1.0, 2.0, 3.0, 4.0, 5.0), 3.9, 0.3),
            "finds no difference between the methods (p = 0.3): 8",
        ),
        (
            of((2.0, 2.5, 3.0, 3.5, 4.0), 3.0, 0.01),
            "better than any single one: mean ranks would have to be 3.0",
        ),
        (
            of((1.0, 2.0, 3.0, 4.0, 5.0), 4.2, 0.01),
            "differ significantly: their mean ranks would have to be 4.2",
        ),
    ],
    ids=["some", "alike", "none", "hopeless"],
)
def test_the_answer_claims_no_more_than_the_ranks_bear(standing, said):
    first, second = answer([standing])
    assert first.startswith("Over all corruptions, `a` has the best mean rank: ")
    assert said in second


def test_the_answer_tells_of_clean_data():
    main = of((1.0, 2.0, 3.0, 4.0, 5.0), 2.5, 0.001)
    assert answer([main, of(main.ranks, 2.5, 0.001, CLEAN)])[-1] == "On clean data it leads too, with 1.0."
    turned = of(main.ranks, 2.5, 0.001, CLEAN, methods=("e", "d", "c", "b", "a"))
    assert answer([main, turned])[-1] == "On clean data `e` leads with 1.0; there `a` has 5.0."


@pytest.fixture(scope="module")
def no_reports():
    """The comparisons' own reports are tested elsewhere, and take longer to draw than these methods to train."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Comparison, "report", lambda self: (self.folder / "report.html").write_text("stand-in"))
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory, no_reports):
    """Two sets and two tasks on a third, each with three cheap methods."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "tiny.yaml").write_text(PROTOCOL, encoding="utf-8")
    return run_protocol(read_protocol(folder / "tiny.yaml"), quick=True, out=folder, command="repeat me", verbose=0)


def test_the_page_shows_the_diagram_first(run):
    names = [section.name for section in run.document.sections]
    assert names == ["ranks", "conditions", "sets", "known", "made"]
    ranks, conditions, sets, known, _ = run.document.sections
    assert [drawing.name for drawing in ranks.figures] == ["ranks"]
    assert [drawing.name for drawing in conditions.figures] == ["ranks-clean", "ranks-gaussian", "ranks-missing"]
    assert sets.tables[0].header == ("method", "mean", "part-0", "part-1", "third")
    assert any(words.startswith("absent was left out: ") for words in known.words)
    assert all((run.folder / address).exists() for _, address in sets.links)
    assert "over 3 sets" in ranks.figures[0].caption
    assert (run.folder / "figures" / "ranks-missing.png").exists()


def test_ranks_in_the_table_are_those_of_its_scores(run):
    table, scores, clean = run.document.sections[2].tables
    assert clean.caption == "Accuracy, clean, %"
    for column in (1, 2, 3):
        own = [float(row[column + 1]) for row in table.rows]
        worth = [float(row[column]) for row in scores.rows]
        if len(set(worth)) == len(worth):  # equal after rounding may differ before
            assert own == rankdata([-one for one in worth]).tolist()
    means = [np.mean([float(cell) for cell in row[2:]]) for row in table.rows]
    assert [float(row[1]) for row in table.rows] == pytest.approx(means, abs=0.051)


def test_one_set_has_no_ranks_and_the_page_says_so(tmp_path, no_reports):
    text = PROTOCOL.replace("parts:\n  part-0: {seed: 0}\n  part-1: {seed: 1}\n", "parts:\n")
    (tmp_path / "tiny.yaml").write_text(text, encoding="utf-8")
    done = run_protocol(read_protocol(tmp_path / "tiny.yaml"), quick=True, out=tmp_path / "run", verbose=0)
    names = [section.name for section in done.document.sections]
    assert names == ["part-part-2", "part-part-3", "differences", "made"]
    assert any("There are no mean ranks" in words for words in done.document.sections[2].words)
