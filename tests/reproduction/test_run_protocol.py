"""A protocol from the file to its page: results beside published figures, verdicts, notes, what is missing."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from consilience.comparison.comparison import Comparison, reopen
from consilience.core.errors import InputError, MissingDataError, UnknownNameError
from consilience.reproduction.claims import check_claims, in_short, say_verdict
from consilience.reproduction.protocol import Part, read_protocol
from consilience.reproduction.protocol_sections import areas
from consilience.reproduction.run_protocol import headlines, run_protocol
from documents import ROOT, blocks
from report.factory import make_findings

PROTOCOL = """title: A protocol of one's own
defaults:
  data: small.npz
  methods: [late, unimodal:good, unimodal:noise]
  corruption: gaussian
  levels: [5]
  seeds: 50
  training: {epochs: 8, lr: 0.03}
parts:
  small: {quick: {seeds: 7}}
  far: {title: Away, data: handwritten}
published:
  small:
    clean: {late: 0.9}
    gaussian 5: {late: [0.75, 0.7]}
claims:
  - {says: Content beats noise, part: small, method: unimodal:good, than: unimodal:noise}
  - {says: Noise beats content, part: small, method: unimodal:noise, than: unimodal:good}
  - {says: Late fusion is best, part: small, method: late, than: unimodal:good, at: gaussian 5}
  - {says: Of missing data nothing is said, part: far, method: late, than: unimodal:good}
sections:
  - {kind: "sections.py:parts", title: Its own section}
notes: [Everything is different.]
"""
SECTIONS = """
from consilience.reproduction.protocol_sections import Addition
from consilience.report.document import Section

def parts(protocol, comparisons, *, title):
    return Addition([Section("own", title, tuple(comparisons))])
"""


@pytest.fixture(scope="module")
def protocol(tmp_path_factory):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, size=300)
    folder = tmp_path_factory.mktemp("protocol")
    np.savez(
        folder / "small.npz", good=3 * y[:, None] + rng.normal(size=(300, 2)), noise=rng.normal(size=(300, 3)), y=y
    )
    (folder / "sections.py").write_text(SECTIONS, encoding="utf-8")
    (folder / "own.yaml").write_text(PROTOCOL, encoding="utf-8")
    return folder / "own.yaml"


@pytest.fixture(scope="module")
def done(protocol, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CONSILIENCE_DATA", raising=False)
        folder = tmp_path_factory.mktemp("run")
        return run_protocol(
            read_protocol(protocol), quick=True, out=folder, verbose=0, command="consilience reproduce own.yaml"
        )


def test_ours_beside_the_published(done):
    [table] = done.document.tables
    assert table.header == ("method", "clean", "published", "difference", "gaussian 5", "published", "difference")
    values = reopen(done.folder / "small").findings.values
    noisy = 100 * values.filter(method="late", metric="accuracy", level=5.0)["value"].to_numpy()
    late = dict(zip(("clean", "", "", "noisy", "beside", "apart"), table.rows[0][1:]))
    decimals = len(late["noisy"].split()[0].partition(".")[2])
    assert late["noisy"].split()[0] == f"{noisy.mean():.{decimals}f}"
    assert late["noisy"].split()[2] == f"{noisy.std(ddof=1):.{decimals}f}"
    assert f"({noisy.min():.{decimals}f})" in late["noisy"]
    assert late["beside"] == f"{75:.{decimals}f} ({70:.{decimals}f})"
    assert float(late["apart"].replace("−", "-")) == pytest.approx(noisy.mean() - 75, abs=10.0**-decimals)
    assert table.rows[1][5:] == ("–", "–")


def test_claims_get_their_verdict_with_figures(done, protocol):
    content, opposite, late = done.document.answer
    assert content.startswith("Content beats noise. Found: `unimodal:good` − `unimodal:noise` +")
    assert opposite.startswith("Noise beats content. The opposite is found:")
    row = reopen(done.folder / "small").statistics("unimodal:good", ["late"]).filter(level=5.0).row(0, named=True)
    shown = re.search(r"late` − `unimodal:good` \+?(−?[\d.]+) ", late)[1].replace("−", "-")
    assert float(shown) == pytest.approx(100 * row["difference"], abs=0.06)
    few = check_claims(read_protocol(protocol).claims[:1] * 9, {"small": reopen(done.folder / "small")})
    assert len(few) == 9
    assert few[0].startswith("Content beats noise. Not decided:")
    assert few[0].endswith("; 7 seeds are too few.")
    assert in_short(few) == ["Of 9 claims: not decided 9. All are on the page."]


def test_a_claim_is_found_only_beyond_its_smallest_effect(done, protocol):
    comparison = reopen(done.folder / "small")
    content, opposite = read_protocol(protocol).claims[:2]
    row = comparison.statistics(content.than, [content.method]).filter(level=0.0).row(0, named=True)
    low, high = row["low"], row["high"]
    for effect, verdict in ((low / 2, "Found"), ((low + high) / 2, "Not decided"), (high + 0.01, "Not found")):
        [said] = check_claims([replace(content, smallest_effect=effect)], {"small": comparison})
        assert said.startswith(f"Content beats noise. {verdict}: ")
        shown = re.search(r"; the smallest effect that counts is ([\d.]+) percentage points\.$", said)[1]
        assert float(shown) == pytest.approx(100 * effect, abs=0.06)
    [said] = check_claims([replace(opposite, smallest_effect=low / 2)], {"small": comparison})
    assert said.startswith("Noise beats content. The opposite is found: ")
    [said] = check_claims([replace(opposite, smallest_effect=high + 0.01)], {"small": comparison})
    assert said.startswith("Noise beats content. Not found: ")


def test_a_difference_without_an_interval_decides_nothing_beyond_an_effect():
    assert say_verdict(0.1, 0.01, 10, 1, smallest=0.05) == "Not decided"
    assert say_verdict(0.1, 0.01, 10, 1, smallest=0.05, interval=(np.nan, np.nan)) == "Not decided"
    assert say_verdict(0.1, 0.2, 10, 1, smallest=0.05, interval=(0.06, 0.2)) == "Not decided"


def test_the_page_says_what_is_missing_and_how_it_was_made(done):
    text = (done.folder / "report.md").read_text(encoding="utf-8")
    assert "far was left out" in text
    assert "CONSILIENCE_DATA" in text
    assert "Everything is different." in text
    assert "7 seeds, on the median 8 epochs" in text
    assert "torch 2" in text
    assert "## Its own section\n\nsmall" in text
    assert "(small/report.html)" in text
    written = json.loads((done.folder / "report.json").read_text(encoding="utf-8"))
    assert written["answer"] == list(done.document.answer)
    assert written["sections"][0]["tables"][0]["rows"][0][0] == "late"


def test_without_any_data_the_error_says_what_to_get(tmp_path, monkeypatch):
    monkeypatch.delenv("CONSILIENCE_DATA", raising=False)
    path = tmp_path / "only.yaml"
    path.write_text("title: T\nparts: {far: {data: handwritten, quick: false}}\n", encoding="utf-8")
    with pytest.raises(MissingDataError, match="six-view handwritten set"):
        run_protocol(read_protocol(path), out=tmp_path / "run")
    with pytest.raises(InputError, match="every part has `quick: false`"):
        run_protocol(read_protocol(path), quick=True, out=tmp_path / "run")


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{kind: aeras, baseline: late}", "line 3: unknown kind of section 'aeras': did you mean 'areas'?"),
        ("{kind: areas, basline: late}", "line 3: unknown setting 'basline': did you mean 'baseline'?"),
        ("{kind: areas}", "line 3: a section of kind 'areas' needs baseline"),
        ("{kind: areas, baseline: lat}", "line 3: unknown method 'lat': did you mean 'late'?"),
        ("{kind: areas, baseline: late, published: {digits: {late: x}}}", "line 3: published.digits.late must be"),
        (
            "{kind: metrics, title: M, metrics: [ecce], published: {}}",
            "line 3: unknown metric 'ecce': did you mean 'ece'",
        ),
        (
            "{kind: metrics, title: M, metrics: [ece, nll], published: {digits: {late: [0.1]}}}",
            "line 3: published.digits.late must have one figure for each of ece, nll, got [0.1]",
        ),
        ("{kind: none.py:f}", "line 3: "),
    ],
)
def test_a_section_is_checked_before_anything_is_trained(tmp_path, monkeypatch, section, message):
    monkeypatch.setattr("consilience.reproduction.run_protocol.compare", lambda **_: pytest.fail("it was trained"))
    path = tmp_path / "own.yaml"
    path.write_text(f"title: T\nparts: {{digits: {{data: digits}}}}\nsections: [{section}]\n", encoding="utf-8")
    with pytest.raises(InputError) as raised:
        run_protocol(read_protocol(path), out=tmp_path / "run")
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("target: falt", "line 4: unknown target column 'falt': did you mean 'fault'?"),
        ("target: fault, encoders: {lef: mlp}", "line 4: unknown modality 'lef': did you mean 'left'?"),
    ],
)
def test_what_only_the_data_can_show_names_the_line_of_the_part(tmp_path, keys, message):
    rows = "".join(f"{number % 7},{number % 5},{number % 2}\n" for number in range(40))
    (tmp_path / "own.csv").write_text(f"a,b,fault\n{rows}", encoding="utf-8")
    path, modalities = tmp_path / "own.yaml", "modalities: {left: [a], right: [b]}"
    start = "title: T\ndefaults: {methods: [late, concat], seeds: 2, training: {epochs: 1}}\nparts:\n"
    path.write_text(f"{start}  own: {{data: own.csv, {modalities}, {keys}}}\n", encoding="utf-8")
    with pytest.raises(InputError) as raised:
        run_protocol(read_protocol(path), out=tmp_path / "run", verbose=0)
    assert message in str(raised.value)


def test_a_baseline_that_was_not_compared_is_refused(done):
    with pytest.raises(UnknownNameError, match=r"unknown baseline 'bayes'\. Known: late, unimodal:good"):
        areas(None, {"small": reopen(done.folder / "small")}, baseline="bayes")


def test_the_example_of_the_documents_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(Comparison, "report", lambda self: None)  # its figures are tested elsewhere
    example, table = (block.code for block in blocks(ROOT / "docs" / "protocols.md", "yaml"))
    (tmp_path / "own.yaml").write_text(example, encoding="utf-8")
    done = run_protocol(read_protocol(tmp_path / "own.yaml"), quick=True, out=tmp_path / "run", verbose=0)
    names = [section.name for section in done.document.sections]
    assert names == ["part-independent", "part-dependent", "claims", "areas", "differences", "made"]
    assert "published" in done.document.tables[0].header
    (tmp_path / "machines.csv").write_text("vib_1,temp_1,fault\n1,2,0\n", encoding="utf-8")
    (tmp_path / "table.yaml").write_text(table, encoding="utf-8")
    assert read_protocol(tmp_path / "table.yaml").parts["machines"].full["target"] == "fault"


def test_headlines_of_several_parts_name_the_part():
    findings = make_findings(["late", "concat"], sets=("one",), seeds=3)
    comparisons = dict.fromkeys(("pump", "valve"), SimpleNamespace(findings=findings))
    parts = {"pump": Part({}, {}, "The pump"), "valve": Part({}, {})}
    sentences = list(headlines(parts, comparisons))
    assert sentences[0].startswith("The pump: on one, ")
    assert sentences[len(sentences) // 2].startswith("On one, ")  # without a title
    assert next(headlines(parts, {"pump": comparisons["pump"]})).startswith("On one, ")


def test_another_reference_is_tested_by_itself(done):
    comparison = reopen(done.folder / "small")
    own = comparison.statistics()
    assert set(own["reference"]) == {"late"}
    other = comparison.statistics("unimodal:good")
    assert set(other["method"]) == {"late", "unimodal:noise"}
    mirrored = own.filter(method="unimodal:good", level=5.0)["difference"].item()
    assert other.filter(method="late", level=5.0)["difference"].item() == pytest.approx(-mirrored)
    alone = comparison.statistics("unimodal:good", ["late"])
    assert alone["p"].to_list() == alone["p_holm"].to_list()
    assert other.filter(pl.col("p") > pl.col("p_holm")).is_empty()
    with pytest.raises(UnknownNameError, match="It was not compared here"):
        comparison.statistics("bayes")


def test_names_of_parts_stay_in_the_run_folder(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, size=120)
    values = 3 * y[:, None] + rng.normal(size=(120, 2))
    np.savez(tmp_path / "small.npz", good=values, noise=rng.normal(size=(120, 3)), y=y)
    names = ["..", str(tmp_path / "precious"), "figures", "report.html", "A", "a", "plain"]
    defaults = {"data": "small.npz", "methods": ["late"], "seeds": 1, "levels": [], "training": {"epochs": 1}}
    text = json.dumps({"title": "T", "defaults": defaults, "parts": {name: {"title": name} for name in names}})
    (tmp_path / "own.yaml").write_text(text)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "data").write_text("kept")
    done = run_protocol(read_protocol(tmp_path / "own.yaml"), out=tmp_path / "run", verbose=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own.yaml", "precious", "run", "small.npz"]
    assert [path.name for path in (tmp_path / "precious").iterdir()] == ["data"]
    linked = re.findall(r"\(([^()\s]+)/report\.html\)", (done.folder / "report.md").read_text())
    assert len({name.casefold() for name in linked}) == len(names)
    assert all((done.folder / name / "report.html").is_file() for name in linked)
    assert "plain" in linked
    assert (done.folder / "figures").is_dir()
    assert not (done.folder / "figures" / "plan.json").exists()


def test_a_protocol_does_not_replace_a_stranger_s_page(protocol, tmp_path):
    (tmp_path / "report.html").write_text("my home page")
    with pytest.raises(InputError, match=r"report\.html exists and was not written by a report"):
        run_protocol(read_protocol(protocol), quick=True, out=tmp_path, verbose=0)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
