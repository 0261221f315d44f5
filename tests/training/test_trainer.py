import logging
import os

import numpy as np
import pytest
import torch

from consilience.core.errors import InputError, TrainingError, UnknownNameError
from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.methods import Method, Prediction, Spec
from consilience.methods.fusion.concat import Concat
from consilience.methods.opinions.late import Late
from consilience.methods.opinions.unimodal import BestUnimodal
from consilience.training import Model, Phase, Trainer
from consilience.training.devices import build_fabric, memory_advice, resolve_device
from consilience.training.trainer import concatenate, split_folds
from training.toys import At, Straight, make, make_samples, prepare, same, trainer, weights

SAMPLES, VALIDATION = make_samples(50), make_samples(40, seed=7)
PREPARATION = prepare(SAMPLES)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"optimizer": "adm"}, "unknown optimizer 'adm': did you mean 'adam'"),
        ({"schedule": "cosin"}, "unknown schedule 'cosin': did you mean 'cosine'"),
        ({"precision": "bf61"}, "unknown precision 'bf61': did you mean 'bf16'"),
        ({"on_interrupt": "kep"}, "unknown on_interrupt 'kep': did you mean 'keep'"),
    ],
)
def test_unknown_names_are_suggested(wrong, message):
    with pytest.raises(UnknownNameError, match=message):
        Trainer(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"epochs": 2.5},
        {"epochs": True},
        {"batch_size": -1},
        {"accumulate": 0},
        {"devices": 0},
        {"seed": -1},
        {"lr": 0},
        {"lr": float("nan")},
        {"lr": float("inf")},
        {"lr": "fast"},
        {"weight_decay": -0.1},
        {"momentum": 1.0},
        {"modality_dropout": 1.0},
        {"warmup": -1},
        {"average": 1.0},
        {"average": "median"},
        {"average": True},
        {"clip": 0},
        {"patience": 0},
        {"checkpoint_seconds": -1},
    ],
)
def test_settings_are_checked(wrong):
    (name,) = wrong
    with pytest.raises(InputError, match=f"training: {name} must be .*, got"):
        Trainer(**wrong)


def test_momentum_is_not_silently_ignored():
    with pytest.raises(InputError, match="momentum is for sgd and rmsprop, not for 'adam'"):
        Trainer(momentum=0.9)


def test_devices():
    assert resolve_device("cpu").type == "cpu"
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(InputError, match="unknown device 'gpu3'"):
        resolve_device("gpu3")
    with pytest.raises(InputError, match="device 'cuda:99' is not available"):
        resolve_device("cuda:99")
    with pytest.raises(InputError, match="is one device"):
        build_fabric(Trainer(device="cpu:0", devices=2))


def test_sets_that_nothing_can_be_learned_from():
    module = make(Straight, PREPARATION)
    for train, validation, message in [
        (SAMPLES[:0], None, "the training set is empty"),
        (SAMPLES, SAMPLES[:0], "the validation set is empty"),
        (Samples.of(dict(SAMPLES.values)), None, "the training samples have no y"),
        (SAMPLES, Samples.of(dict(SAMPLES.values)), "the validation samples have no y"),
        (SAMPLES, Samples.of(SAMPLES, weight=np.arange(50) >= 10)[:5], "weights of the validation set are all zero"),
    ]:
        with pytest.raises(InputError, match=message):
            trainer(PREPARATION).run(module, train, validation)
    with pytest.raises(InputError, match="the trainer has no preparation"):
        Trainer(device="cpu").run(module, SAMPLES)


def test_no_global_state_is_touched():
    torch.manual_seed(11)
    np.random.seed(11)  # noqa: NPY002  (the legacy state is what must stay)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    settings = torch.get_default_dtype(), torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    environment = dict(os.environ)
    for precision in ("32", "bf16", "bf16-true", "64"):
        Model.fit("concat", SAMPLES, VALIDATION, trainer=Trainer(epochs=1, precision=precision, device="cpu"))
    trainer(PREPARATION, epochs=1).cross_fit(lambda: make(Late, PREPARATION), SAMPLES, folds=2)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    after = torch.get_default_dtype(), torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    assert after == settings
    assert dict(os.environ) == environment


def test_seeds_decide():
    states = []
    for seed in (0, 0, 1):
        module = make(Straight, PREPARATION, dropout=0.5)
        trainer(PREPARATION, seed=seed).run(module, SAMPLES)
        states.append(weights(module))
    assert same(states[0], states[1])
    assert not same(states[0], states[2])


@pytest.mark.parametrize(("precision", "inside"), [("bf16", "float32"), ("bf16-true", "bfloat16"), ("64", "float64")])
def test_precision(precision, inside):
    train = SAMPLES.replaced({}, present=np.random.default_rng(0).random((50, 2)) < 0.8)
    seen = set()

    class Watching(Concat):
        def forward(self, batch):
            if self.training:
                seen.add((self.head.weight.dtype, batch["a"].dtype))
            return super().forward(batch)

    module, exact = make(Watching, PREPARATION, dropout=0.0), make(Concat, PREPARATION, dropout=0.0)
    log = trainer(PREPARATION, precision=precision, optimizer="sgd").run(module, train, VALIDATION)
    trainer(PREPARATION, optimizer="sgd").run(exact, train, VALIDATION)
    dtype = getattr(torch, inside)
    assert seen == {(dtype, dtype)}
    kept = torch.float64 if precision == "64" else torch.float32
    assert {value.dtype for value in module.state_dict().values()} == {kept}
    assert np.isfinite(log.rows[-1]["validation_loss"])
    outputs = [trainer(PREPARATION).predict(trained, VALIDATION).output for trained in (module, exact)]
    assert outputs[0].dtype == kept
    tolerance = 1e-5 if precision == "64" else 0.1
    torch.testing.assert_close(*outputs, atol=tolerance, rtol=tolerance, check_dtype=False)
    assert not torch.equal(outputs[0].float(), outputs[1])


def test_precision_is_undone_after_a_failure():
    module = make(Straight, PREPARATION)
    module.trap = At(ValueError("no"), epoch=0)
    with pytest.raises(ValueError, match="no"):
        trainer(PREPARATION, precision="bf16-true").run(module, SAMPLES)
    assert module.map.weight.dtype == torch.float32


def test_nothing_present_in_any_precision():
    nothing = SAMPLES.replaced({}, present=np.zeros((50, 2), dtype=bool))
    for precision in ("32", "bf16", "bf16-true", "64"):
        for cls in (Concat, Late):
            log = trainer(PREPARATION, precision=precision, epochs=1).run(make(cls, PREPARATION), nothing)
            assert np.isfinite(log.rows[0]["task"])


def test_an_interrupt_keeps_the_best_weights(caplog):
    settings = {"epochs": 20, "lr": 0.5, "batch_size": 8, "optimizer": "sgd", "patience": None}
    full = trainer(PREPARATION, **settings).run(make(Straight, PREPARATION), SAMPLES, VALIDATION)
    losses = [row["validation_loss"] for row in full.rows]
    stop = next(epoch for epoch in range(2, 20) if np.argmin(losses[:epoch]) < epoch - 1)
    best = int(np.argmin(losses[:stop]))
    module, until = make(Straight, PREPARATION), make(Straight, PREPARATION)
    module.trap = At(KeyboardInterrupt(), epoch=stop, batch=3)
    run = trainer(PREPARATION, **settings)
    with caplog.at_level(logging.WARNING, "consilience"):
        log = run.run(module, SAMPLES, VALIDATION)
    assert (log.interrupted, log.finished, log.best_epoch, len(log.rows)) == (True, False, best, stop)
    assert f"interrupted: keeping the best weights so far, of epoch {best + 1}" in caplog.text
    trainer(PREPARATION, **{**settings, "epochs": best + 1}).run(until, SAMPLES)
    assert same(weights(module), weights(until))
    assert run.interrupted
    skipped = make(Straight, PREPARATION)
    before = weights(skipped)
    later = run.run(skipped, SAMPLES)
    assert later.interrupted
    assert not later.rows
    assert same(weights(skipped), before)


def test_an_interrupt_before_any_validation_keeps_what_there_is(caplog):
    module = make(Straight, PREPARATION)
    before = weights(module)
    module.trap = At(KeyboardInterrupt(), epoch=0, batch=2)
    log = trainer(PREPARATION).run(module, SAMPLES, VALIDATION)
    assert log.best_epoch is None
    assert "keeping the weights as they are" in caplog.text
    assert not same(weights(module), before)


def test_an_interrupt_in_a_second_phase_falls_back_on_the_first():
    module, until = make(Straight, PREPARATION), make(Straight, PREPARATION)
    phases = [Phase("one", epochs=2), Phase("two", epochs=2)]
    module.trap = At(KeyboardInterrupt(), epoch=0, batch=2, phase="two")
    log = trainer(PREPARATION).run(module, SAMPLES, VALIDATION, phases)
    assert log.interrupted
    trainer(PREPARATION, epochs=2).run(until, SAMPLES, VALIDATION)
    assert same(weights(module), weights(until))
    assert all(parameter.requires_grad for parameter in module.parameters())


def test_an_interrupt_is_raised_on_request():
    module = make(Straight, PREPARATION)
    module.trap = At(KeyboardInterrupt("stop"), epoch=1)
    with pytest.raises(KeyboardInterrupt, match="stop"):
        trainer(PREPARATION, on_interrupt="raise").run(module, SAMPLES)


def test_an_interrupted_best_unimodal_prefers_what_was_trained():
    method = make(BestUnimodal, PREPARATION)
    trap = At(KeyboardInterrupt(), epoch=1)
    first = method.experts["a"]
    objective = type(first).objective

    def springing(prediction, batch, step):
        trap(step)
        return objective(first, prediction, batch, step)

    first.objective = springing
    method.fit(SAMPLES, VALIDATION, trainer(PREPARATION))
    assert method.ranking.tolist() == [0, 1]


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError(), RuntimeError("can't allocate memory: 9 GB")]
)
def test_running_out_of_memory_gives_advice(error):
    module = make(Straight, PREPARATION)
    module.trap = At(error, epoch=1)
    with pytest.raises(TrainingError, match=r"batch_size=16 .*try batch_size=8 with accumulate=2 .*precision='bf16'"):
        trainer(PREPARATION).run(module, SAMPLES)
    with pytest.raises(TrainingError, match="out of memory") as caught, memory_advice(1, "bf16"):
        raise error
    assert "batch_size=0" not in str(caught.value)
    assert "precision='bf16' (" not in str(caught.value)


def test_other_errors_stay_what_they_are():
    module = make(Straight, PREPARATION)
    module.trap = At(RuntimeError("shapes differ"), epoch=0)
    with pytest.raises(RuntimeError, match=r"^shapes differ$"):
        trainer(PREPARATION).run(module, SAMPLES)


def test_predictions_do_not_depend_on_the_batch_size():
    module = make(Late, PREPARATION)
    whole = trainer(PREPARATION).predict(module, VALIDATION)
    some = concatenate([trainer(PREPARATION).predict(module, VALIDATION[rows]) for rows in np.split(np.arange(40), 4)])
    for name in ("output", "opinions", "weights"):
        torch.testing.assert_close(getattr(whole, name), getattr(some, name))
    assert whole.joint is None
    assert not module.training
    order = torch.tensor([2, 0, 1])
    parts = [Prediction(torch.tensor([[0.0]])), Prediction(torch.tensor([[1.0], [2.0]]))]
    assert concatenate(parts, order).output.flatten().tolist() == [2.0, 0.0, 1.0]


class Memory(Method):
    """Remembers whom it saw in training; its output is whether it has seen a sample, and which module it is."""

    made: list = []  # noqa: RUF012  (shared on purpose)

    def __init__(self, spec):
        super().__init__(spec)
        self.scale = torch.nn.Parameter(torch.rand(()))
        self.register_buffer("seen", torch.zeros(1000, dtype=torch.bool))
        self.number = len(self.made)
        self.made.append(self)

    def forward(self, batch):
        who = batch["who"][:, 0].round().long()
        if self.training:
            self.seen[who] = True
        columns = [self.seen[who].float(), torch.full((len(who),), float(self.number)), who.float() + 0 * self.scale]
        return Prediction(torch.stack(columns, dim=1))


def test_cross_fitting_predicts_by_modules_that_never_saw_the_sample():
    Memory.made.clear()
    y = np.repeat([0, 1, 2], [30, 20, 10])
    samples = Samples.of({"who": np.arange(60.0)[:, None]}, y)
    preparation = prepare(samples)
    preparation.transforms["who"].mean.zero_()
    preparation.transforms["who"]._scale.fill(1.0)  # so that the method can read who is who
    run = trainer(preparation, epochs=1)
    prediction, modules, fold_of = run.cross_fit(lambda: make(Memory, preparation), samples, folds=5)
    seen, module, who = prediction.output.T
    assert who.tolist() == list(range(60))  # the order of the samples
    assert not seen.any()
    assert module.tolist() == fold_of.tolist()
    assert modules == Memory.made
    for fold, one in enumerate(modules):
        assert one.seen[:60].tolist() == (fold_of != fold).tolist()
        assert np.bincount(y[fold_of == fold]).tolist() == [6, 4, 2]
    assert len(run.logs) == 5


def test_cross_fitting_is_decided_by_the_seed_and_draws_each_module_anew():
    def outputs(seed, start):
        torch.manual_seed(start)
        run = trainer(PREPARATION, epochs=1, lr=1e-9, seed=seed)
        spec = Spec(PREPARATION.modalities, PREPARATION.task)
        prediction, modules, fold_of = run.cross_fit(lambda: Late(spec), SAMPLES, 3)
        return prediction.output, [weights(module) for module in modules], fold_of

    first, again, other = outputs(0, 1), outputs(0, 2), outputs(1, 1)
    assert torch.equal(first[0], again[0])
    assert np.array_equal(first[2], again[2])
    assert not torch.equal(first[0], other[0])
    assert not np.array_equal(first[2], other[2])
    assert not same(first[1][0], first[1][1])


def test_an_interrupted_cross_fit_gives_no_predictions():
    def make_trapped():
        module = make(Straight, PREPARATION)
        module.trap = At(KeyboardInterrupt(), epoch=1)
        return module

    with pytest.raises(KeyboardInterrupt, match="interrupted in fold 1 of 3"):
        trainer(PREPARATION).cross_fit(make_trapped, SAMPLES, 3)


def test_folds():
    numbers = make_samples(23, regression=True)
    task = Task.of(numbers.y)
    fold_of = split_folds(numbers, task, 4, seed=0)
    assert sorted(np.bincount(fold_of)) == [5, 6, 6, 6]
    strings = Samples.of({"a": np.arange(20.0)[:, None]}, np.array(["x", "y"] * 10)[:, None])
    fold_of = split_folds(strings, Task.of(strings.y, "classification"), 5, seed=0)
    assert all(np.unique(strings.y[fold_of == fold], return_counts=True)[1].tolist() == [2, 2] for fold in range(5))
    for folds in (1, 24):
        with pytest.raises(InputError, match=f"folds must be between 2 and 23 .*got {folds}"):
            split_folds(numbers, task, folds, seed=0)


def test_a_trainer_prepares_each_set_once_and_lets_go():
    run = trainer(PREPARATION)
    device = torch.device("cpu")
    assert run.loader(SAMPLES, device) is run.loader(SAMPLES, device)
    assert run.loader(SAMPLES, device) is not run.loader(VALIDATION, device)
    run.forget()
    assert not run._loaders
