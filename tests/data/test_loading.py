import subprocess
import sys

import numpy as np
import pytest

from consilience.core.errors import ConsilienceError, InputError, MissingDataError, UnknownNameError
from consilience.data import data_names, list_sets, load_data
from consilience.data.named_sets import register, registry

BUILT_IN = [name for name, entry in registry().items() if entry.built_in]


def test_what_is_known():
    assert {"digits", "gaussians", "progressive-synthetic", "sequences", "captions"} == set(BUILT_IN)
    assert {"mnist", "handwritten", "mvsa", "avmnist-predictions"} <= set(data_names())
    assert all(entry.description for entry in registry().values())


def test_listing_says_what_is_available(tmp_path, monkeypatch):
    monkeypatch.delenv("CONSILIENCE_DATA", raising=False)
    listed = {one["name"]: one for one in list_sets()}
    assert list(listed) == data_names()
    assert listed["digits"] == {
        "name": "digits",
        "description": registry()["digits"].description,
        "licence": registry()["digits"].licence,
        "built_in": True,
        "available": True,
    }
    assert {name for name, one in listed.items() if one["available"]} == set(BUILT_IN)
    (tmp_path / "mvsa_single").mkdir()
    (tmp_path / "mvsa_single" / "features_effnetlite0_minilm.npz").touch()
    (tmp_path / "mnist").mkdir()  # without its files
    expected = {*BUILT_IN, "mvsa"}
    assert {one["name"] for one in list_sets(tmp_path) if one["available"]} == expected
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path))
    assert {one["name"] for one in list_sets() if one["available"]} == expected
    assert {one["name"] for one in list_sets(tmp_path / "nowhere") if one["available"]} == set(BUILT_IN)


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_sets_are_reproducible_and_seeded(name):
    data, again, other = load_data(name, seed=1), load_data(name, seed=1), load_data(name, seed=2)
    assert data.name == name
    assert data.description
    assert not data.official_split
    for modality in data.modalities:
        assert np.array_equal(data.samples[modality], again.samples[modality])
    assert (data.split == again.split).all()
    assert (data.split != other.split).any()
    assert 1000 <= len(data) <= 2000


def test_modalities_keep_some():
    data = load_data("digits", modalities=["top_right", "top_left"])
    assert tuple(data.modalities) == ("top_right", "top_left")
    with pytest.raises(UnknownNameError, match="did you mean 'top_left'"):
        load_data("digits", modalities=["topleft"])
    for wrong in ([], ["top_left", "top_left"], "top_left", {"a": "top_*"}):
        with pytest.raises(InputError, match="modalities"):
            load_data("digits", modalities=wrong)


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(UnknownNameError, match="data set 'digit': did you mean 'digits'"):
        load_data("digit")
    with pytest.raises(UnknownNameError, match="option 'dependance': did you mean 'dependence'"):
        load_data("gaussians", dependance=0.5)
    with pytest.raises(UnknownNameError, match="task 'clasification'"):
        load_data("digits", task="clasification")


def test_paths_that_lead_nowhere(tmp_path):
    (tmp_path / "mydata.csv").write_text("a,b\n1,2\n")
    with pytest.raises(MissingDataError, match=r"did you mean 'mydata.csv'"):
        load_data(tmp_path / "mydat.csv")
    with pytest.raises(MissingDataError, match="does not exist"):
        load_data(tmp_path / "nowhere" / "x.csv")
    (tmp_path / "notes.docx").write_text("")
    with pytest.raises(InputError, match=r"the format of 'notes\.docx' is unknown"):
        load_data(tmp_path / "notes.docx")
    with pytest.raises(UnknownNameError, match="option 'dependence'"):
        load_data(tmp_path / "mydata.csv", dependence=1)


def test_arguments_for_files_are_refused_for_named_sets():
    with pytest.raises(InputError, match="has its own target"):
        load_data("digits", target="label")


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("gaussians", "dependence", 1),
        ("gaussians", "dependence", -0.1),
        ("gaussians", "n", 2.5),
        ("gaussians", "n_classes", 1),
        ("gaussians", "n", "many"),
        ("gaussians", "prior", [0.5, 0.6, -0.1]),
        ("progressive-synthetic", "sigma2", -1),
        ("progressive-synthetic", "eta", "strong"),
        ("sequences", "longest", 3),
        ("captions", "noise", float("nan")),
        ("digits", "seed", -1),
    ],
)
def test_options_out_of_range_are_named(name, option, value):
    with pytest.raises(InputError, match=f"(data set '{name}': |load_data: |^){option} must be"):
        load_data(name, **{option: value})


def test_a_name_is_registered_once_and_well_formed():
    with pytest.raises(ConsilienceError, match="registered twice"):
        register("digits", description="again")(lambda: None)
    with pytest.raises(ConsilienceError, match="lower-case"):
        register("My Set", description="odd")(lambda: None)


def test_listing_loads_nothing_heavy():
    code = (
        "import sys; from consilience.data import list_sets; list_sets(); "
        "print([m for m in ('torch', 'polars', 'sklearn', 'scipy') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_neither_name_nor_path_nor_frame():
    with pytest.raises(InputError, match="a set by name, a file by its path, or a DataFrame, got list"):
        load_data([[1.0]])
