"""The fair test of progressive fusion: fresh pairs, equal trials, a run that goes on, and what its page concludes."""

import json

import numpy as np
import pytest
import torch
from scipy import stats

from consilience.comparison.store import Result
from consilience.data import load_data
from paper_scripts import script

fair = script("progressive-fair")
pairs_module, search = fair.fresh_pairs, fair.fair_search
page = fair.load_script(fair.HERE / "progressive" / "fair_page.py")
TINY = fair.FULL | {
    "bases": ["concat"],
    "variants": ["base", "pro"],
    "dependence": [0.0, 1.0],
    "trials": 2,
    "forms": 1,
    "epochs": 1,
    "steps": 2,
    "batch_size": 12,
    "seeds": 2,
    "block": 1,
    "synthetic": None,
}
SYNTHETIC = fair.FULL["synthetic"] | {"n": 40, "epochs": 1, "draws": 2, "tuning_draws": 1, "trials": 3, "hidden": 4}


@pytest.fixture(scope="module")
def arrays():
    """Two classes; 90 images and 40 recordings of 8×8 and 4×4 bytes, whose mean is their style."""
    random = np.random.default_rng(0)
    digit, spoken = np.arange(90) % 2, np.arange(40) % 2
    ink, loudness = random.uniform(60, 190, 90), random.uniform(60, 190, 40)
    image = random.integers(-50, 50, (90, 1, 8, 8)) + ink[:, None, None, None]
    audio = random.integers(-50, 50, (40, 1, 8, 8)) + loudness[:, None, None, None]
    parts = np.array(["train", "validation", "test"])
    return {
        "image": image.astype(np.uint8),
        "digit": digit,
        "part": parts[np.arange(90) // 2 % 3],
        "ink": ink,
        "audio": audio.astype(np.uint8),
        "spoken": spoken,
        "part_of_recording": parts[np.arange(40) // 2 % 3],
        "loudness": loudness,
    }


@pytest.fixture
def pairs(arrays):
    return pairs_module.FreshPairs(arrays, noise=20.0, epoch_pairs=24, device="cpu")


def test_pairs_are_of_one_digit_and_part_and_new_in_every_epoch(arrays, pairs):
    for part in ("train", "validation", "test"):
        images, recordings = pairs.pairs(part, 0.0, seed=3)
        assert (arrays["part"][images] == part).all()
        assert (arrays["part_of_recording"][recordings] == part).all()
        assert (arrays["digit"][images] == arrays["spoken"][recordings]).all()
    first, again, other = (pairs.pairs("train", 0.0, seed=3, epoch=epoch) for epoch in (0, 0, 1))
    assert len(first[0]) == 24
    assert (first[1] == again[1]).all()
    assert (first[0] != other[0]).any()
    assert (first[1] != other[1]).any()


def test_dependence_orders_pairs_by_style(arrays, pairs):
    images, recordings = pairs.pairs("test", 1.0, seed=3)
    for digit in (0, 1):
        here = arrays["digit"][images] == digit
        order = np.argsort(arrays["ink"][images][here])
        assert (np.diff(arrays["loudness"][recordings][here][order]) >= 0).all()


def test_models_get_their_own_pairs_and_the_values_of_these(arrays, pairs):
    asked = [(0.0, 1), (1.0, 1), (0.0, 2)]
    train = pairs.train(asked)
    assert (len(train), train.samples) == (3, 24)
    assert not torch.equal(train.places["audio"][0], train.places["audio"][1])
    assert not torch.equal(train.places["image"][0], train.places["image"][2])
    later = pairs.renewing(asked)(1, [2, 0], train)
    for place, (dependence, seed) in enumerate([asked[2], asked[0]]):
        images, recordings = pairs.pairs("train", dependence, seed, epoch=1)
        assert later.y[place].tolist() == arrays["digit"][images].tolist()
        batch = later.only(torch.tensor([place])).rows(slice(None))
        for name, rows in (("image", images), ("audio", recordings)):
            mean, spread = pairs.scale[name]
            expected = (arrays[name][rows].astype(float) - mean) / spread
            torch.testing.assert_close(batch.values[name][0].double(), torch.from_numpy(expected), atol=1e-5, rtol=1e-5)
    known = arrays["image"][arrays["part"] == "train"].astype(float)
    assert pairs.scale["image"] == (pytest.approx(known.mean()), pytest.approx(known.std()))


def test_noise_is_new_in_every_batch_on_the_sound_alone_and_within_bytes(pairs):
    batch = pairs.train([(0.0, 1)]).rows(slice(None))
    first, second = (pairs.augmenter.apply(None, batch, None, None).values for _ in range(2))
    assert torch.equal(first["image"], batch.values["image"])
    assert not torch.equal(first["audio"], second["audio"])
    mean, spread = pairs.scale["audio"]
    raw = first["audio"] * spread + mean
    assert (raw - raw.round()).abs().max() < 1e-3
    assert raw.min() > -0.01
    assert raw.max() < 255.01
    assert (first["audio"] - second["audio"]).mul(spread).std() == pytest.approx(20 * np.sqrt(2), rel=0.1)
    fixed = [pairs.validation([(0.0, 1), (0.0, 1)]).values["audio"] for _ in range(2)]
    assert torch.equal(fixed[0], fixed[1])
    assert torch.equal(fixed[0][0], fixed[0][1])


def test_all_variants_have_the_same_trials_within_the_range_that_is_searched():
    for base in fair.FULL["bases"]:
        trials = search.draw_trials(base, fair.FULL)
        assert trials == search.draw_trials(base, fair.FULL)
        assert len(trials) == fair.FULL["trials"]
        for name in ("lr", "weight_decay"):
            values = np.log([trial[name] for trial in trials])
            low, high = np.log(fair.FULL[name])
            strata = np.floor((values - low) / (high - low) * len(trials)).astype(int)
            assert sorted(strata) == list(range(len(trials)))  # one in every part of the range
        forms = [str(trial["form"]) for trial in trials]
        assert len(set(forms)) == fair.FULL["forms"]
        assert search.form_of("base", trials[0]) == ("", {})
        assert search.form_of("wide", trials[1]) == ("wide:", trials[1]["form"])
    assert all(form["into"] != "conv4" for form in search.draw_forms("mfas", fair.FULL | {"forms": 12}))
    behind = search.draw_forms("lowrank", fair.FULL | {"places": {"lowrank": ["end"]}})
    assert [(form["into"], form["mode"]) for form in behind] == [("end", "add")] * 2


@pytest.fixture
def as_data(monkeypatch, arrays):
    made = pairs_module.FreshPairs(arrays, noise=20.0, epoch_pairs=24, device="cpu")
    monkeypatch.setattr(fair, "data_of", lambda settings: made)
    # Encoders of 8×8 pixels have three stages.
    forms = [{"into": "conv2", "mode": "add", "steps": 2}]
    monkeypatch.setattr(search, "draw_forms", lambda base, settings: forms)
    return made


def test_a_run_goes_on_where_it_stopped_and_more_seeds_extend_it(as_data, tmp_path, monkeypatch):
    first = fair.run(settings=TINY | {"seeds": 1}, out=tmp_path / "run", verbose=0)
    assert "1 seed" in first.document.answer[0]
    files = {path.name: path.read_bytes() for path in (tmp_path / "run" / "jobs").glob("*.npz")}
    assert len(files) == 2 * 2  # trials and one seed of both variants
    counted = []
    whole = search.compare_seeds
    monkeypatch.setattr(search, "compare_seeds", lambda *given: counted.append(given[3]) or whole(*given))
    monkeypatch.setattr(search, "tune", lambda *given: pytest.fail("trials were measured before"))
    second = fair.run(settings=TINY, out=tmp_path / "run", verbose=0)
    assert counted == [[1], [1]]
    assert "2 seeds" in second.document.answer[0]
    now = {path.name: path.read_bytes() for path in (tmp_path / "run" / "jobs").glob("*.npz")}
    assert files.items() <= now.items()
    found = fair.read(TINY, fair.settle(TINY, tmp_path / "run"))
    for trials, finals in found.values():
        assert trials.arrays["losses"].shape == (2, 2)
        for final in finals:
            assert final.arrays["accuracy/clean"].shape == (2, 1)


def test_the_chosen_trial_is_the_best_on_validation_pairs(as_data, monkeypatch):
    losses = np.array([[0.9, 0.2], [0.3, np.inf]])
    used = []
    whole = search.train_models
    monkeypatch.setattr(search, "train_models", lambda *given, **more: used.append(given) or whole(*given, **more))
    arrays, about = search.compare_seeds("concat", "base", losses, [5, 6], as_data, TINY)
    trials = search.draw_trials("concat", TINY)
    assert [chosen["lr"] for chosen in about] == [trials[1]["lr"], trials[0]["lr"]]
    assert used[0][2] == [(0.0, 5), (0.0, 6), (1.0, 5), (1.0, 6)]
    assert [trial["lr"] for trial in used[0][3]] == [trials[1]["lr"]] * 2 + [trials[0]["lr"]] * 2
    assert arrays["accuracy/noise"].shape == (2, 2)
    for values in arrays.values():
        assert np.isfinite(values).all()


def test_heads_of_gradient_blend_have_weights_that_sum_to_one(as_data):
    weights = search.find_blend(as_data, (0.0, 1.0), 12)
    assert list(weights) == [0.0, 1.0]
    for values in weights.values():
        assert len(values) == 3
        assert sum(values) == pytest.approx(1)
        assert min(values) > 0


def invented(gain):
    """Findings with a gain of the loop at dependence 1, and seeds that differ."""
    random, settings = np.random.default_rng(0), fair.FULL | {"seeds": 5}
    found = {}
    for base in settings["bases"]:
        for variant in settings["variants"]:
            shift = np.array([0, 0, gain])[:, None] * (variant == "pro")
            arrays = {
                f"accuracy/{condition}": 0.7 + shift + random.normal(0, 0.002, (3, 5)) for condition in page.CONDITIONS
            }
            trial = {"lr": 1e-3, "weight_decay": 1e-4, "form": {}, "parameters": 1000}
            finals = [Result({"chosen": [trial] * 3, "device": "a machine"}, arrays)]
            found[base, variant] = (Result({}, {"losses": np.ones((6, 3))}), finals)
    return settings, found


@pytest.mark.parametrize(
    ("gain", "said"),
    [(0.05, "helps, beyond its controls, on clean test pairs at dependence 1 and"), (0, "nowhere")],
)
def test_what_is_concluded_follows_from_the_gains(gain, said):
    settings, found = invented(gain)
    document = page.describe(fair.TITLE, fair.PAPER, fair.STUDY, settings, found, {}, "command", None)
    assert said in document.answer[0]
    degrees = "0, 0.7 and 1" if gain == 0 else "0 and 0.7"
    assert f"excluded on clean test pairs at dependence {degrees} and on noisy" in document.answer[1]
    assert [section.name for section in document.sections if section.figures] == ["when"]
    json.dumps(document.to_json())


def test_gains_have_students_interval():
    values = np.array([0.01, 0.03, 0.02, 0.04])
    gain = page.Gain.of(values)
    half = 3.182446 * values.std(ddof=1) / 2  # the quantile of a table, three degrees of freedom
    assert (gain.low, gain.high) == (pytest.approx(0.025 - half), pytest.approx(0.025 + half))
    assert np.isnan(page.Gain.of([0.01]).p)


def test_all_models_together_are_judged_over_models_not_over_seeds():
    settings, found = invented(0.05)
    findings = page.Findings.of(settings, found)
    means = [findings.gains(base, "pro", "clean", 1.0).mean() for base in settings["bases"]]
    gain = findings.together("pro", "clean", 1.0)
    assert (gain.mean, gain.p) == (pytest.approx(np.mean(means)), pytest.approx(stats.ttest_1samp(means, 0).pvalue))


def test_a_base_that_lacks_a_variant_is_left_out():
    settings, found = invented(0)
    del found["mfas", "wide"]
    assert page.Findings.of(settings, found).bases == [base for base in settings["bases"] if base != "mfas"]


def test_synthetic_samples_are_the_named_sets_standardised_by_what_is_trained_on():
    asked = [(0.0, 3), (1.0, 3)]
    train, validation, test = fair.fair_synthetic.draw(asked, SYNTHETIC)
    assert (train.samples, validation.samples, test.samples) == (40, 40, 5000)
    raw = load_data("progressive-synthetic", n=5080, eta=1.0, sigma2=0.5, dependence=1.0, seed=3).samples["x2"]
    expected = (raw[80:] - raw[:40].mean(axis=0)) / raw[:40].std(axis=0)
    np.testing.assert_allclose(test.values["x2"][1], expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(train.values["x1"][0], train.values["x1"][1])  # the dial changes the second modality alone
    assert not torch.equal(train.values["x2"][0], train.values["x2"][1])


@pytest.mark.parametrize("variant", ["base", "pro"])
def test_the_synthetic_part_tests_the_chosen_trial_on_new_draws(variant, monkeypatch):
    used = []
    whole = fair.fair_synthetic._train
    monkeypatch.setattr(fair.fair_synthetic, "_train", lambda *given: used.append(given[2]) or whole(*given))
    result = fair.measure_synthetic(SYNTHETIC, variant)
    assert result.arrays["errors"].shape == (3, 2)
    assert np.isfinite(result.arrays["errors"]).all()
    tuned = [model for models in used for model in models if model[2] >= 1000]
    tested = [model for models in used for model in models if model[2] < 1000]
    assert len(tuned) == 3 * 3  # trials and degrees
    assert sorted(model[1:] for model in tested) == [(degree, seed) for degree in (0.0, 0.7, 1.0) for seed in (0, 1)]
    for trial, degree, _ in tested:
        assert trial == result.about["chosen"][SYNTHETIC["dependence"].index(degree)]


def test_gains_on_the_synthetic_part_are_shares_of_the_late_nets_error():
    errors = {"base": [1.0, 2.0, 4.0], "pro": [0.5, 1.0, 3.0]}
    results = {name: Result({"chosen": []}, {"errors": np.array([values] * 3)}) for name, values in errors.items()}
    assert page.relative_gains(results, "pro", 0).tolist() == [0.5, 0.5, 0.25]
    settings = {"synthetic": SYNTHETIC | {"draws": 3}}
    (sentence,) = page.answer_synthetic(results, settings)
    assert "by 41.67" in sentence
    assert "(3 of 3 draws)" in sentence
    (section,) = page.synthetic_sections(results, settings, fair.STUDY)
    assert [row[0] for row in section.tables[0].rows] == ["0", "0.7", "1"]
    assert page.synthetic_sections({}, settings, fair.STUDY) == ()
