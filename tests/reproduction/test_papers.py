"""What `consilience reproduce` runs: protocols and scripts by path, or by name in a folder `papers`."""

import pytest

import consilience
from consilience.core.errors import InputError, UnknownNameError
from consilience.reproduction import papers
from consilience.reproduction.papers import find_paper, list_papers, run_paper
from consilience.reproduction.yaml_lines import read_yaml
from documents import ROOT

SCRIPT = '''"""A study."""
raise_if_executed = open(__file__)  # the list must not execute this
TITLE = "A study of its own"
PAPER: str = ""


def run(**options):
    return options
'''


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """As if the package were installed, in an empty directory."""
    monkeypatch.setattr(consilience, "__file__", str(tmp_path / "site-packages" / "consilience" / "__init__.py"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def own(installed):
    folder = installed / "papers"
    folder.mkdir()
    (folder / "study.py").write_text(SCRIPT, encoding="utf-8")
    (folder / "other.py").write_text(SCRIPT.replace("A study of", "Another of"), encoding="utf-8")
    (folder / "named.yaml").write_text("title: By name\nscript: study.py\nsettings: {n: 3}\n", encoding="utf-8")
    (folder / "table.yaml").write_text("title: A table\nparts: {digits: {data: digits}}\n", encoding="utf-8")
    (folder / "bad.yaml").write_text("title: A\ntitle: B\n", encoding="utf-8")
    return folder


def test_a_clone_has_the_papers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_paper("qmf-table1") == ROOT / "papers" / "qmf-table1.yaml"
    titles = list_papers()
    assert titles["digits-robustness"] == read_yaml(ROOT / "papers" / "digits-robustness.yaml")["title"]
    assert list(titles) == sorted(titles)
    with pytest.raises(UnknownNameError, match="unknown protocol 'digit-robustness': did you mean 'digits-robustness'"):
        find_paper("digit-robustness")


def test_an_installed_package_has_none_and_says_what_to_do(installed):
    assert list_papers() == {}
    with pytest.raises(InputError, match=r"there is no folder 'papers' .* give the path of a protocol file"):
        find_paper("qmf-table1")


def test_the_list_reads_titles_and_executes_nothing(own, monkeypatch):
    monkeypatch.setattr(papers, "load_script", lambda path: pytest.fail("a script was executed"))
    titles = list_papers()
    bad = titles.pop("bad")
    assert "line 2: the key 'title' is given twice" in bad
    # study.py is listed under the name of the protocol that runs it.
    assert titles == {"named": "By name", "other": "Another of its own", "table": "A table"}


def test_names_and_paths(own):
    assert find_paper("other") == find_paper("papers/other.py").resolve().relative_to(own.parent)
    assert find_paper("study").name == "study.py"  # not listed, yet found
    reason = r"there is no file|is not a protocol file|unknown protocol"
    for wrong in ("papers/none.yaml", "none.py", "papers"):
        with pytest.raises((InputError, UnknownNameError), match=reason):
            find_paper(wrong)
    with pytest.raises(InputError, match=r"is not a protocol file \(.yaml\) or a script \(.py\)"):
        find_paper("papers/none.txt")


def test_scripts_get_their_settings(own):
    assert run_paper(own / "study.py", quick=True, jobs=2) == {"quick": True, "jobs": 2}
    assert run_paper(own / "named.yaml", quick=False) == {"name": "named", "n": 3, "quick": False}
    with pytest.raises(InputError, match="--side-by-side is for comparisons of methods: study"):
        run_paper(own / "study.py", side_by_side=True)
    (own / "empty.py").write_text("TITLE = 'x'\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"empty.py has no function run"):
        run_paper(own / "empty.py")


def test_protocols_are_run_with_all_options(own, monkeypatch):
    calls = []
    monkeypatch.setattr(papers, "run_protocol", lambda protocol, **options: calls.append((protocol.title, options)))
    run_paper(own / "table.yaml", side_by_side=True, quick=True)
    assert calls == [("A table", {"side_by_side": True, "quick": True})]
