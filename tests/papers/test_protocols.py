"""Every protocol in `papers` is valid, and says what its paper says."""

import inspect

import numpy as np
import pytest

from consilience import compare, load_data
from consilience.comparison.plan import applicable
from consilience.core.modalities import Modality
from consilience.core.targets import Task
from consilience.corruption import corruption_names
from consilience.methods import Spec, build
from consilience.reproduction.protocol import read_protocol
from consilience.reproduction.protocol_sections import find_section
from documents import ROOT

PAPERS = ROOT / "papers"
READ = {path.stem: read_protocol(path) for path in sorted(PAPERS.glob("*.yaml"))}
ALL = {name: protocol for name, protocol in READ.items() if protocol.script is None}
PARTS = [
    pytest.param(name, part, id=f"{name}/{label}")
    for name, protocol in ALL.items()
    for label, part in protocol.parts.items()
]
FINANCE = ("progressive-table6", "progressive-table6-large", "progressive-table7")
STAND_INS = ("mvsa", "handwritten", "av-mnist")


def test_nothing_is_lost():
    assert len(ALL) >= 22
    assert {"digits-robustness", "robustness", "qmf-table1", "tmc-handwritten", "sets-mosi"} <= set(ALL)


@pytest.mark.parametrize(("name", "part"), PARTS)
def test_parts_are_arguments_of_compare(name, part):
    from consilience.data.named_sets import registry

    allowed = set(inspect.signature(compare).parameters)
    for arguments in (part.full, part.quick):
        if arguments is None:
            continue
        assert arguments.keys() - allowed <= set(registry()[arguments["data"]].options)
        assert set(arguments.get("corruption", ())) <= set(corruption_names())
    assert part.full["seeds"] >= 10
    assert part.quick is None or part.quick["seeds"] < part.full["seeds"]


@pytest.mark.parametrize("protocol", ALL.values(), ids=ALL)
def test_sections_can_be_made(protocol):
    for request in protocol.sections:
        assert callable(find_section(request))
    assert any(part.quick is not None for part in protocol.parts.values())


def test_figures_of_the_qmf_paper_agree_with_each_other():
    tables = ALL["qmf-table1"].tables
    pairs = [
        pair
        for name in ("NYU Depth V2", "SUN RGB-D", "FOOD 101", "MVSA")
        for row in tables[name].values()
        for pair in row
    ]
    pairs += [pair for row in ALL["qmf-table2"].tables["table-2"].values() for pair in row]
    assert len(pairs) == 34 * 3 + 4 * 4
    assert all(0 < worst <= mean < 100 for mean, worst in pairs)
    first, fifth, sixth = (
        np.array([[pair[0] for pair in row] for row in table.values()])
        for table in (tables["MVSA"], ALL["qmf-table5"].tables["table-5"], ALL["qmf-table6"].tables["table-6"])
    )
    np.testing.assert_allclose(fifth, first, atol=0.011)  # rounded twice
    np.testing.assert_allclose(sixth[:, 0], first[:, 0], atol=0.031)
    published = ALL["qmf-table1"].published
    noisy = {(part, method) for part, method, _, level in published if level}
    assert noisy == {("mvsa-words", "unimodal:text")}  # the noise of all others is not the paper's
    for row, method in (("Img", "unimodal:image"), ("Late fusion", "late"), ("Ours", "qmf")):
        figure = published["mvsa", method, "clean", 0.0]
        assert [100 * figure.mean, 100 * figure.worst] == pytest.approx(tables["MVSA"][row][0])


@pytest.mark.parametrize("name", ["qmf-table1", "qmf-table2", "qmf-table3", "qmf-table5", "qmf-table6", "qmf-figure1"])
def test_the_qmf_tables_have_the_same_sets(name):
    assert tuple(ALL[name].parts)[:3] == STAND_INS
    for label in STAND_INS:
        assert ALL[name].parts[label].full["data"] == label


@pytest.mark.parametrize("name", FINANCE)
@pytest.mark.parametrize("quick", [False, True])
def test_every_model_of_a_finance_table_can_be_built(name, quick):
    part = ALL[name].parts["tech"]
    arguments = part.quick if quick else part.full
    stocks = {stock: Modality(stock, "sequence", (6, 1)) for stock in ("MSFT", "AMD")}
    spec = Spec(stocks, Task.of_numbers(np.random.default_rng(0).normal(size=(9, 2))))
    for method in arguments["methods"]:
        assert getattr(build(method, spec, arguments["settings"].get(method)), "steps", 2) == 2
    settings = arguments["settings"]
    assert settings.keys() <= set(arguments["methods"])
    bases = {method: chosen for method, chosen in settings.items() if not method.startswith("pro:")}
    assert all(settings.get(f"pro:{method}", chosen) == chosen for method, chosen in bases.items())


@pytest.mark.parametrize("name", [*FINANCE, "progressive-table8", "progressive-table9"])
def test_every_loop_is_claimed_to_improve_its_base_with_the_published_figures(name):
    protocol = ALL[name]
    for claim in protocol.claims:
        assert claim.method == f"pro:{claim.than}"
        keys = [(claim.part, method, "clean", 0.0) for method in (claim.than, claim.method)]
        if keys[1] in protocol.published:
            scale = 1 if name in FINANCE else 100
            base, loop = (f"{scale * protocol.published[key].mean:g}" for key in keys)
            assert f"(published: {base} → {loop}" in claim.says
    loops = {(part, m) for part, each in protocol.parts.items() for m in each.full["methods"] if m.startswith("pro:")}
    assert loops == {(claim.part, claim.method) for claim in protocol.claims}


@pytest.mark.parametrize(("side", "quick"), [(112, False), (28, True)])
def test_every_method_on_av_mnist_can_be_built(side, quick):
    part = ALL["progressive-table9"].parts["av-mnist"]
    arguments = part.quick if quick else part.full
    shapes = {"image": (1, 28, 28), "audio": (1, side, side)}
    spec = Spec({name: Modality(name, "image", shape) for name, shape in shapes.items()}, Task.of_labels(np.arange(10)))
    for name in arguments["methods"]:
        if quick or not name.startswith("wide:"):  # which are slow to build
            build(name, spec, arguments["settings"].get(name))
    assert arguments["settings"].keys() <= set(arguments["methods"])


def test_robustness_has_every_corruption_and_method_that_serves():
    parts = ALL["robustness"].parts
    # One paper's forms of two that are there, and those of conflict-handwritten, which hit one modality at most.
    published = {"qmf-gaussian", "qmf-salt-and-pepper", "rcml-conflict", "conflicting"}
    assert set(parts["digits"].full["corruption"]) == set(corruption_names("vector")) - published
    assert set(parts["captions"].full["corruption"]) == set(corruption_names("text")) - published
    assert {part.set for label, part in parts.items() if label.startswith("hydraulic-")} == {"hydraulic"}
    methods = parts["digits"].full["methods"]
    for name in ("digits", "gaussians", "captions", "sequences"):  # which need no download
        assert applicable(methods, "", load_data(name)) == (methods, {})
