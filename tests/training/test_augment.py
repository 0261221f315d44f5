"""Training with corruptions against closed forms, and against `corrupt`'s functions on raw samples."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from consilience.core.errors import InputError, UnknownNameError, UnsupportedError
from consilience.core.samples import Samples
from consilience.corruption.augmentation import augment_samples, choose_augmentations
from consilience.corruption.reference import Reference
from consilience.methods import find
from consilience.methods.opinions.bayes import Bayes
from consilience.preparation import Preparation
from consilience.training import Model, Trainer
from consilience.training.augment_batch import Augmenter
from consilience.training.batch_loader import BatchLoader
from consilience.training.stacked_seeds import fit_together
from training.toys import Straight, make, make_samples, prepare, same, trainer, weights

CPU = torch.device("cpu")


class Watching(Straight):
    """Keeps what reaches it: in training by epoch, position and modality, and of validation."""

    def __init__(self, spec):
        super().__init__(spec)
        self.seen, self.validated = [], []

    def forward(self, batch):
        (self.seen if self.training else self.validated).append(batch)
        return super().forward(batch)


def watched(samples, name="a", **settings):
    """What reaches the method in each epoch, in the order of the set: values `[epoch, n, *shape]`, and presence."""
    preparation = prepare(samples)
    module = make(Watching, preparation)
    trainer(preparation, patience=None, **settings).run(module, samples, samples)
    epochs = settings.get("epochs", 3)
    index = torch.cat([batch.index for batch in module.seen]).reshape(epochs, -1)
    order = index.argsort(dim=1)
    values = torch.cat([batch[name] for batch in module.seen]).reshape(epochs, len(samples), -1)
    present = torch.cat([batch.present for batch in module.seen]).reshape(epochs, len(samples), -1)
    pick = torch.arange(epochs)[:, None], order
    return values[pick], present[pick], module


def wide(n=400, width=50, seed=0):
    random = np.random.default_rng(seed)
    a = random.normal(3, random.uniform(0.1, 20, size=width), size=(n, width))
    a[:, 0] = 7.0  # a constant feature
    return Samples.of({"a": a, "b": random.normal(size=(n, 2))}, random.normal(size=n))


def test_moments_of_what_reaches_the_encoder():
    samples = wide()
    clean = prepare(samples).batch(samples)["a"]
    values, _, module = watched(samples, augment={"a": "gaussian:0..2@0.5"}, epochs=2)
    noise = (values - clean)[..., 1:]
    assert torch.equal(values[..., 0], clean[:, 0].expand(2, -1))  # as corrupt: a constant feature has std 0
    size = noise.square().mean(dim=2).sqrt()  # of each sample: its level, up to √(2/49)
    assert (size > 0).float().mean().item() == pytest.approx(0.5, abs=0.05)
    # E level² = 4/3 for levels uniform in [0, 2], times the probability ½.
    assert noise.mean().item() == pytest.approx(0, abs=0.01)
    assert noise.var().item() == pytest.approx(2 / 3, rel=0.1)
    hit = size[size > 0]
    assert hit.mean().item() == pytest.approx(1, rel=0.06)
    assert (noise[0] != noise[1]).any()
    correlation = torch.corrcoef(noise.flatten(1))[0, 1].item()
    assert abs(correlation) < 0.03  # another epoch, other noise
    seen_b = torch.cat([batch["b"] for batch in module.seen])
    order = torch.cat([batch.index for batch in module.seen])
    assert torch.equal(seen_b, prepare(samples).batch(samples)["b"][order])  # not named: clean


def test_validation_is_clean():
    samples = wide(60)
    clean = prepare(samples).batch(samples)
    _, _, module = watched(samples, augment=["gaussian:5", "b=missing:10@0.5"])
    validated = torch.cat([batch["a"] for batch in module.validated])
    assert torch.equal(validated, clean["a"].repeat(3, 1))
    assert all(batch.whole for batch in module.validated)


AUGMENT = ["gaussian:0..1@0.7", "b=swapped:0..10", "b=structured-drop:5"]


@pytest.mark.parametrize(
    "other",
    [
        {"batch_size": 7},
        {"resident": False},
        {"accumulate": 2, "batch_size": 5},
        {"modality_dropout": 0.0, "average": "mean", "lr": 0.5},
    ],
    ids=["batches", "streamed", "accumulated", "weights"],
)
@pytest.mark.parametrize("name", ["a", "b"])
def test_noise_does_not_depend_on_the_batch(name, other):
    samples = make_samples(40)
    usual, _, _ = watched(samples, name, augment=AUGMENT)
    found, _, _ = watched(samples, name, augment=AUGMENT, **other)
    assert torch.equal(usual, found)
    seeded, _, _ = watched(samples, name, augment=AUGMENT, seed=1)
    assert not torch.equal(usual, seeded)


def mixed(n=30, lacking=True):
    random = np.random.default_rng(3)
    present = random.random((n, 5)) > 0.3 * lacking
    present[0] = True
    return Samples.of(
        {
            "vector": random.normal(5, 3, size=(n, 4)).astype(np.float32),
            "image": random.integers(0, 256, size=(n, 2, 4, 5)).astype(np.uint8),
            "sequence": [random.normal(size=(1 + row % 6, 3)) + 1 for row in range(n)],
            "tokens": [random.integers(1, 9, size=1 + row % 6).tolist() for row in range(n)],
            "text": [" ".join("abcdefg"[: 1 + row % 7]) for row in range(n)],
        },
        np.arange(n) % 3,
        kinds={"tokens": "tokens"},
        present=present,
    )


@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize(
    "augment",
    [
        "gaussian:0..2@0.8",
        "scaled:0..3",
        "blank:0..10",
        "drop:0..10",
        "salt-and-pepper:0..60",
        "swapped:0..10",
        "stuck:0..10",
        "structured-drop:0..10",
        "qmf-gaussian:0..10",
        "qmf-salt-and-pepper:0..10",
        "gaussian:0..20,scale=raw",
        ["gaussian:0..1@0.5", "drop:2", "swapped:5"],
        ["swapped:8", "scaled:0..2"],
    ],
    ids=str,
)
def test_batches_are_what_corrupting_raw_samples_and_preparing_them_gives(augment, resident):
    samples = mixed()
    preparation = prepare(samples)
    loader = BatchLoader(samples, preparation, CPU, resident=resident)
    augmenter = Augmenter.of(augment, loader)
    rows = torch.from_numpy(np.random.default_rng(1).permutation(len(samples)))
    (batch,) = loader.batches([rows], augmenter.in_epoch(77))
    raw = samples.replaced({})
    raw.index = np.arange(len(samples))
    reference = Reference(raw, {name: made for name, made in preparation.statistics().items() if made.std is not None})
    for name, chosen in choose_augmentations(augment, samples.modalities).items():
        raw, _, _ = augment_samples(raw, name, chosen, 77, reference)
    expected = preparation.batch(raw, rows.numpy())
    clean = preparation.batch(samples, rows.numpy())
    changed = False
    for name in samples.names:
        # Texts of a batch are as wide as the longest of them.
        width = min(batch[name].shape[1], expected[name].shape[1])
        torch.testing.assert_close(batch[name][:, :width], expected[name][:, :width], atol=2e-5, rtol=1e-5)
        assert not batch[name][:, width:].any()
        assert (batch[name][~batch.present_in(name)] == 0).all()
        if name in batch.lengths:
            assert torch.equal(batch.lengths[name], expected.lengths[name])
        size = min(width, clean[name].shape[1])
        changed |= not torch.equal(batch[name][:, :size], clean[name][:, :size])
    assert changed
    assert torch.equal(batch.present, clean.present)


def test_swapped_takes_the_values_of_another_sample():
    samples = mixed()
    loader = BatchLoader(samples, prepare(samples), CPU)
    batch = Augmenter.of({"vector": "swapped:10"}, loader).in_epoch(1)(loader.everything)
    before, present = loader.everything["vector"], loader.everything.present_in("vector")
    equal = (batch["vector"][:, None] == before[None]).all(dim=2)
    assert not equal.diagonal()[present].any()
    assert equal[present][:, present].any(dim=1).all()
    assert torch.equal(batch["vector"][~present], before[~present])
    with pytest.raises(InputError, match="'vector' cannot be swapped, since fewer than two"):
        Augmenter.of("swapped:10", BatchLoader(samples[:1], prepare(samples), CPU))


@pytest.mark.parametrize("resident", [True, False])
def test_missing_never_takes_the_last_modality_unless_told_so(resident):
    samples = mixed(200)
    loader = BatchLoader(samples, prepare(samples), CPU, resident=resident)
    (before,) = loader.batches([torch.arange(200)])

    def present(augment):
        (batch,) = loader.batches([torch.arange(200)], Augmenter.of(augment, loader).in_epoch(3))
        assert not (batch.present & ~before.present).any()
        for name in batch.names:
            here = batch.present_in(name)
            assert not batch[name][~here].any()
            width = before[name].shape[1]
            assert torch.equal(batch[name][here][:, :width], before[name][here])
        return batch.present

    some = before.present.any(dim=1)
    left = present("missing:10")
    assert torch.equal(left.sum(dim=1), some.long())  # exactly one stays
    shares = left[before.present.all(dim=1)].float().mean(dim=0)
    assert (shares > 0.02).all()  # any of them may
    assert not present("missing:10,last=true").any()
    firm = [f"{name}=missing:10,last=true" for name in before.names[1:]]
    only = present([*firm, "vector=missing:10"])  # what may not be lost is all that is left
    assert torch.equal(only[:, 0], before.present[:, 0])
    assert not only[:, 1:].any()
    # A sample with several modalities loses each with probability ½·½: the mean of level/10 is ½.
    half = present(dict.fromkeys(before.names, "missing:0..10@0.5"))
    many = before.present.sum(dim=1) > 2
    share = (before.present & ~half)[many].sum() / before.present[many].sum()
    assert share.item() == pytest.approx(0.25, abs=0.05)


def test_complete_modalities_stay_complete():
    samples = mixed(lacking=False)
    loader = BatchLoader(samples, prepare(samples), CPU)
    batch = Augmenter.of(["gaussian:1", "text=missing:5"], loader).in_epoch(3)(loader.everything)
    assert batch.complete == frozenset(samples.names) - {"text"}


@pytest.mark.parametrize("precision", ["64", "bf16-true", "bf16"])
def test_precisions(precision):
    samples = make_samples(40)
    usual, _, _ = watched(samples, augment=["gaussian:0..1", "drop:0..3"], batch_size=40)
    found, _, _ = watched(samples, augment=["gaussian:0..1", "drop:0..3"], batch_size=40, precision=precision)
    assert found.dtype == {"64": torch.float64, "bf16-true": torch.bfloat16, "bf16": torch.float32}[precision]
    torch.testing.assert_close(found.double(), usual.double(), atol=0.05 if precision == "bf16-true" else 1e-5, rtol=0)


@pytest.mark.parametrize(
    ("augment", "error", "message"),
    [
        (
            "text=gaussian:1",
            UnsupportedError,
            r"'gaussian' does not apply to text \(text\), only to vector, image, seq",
        ),
        ("sound=gaussian:1", UnknownNameError, "unknown modality 'sound'"),
    ],
)
def test_what_does_not_fit_is_refused_before_training(augment, error, message):
    samples = mixed()
    with pytest.raises(error, match=message):
        Model.fit("late", samples, trainer=Trainer(epochs=1, augment=augment, device="cpu"))
    with pytest.raises(InputError, match="augment 'gaussian': expected"):
        Trainer(augment="gaussian")
    with pytest.raises(InputError, match="training: augment must be a string"):
        Trainer(augment=3)


def test_cross_fitting_trains_on_corrupted_samples_and_predicts_clean_ones():
    samples = make_samples(48)
    preparation = prepare(samples)
    seen = []

    class Watched(Straight):
        def forward(self, batch):
            seen.append((self.training, batch["a"].clone()))
            return super().forward(batch)

    def cross_fit(augment):
        seen.clear()
        out, _, _ = trainer(preparation, augment=augment).cross_fit(lambda: make(Watched, preparation), samples, 3)
        clean = preparation.batch(samples)["a"]
        known = [bool((values[:, None] == clean[None]).all(dim=2).any(dim=1).all()) for _, values in seen]
        return (
            out.output,
            [flag for (training, _), flag in zip(seen, known) if training],
            [flag for (training, _), flag in zip(seen, known) if not training],
        )

    usual, train, held_out = cross_fit(None)
    assert all(train)
    assert all(held_out)
    noisy, train, held_out = cross_fit("gaussian:1")
    assert not any(train)
    assert all(held_out)
    assert not torch.equal(usual, noisy)
    again, _, _ = cross_fit("gaussian:1")
    assert torch.equal(noisy, again)
    assert find("bayes")[0] is Bayes  # whose experts are cross-fitted so


@pytest.mark.parametrize(
    "augment",
    [
        "gaussian:0..1@0.8",
        ["gaussian:0..1", "b=swapped:0..10", "b=drop:2"],
        ["missing:10@0.3", "a=missing:10@0.5,last=true"],
    ],
    ids=str,
)
@pytest.mark.parametrize("own_data", [False, True])
def test_side_by_side_each_model_gets_the_noise_it_would_get_alone(augment, own_data):
    sets = [make_samples(24), make_samples(24, seed=5)] if own_data else [make_samples(24)] * 2
    validation = make_samples(12, seed=9)
    settings = Trainer(epochs=3, batch_size=8, lr=0.02, device="cpu", augment=augment, patience=1)
    encoders = {name: {"name": "mlp", "hidden": [8], "dropout": 0.0} for name in ("a", "b")}
    seeds = (0, 3)
    models = fit_together("late", [(part, validation) for part in sets], seeds, encoders=encoders, trainer=settings)
    for model, seed, part in zip(models, seeds, sets):
        alone = Model.fit("late", part, validation, encoders=encoders, trainer=replace(settings, seed=seed))
        expected = alone.method.state_dict()
        for name, weight in model.method.state_dict().items():
            torch.testing.assert_close(weight, expected[name], atol=1e-5, rtol=1e-4)
        clean = Model.fit(
            "late", part, validation, encoders=encoders, trainer=replace(settings, seed=seed, augment=None)
        )
        assert not same(weights(alone.method), weights(clean.method))


@pytest.mark.parametrize(
    ("augment", "reason"),
    [
        ("structured-drop:3", r"the augmentation of modality 'a' \(structured-drop\) is computed from raw samples"),
        ("b=swapped:5", "modality 'b' is swapped in training, and some samples lack it"),
    ],
)
def test_what_cannot_be_stacked_says_so(augment, reason):
    present = np.ones((24, 2), dtype=bool)
    present[3, 1] = False
    samples = make_samples(24, present=present)
    with pytest.raises(UnsupportedError, match=reason):
        fit_together("late", [(samples, samples)] * 2, (0, 1), trainer=Trainer(epochs=1, augment=augment, device="cpu"))


def test_an_expert_needs_no_noise_of_other_modalities():
    samples = make_samples(20)
    loader = BatchLoader(samples, prepare(samples), CPU)
    augment = ["gaussian:1", "swapped:10@0.5"]
    whole = Augmenter.of(augment, loader).in_epoch(0)(loader.everything)
    own = Augmenter.of(augment, loader, reads="a").in_epoch(0)(loader.everything)
    assert torch.equal(own["a"], whole["a"])
    assert torch.equal(own["b"], loader.everything["b"])


def test_a_set_without_the_modality_is_trained_as_before():
    samples = make_samples(20)
    preparation = Preparation.fit(samples, prepare(samples).task)
    loader = BatchLoader(samples.only(["b"]), preparation, CPU)
    batch = Augmenter.of(["a=gaussian:1", "a=stuck:2"], loader).in_epoch(0)(loader.everything)
    assert torch.equal(batch["b"], loader.everything["b"])
    assert not batch["a"].any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="compares a CUDA device with the processor")
def test_a_cuda_device_gives_the_same_batches():
    samples, augment = mixed(), ["gaussian:0..1", "drop:2", "swapped:5", "missing:3", "text=structured-drop:5"]
    batches = []
    for device in (CPU, torch.device("cuda")):
        loader = BatchLoader(samples, prepare(samples), device)
        batches += loader.batches([torch.arange(len(samples))], Augmenter.of(augment, loader).in_epoch(5))
    for name in samples.names:
        torch.testing.assert_close(batches[1][name].cpu(), batches[0][name], atol=1e-6, rtol=1e-6)
    assert torch.equal(batches[1].present.cpu(), batches[0].present)
