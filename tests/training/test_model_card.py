"""The card of a saved model: metadata as the Hugging Face hub reads them, and only what was measured."""

import json

import numpy as np
import pytest
import yaml

import consilience as cs
from consilience.core.errors import InputError
from consilience.training.model_card import Result, Results, model_card, write_card
from consilience.training.model_folder import CARD, DESCRIPTION, read_description

HOSTILE = 'a"]: {x: 1}\n---\n# <script>alert(1)</script> | `b` \u2028 [l](http://x)'


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    random = np.random.default_rng(0)
    X = {"left": random.normal(size=(60, 3)), "right": random.normal(size=(60, 2))}
    X["right"][:15] = np.nan
    model = cs.FusionClassifier("late", epochs=1, device="cpu", validation=None).fit(X, np.arange(60) % 2)
    return model.save(tmp_path_factory.mktemp("card") / "model")


def metadata(text):
    _, front, rest = text.split("---\n", 2)
    return yaml.safe_load(front), rest


def test_a_model_without_measured_metrics_says_so(saved):
    front, text = metadata((saved / CARD).read_text(encoding="utf-8"))
    assert front["library_name"] == "consilience"
    assert front["pipeline_tag"] == "tabular-classification"
    assert "model-index" not in front
    assert "No metrics were measured" in text
    assert "It learned from 60 samples." in text
    assert "| right | vector \\[2\\] | 25.0 % |" in text  # counted by hand above
    assert "| left | vector \\[3\\] | 0.0 % |" in text


def test_the_hub_reads_the_metrics(saved):
    hub = pytest.importorskip("huggingface_hub")
    results = Results(
        "toy", "On 9 samples.", (Result("nll", "log-loss", 1e-5, 0.0, 2e-5), Result("accuracy", "acc", 1))
    )
    card = hub.ModelCard(model_card(read_description(saved), results))
    found = {each.metric_type: each for each in card.data.eval_results}
    assert found["nll"].metric_value == pytest.approx(1e-5)
    assert found["nll"].metric_name == "log-loss (95 % interval 0 to 2e-05)"
    assert found["accuracy"].metric_value == 1
    assert found["accuracy"].dataset_name == "toy"


def test_foreign_names_neither_end_the_metadata_nor_become_markdown(saved):
    described = json.loads((saved / DESCRIPTION).read_text())
    described["method"] = described["recipe"] = HOSTILE
    described["recipe"] = {"data": HOSTILE}
    described["preparation"]["task"]["classes"] = [HOSTILE]
    described["preparation"]["modalities"][0]["modality"] = HOSTILE
    results = Results(HOSTILE, HOSTILE, (Result(HOSTILE, HOSTILE, 0.5),), ((HOSTILE, HOSTILE),))
    front, text = metadata(model_card(described, results))
    plain = " ".join(HOSTILE.split())
    assert front["tags"][-1] == plain
    assert front["model-index"][0]["results"][0]["metrics"][0]["type"] == plain
    assert front["model-index"][0]["results"][0]["dataset"]["name"] == plain
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert not any(line.startswith("---") for line in text.splitlines())
    assert len([line for line in text.splitlines() if line.startswith("# ")]) == 1


def test_a_card_is_no_part_of_the_checksums_and_is_replaced_with_the_model(saved):
    (saved / CARD).write_text("my own words", encoding="utf-8")
    model = cs.load(saved)
    assert model.save(saved) == saved
    text = (saved / CARD).read_text(encoding="utf-8")
    assert "my own words" not in text
    assert "It learned from 60 samples." in text  # a loaded model still knows


def test_a_link_is_not_followed(saved, tmp_path):
    outside = tmp_path / "precious.txt"
    outside.write_text("precious")
    (saved / CARD).unlink()
    (saved / CARD).symlink_to(outside)
    assert not write_card(saved, read_description(saved), Results("toy", "", (Result("accuracy", "accuracy", 0.5),)))
    assert outside.read_text() == "precious"
    (saved / CARD).unlink()


def test_a_folder_with_a_readme_of_its_own_is_no_model(tmp_path, saved):
    (tmp_path / CARD).write_text("a project")
    with pytest.raises(InputError, match="not a model"):
        cs.load(saved).save(tmp_path)
    assert (tmp_path / CARD).read_text() == "a project"
