"""A loop around every registered method that has a fusion."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from consilience import methods
from consilience.core.batches import Batch
from consilience.core.samples import Modality, Samples
from consilience.encoders import Encoded
from consilience.methods import Spec, Step, build
from consilience.methods.fusion.concat import Concat
from consilience.methods.progressive.call_state import state_of
from consilience.methods.progressive.progressive import progressive
from consilience.methods.progressive.progressive_method import Progressive, UnimodalFeedback
from consilience.training import Model, Trainer
from methods.progressive.foreign import stir
from toy_batches import CLASSES, NUMBERS, VECTORS, batch_of

MIXED = {
    "text": Modality("text", "tokens", (6,), vocabulary=9),
    "image": Modality("image", "image", (1, 8, 8)),
    "sound": Modality("sound", "sequence", (5, 3)),
}
SETS = (MIXED, {name: one for name, one in MIXED.items() if name != "image"}, {**VECTORS})
every_method = pytest.mark.parametrize("name", Progressive.arguments(()))


def make_batch(modalities, task=CLASSES, n=6, present=None):
    """Samples of any kind, sequences of several lengths; zeros where a modality is missing."""
    made = torch.Generator().manual_seed(5)
    there = torch.ones(n, len(modalities), dtype=torch.bool) if present is None else torch.as_tensor(present)
    values, lengths = {}, {}
    for column, (name, one) in enumerate(modalities.items()):
        tokens = one.kind == "tokens"
        shape = (n, *one.shape)
        x = torch.randint(1, one.vocabulary, shape, generator=made) if tokens else torch.randn(shape, generator=made)
        if one.timed:
            lengths[name] = torch.randint(1, one.shape[0] + 1, (n,), generator=made) * there[:, column]
            x[torch.arange(one.shape[0]) >= lengths[name][:, None]] = 0
        x[~there[:, column]] = 0
        values[name] = x
    y = torch.arange(n) % 3 if task.classification else torch.randn(n, task.outputs, generator=made)
    complete = frozenset(name for column, name in enumerate(values) if there[:, column].all())
    return Batch(values, there, index=torch.arange(n), weight=torch.ones(n), lengths=lengths, y=y, complete=complete)


def spec_for(name, encoders=None):
    """The first of the sets above that a method reads."""
    cls, _ = methods.find(name)
    for modalities in SETS:
        for task in (CLASSES, NUMBERS):
            spec = Spec(modalities, task, encoders or {})
            if cls.reason_against(spec) is None:
                return spec
    raise AssertionError(f"method {name!r} reads none of the sets of this test: add one")


def seeded(name, spec, **settings):
    torch.manual_seed(0)
    return build(name, spec, settings).eval()


@every_method
def test_the_loop_begins_as_its_base(name):
    spec = spec_for(name)
    base, once = seeded(name, spec), seeded("pro:" + name, spec, steps=1)
    assert once.overhead()["added"] == 0
    assert list(once.state_dict()) == list(base.state_dict())
    others = [seeded("pro:" + name, spec, steps=steps) for steps in (2, 3)]
    others += [once, seeded("unimodal-feedback:" + name, spec), progressive(base)]
    for present in (None, np.random.default_rng(0).random((6, len(spec.modalities))) > 0.4):
        batch = make_batch(spec.modalities, spec.task, present=present)
        expected = base(batch).output
        assert all(torch.equal(other(batch).output, expected) for other in others)
    heard = stir(others[-1])(batch).output
    assert not torch.equal(heard, expected)
    for column, one in enumerate(spec.modalities):
        batch.values[one][~batch.present[:, column]] = 1
    assert torch.equal(others[-1](batch).output, heard)
    assert torch.equal(base(batch).output, expected)


@every_method
def test_gradients_reach_every_link(name):
    spec = spec_for(name)
    loop = stir(seeded("pro:" + name, spec, steps=3, project=7, link_rank=2)).train()
    batch = make_batch(spec.modalities, spec.task)
    losses = loop.objective(loop(batch), batch, Step())
    torch.stack(list(losses.values())).sum().backward()
    assert len(loop.link_parameters()) == 2 * len(spec.modalities) + 1
    assert all(one.grad is not None and one.grad.abs().sum() > 0 for one in loop.link_parameters())


@every_method
def test_new_links_learn(name):
    spec = spec_for(name)
    loop = seeded("pro:" + name, spec).train()
    before = [one.detach().clone() for one in loop.link_parameters()]
    batch, optimizer = make_batch(spec.modalities, spec.task), torch.optim.Adam(loop.parameters(), 1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        torch.stack(list(loop.objective(loop(batch), batch, Step()).values())).sum().backward()
        optimizer.step()
    assert before
    assert all(not torch.equal(one, new) for one, new in zip(before, loop.link_parameters(), strict=True))


ENCODERS = ["mlp", "gru", {"name": "lstm", "bidirectional": True, "layers": 2}, "transformer"]


@pytest.mark.parametrize("mode", ["add", "concat"])
@pytest.mark.parametrize("encoder", ENCODERS, ids=["mlp", "gru", "lstm", "transformer"])
def test_padding_is_never_heard(encoder, mode):
    modalities = {"sound": MIXED["sound"], "image": MIXED["image"]}
    spec = Spec(modalities, CLASSES, {"sound": encoder})
    base, loop = seeded("concat", spec), seeded("pro:concat", spec, mode=mode)
    batch = make_batch(modalities)
    torch.testing.assert_close(loop(batch).output, base(batch).output)
    stir(loop)
    expected = loop(batch).output
    assert not torch.allclose(expected, base(batch).output)
    padding = torch.arange(5) >= batch.lengths["sound"][:, None]
    batch.values["sound"][padding] = 7.0
    torch.testing.assert_close(loop(batch).output, expected)
    alone = [loop(batch.part(row, row + 1)).output for row in range(len(batch))]
    torch.testing.assert_close(torch.cat(alone), expected)


@pytest.mark.parametrize("mode", ["add", "concat"])
def test_missing_rows_hear_their_own_context(mode):
    present = torch.tensor([[1, 1], [1, 0], [0, 1], [1, 1], [0, 0], [1, 0]]).bool()
    loop = stir(seeded("pro:concat", Spec(VECTORS, CLASSES), mode=mode, steps=3))
    batch = batch_of(present=present)
    together = loop(batch).output
    for row in range(6):
        torch.testing.assert_close(loop(batch.part(row, row + 1)).output, together[row : row + 1])
    batch.values["image"][~present[:, 0]] = 5.0
    assert torch.equal(loop(batch).output, together)


def test_an_inner_stage_by_hand_and_what_precedes_it_runs_once():
    spec = Spec(VECTORS, CLASSES, {"image": {"hidden": [6, 5]}, "audio": {"hidden": [4, 4]}})
    loop = stir(seeded("pro:concat", spec, steps=3, into={"image": "block2", "audio": "end"}, width=8))
    batch = batch_of()
    runs = {"first": 0, "second": 0}

    def count(stage):
        def after(*_):
            runs[stage] += 1

        return after

    image, audio = (loop.encoders[name] for name in ("image", "audio"))
    image.stages["block1"].register_forward_hook(count("first"))
    image.stages["block2"].register_forward_hook(count("second"))
    found = loop(batch)
    assert runs == {"first": 1, "second": 3}

    seen, heard = image.stages["block1"](batch["image"]), audio.inner(batch["audio"]).pooled
    joint = loop.fusion.mix(torch.cat([image.stages["block2"](seen), heard], dim=1))
    for _ in range(2):
        one = image.stages["block2"](seen + image.link.project(joint))
        joint = loop.fusion.mix(torch.cat([one, heard + audio.link.project(joint)], dim=1))
    torch.testing.assert_close(found.output, loop.head(joint))
    with torch.no_grad():
        assert image(batch["image"]).pooled.shape == (6, 5)
    assert state_of(image) is None


@pytest.mark.parametrize("into", ["block1", "block2"])
def test_what_is_remembered_is_not_written_over(into):
    plain = {"hidden": [6, 5], "normalise": False, "dropout": 0.0}  # in it a ReLU in place follows the linear layer
    spec = Spec(VECTORS, CLASSES, dict.fromkeys(VECTORS, plain))
    loop = stir(seeded("pro:concat", spec, mode="concat", steps=3, into=into, width=8))
    batch = batch_of()
    joint = None
    for _ in range(3):
        features = []
        for name, encoder in loop.encoders.items():
            hidden = batch[name]
            for stage, (linear, *_) in encoder.stages.items():
                hidden = nn.functional.linear(hidden, linear.weight, linear.bias)
                if joint is not None and stage == into:
                    hidden = hidden + encoder.link.extra(encoder.link.project(joint))
                hidden = hidden.relu()
            features.append(hidden)
        joint = loop.fusion.mix(torch.cat(features, dim=1))
    torch.testing.assert_close(loop(batch).joint, joint)


def test_what_precedes_runs_once_where_a_method_goes_from_stage_to_stage():
    modalities = {"image": Modality("image", "image", (1, 16, 16)), "audio": VECTORS["audio"]}
    loop = stir(seeded("pro:mfas", Spec(modalities, CLASSES), steps=3, into={"image": "conv2"})).train()
    image = loop.encoders["image"]
    norms = [next(one for one in image.stages[stage] if hasattr(one, "running_mean")) for stage in ("conv1", "conv2")]
    runs = []
    for norm in norms:
        norm.register_forward_hook(lambda norm, *_: runs.append(norm))
    loop(make_batch(modalities))
    assert [runs.count(norm) for norm in norms] == [1, 3]
    assert [int(norm.num_batches_tracked) for norm in norms] == [1, 1]
    assert state_of(image) is None


def test_the_control_hears_nothing_of_others():
    loop = stir(seeded("unimodal-feedback:concat", Spec(VECTORS, CLASSES)))
    assert isinstance(loop, UnimodalFeedback)
    batch = batch_of()
    before = loop(batch).features["image"].pooled
    batch.values["audio"] += 1.0
    assert torch.equal(loop(batch).features["image"].pooled, before)
    crossed = stir(seeded("pro:concat", Spec(VECTORS, CLASSES)))
    after = crossed(batch).features["image"].pooled
    batch.values["audio"] -= 1.0
    assert not torch.equal(crossed(batch).features["image"].pooled, after)


def test_losses_of_the_steps_and_of_the_links():
    settings = {"steps": 3, "step_loss": 0.5, "link_penalty": 2.0, "dropout": 0.0}
    encoders = {name: {"hidden": [4], "dropout": 0.0} for name in VECTORS}
    loop = stir(seeded("pro:concat", Spec(VECTORS, CLASSES, encoders), **settings)).train()
    batch = batch_of()
    losses = loop.objective(loop(batch), batch, Step())
    readings = []
    for steps in (1, 2):  # a loop that stops earlier reads what the longer one reads on its way
        loop.steps = steps
        readings.append(nn.functional.cross_entropy(loop(batch).output, batch.y))
    loop.steps = 3
    torch.testing.assert_close(losses["steps"], 0.5 * torch.stack(readings).mean())
    weights = torch.cat([one.flatten() for one in loop.link_parameters()])
    torch.testing.assert_close(losses["links"], 2.0 * weights.square().mean())
    loop.eval()
    assert set(loop.objective(loop(batch), batch, Step())) == {"task", "links"}


def test_detached_passes_teach_links_but_not_earlier_passes():
    heard = []
    for detach in (False, True):
        loop = stir(seeded("pro:concat", Spec(VECTORS, CLASSES), detach=detach))
        link = loop.encoders["image"].link
        link.register_forward_pre_hook(lambda link, given: heard.append(given[1].requires_grad))
        loop(batch_of()).output.sum().backward()
        assert link.project[0].weight.grad.abs().sum() > 0
    assert heard == [True, False]


def test_copies_and_files():
    spec = Spec(MIXED, CLASSES, {"sound": "lstm"})
    loop = stir(seeded("pro:concat", spec, into={"sound": "layer1"}, steps=2))
    batch = make_batch(MIXED)
    expected = loop(batch).output
    again = seeded("pro:concat", spec, steps=2)
    again.load_state_dict(loop.state_dict())
    for other in (copy.deepcopy(loop), pickle.loads(pickle.dumps(loop)), again):
        assert torch.equal(other(batch).output, expected)
        assert type(other) is type(loop)
        with torch.no_grad():
            other.encoders["image"].link.project[0].weight.zero_()
        assert not torch.equal(other(batch).output, expected)
        assert torch.equal(loop(batch).output, expected)


class OnTensors(nn.Module):
    """A method on tensors, as exporters want it."""

    def __init__(self, method):
        super().__init__()
        self.method = method

    def forward(self, image, audio):
        n = image.shape[0]
        present = torch.ones(n, 2, dtype=torch.bool)
        values = {"image": image, "audio": audio}
        return self.method(
            Batch(values, present, index=torch.arange(n), weight=torch.ones(n), complete=frozenset(values))
        ).output


@pytest.mark.parametrize("mode", ["add", "concat"])
def test_it_compiles_exports_and_takes_half_precision(mode):
    loop = OnTensors(stir(seeded("pro:concat", Spec(VECTORS, CLASSES), mode=mode)))
    inputs = tuple(batch_of().values.values())
    expected = loop(*inputs)
    torch.testing.assert_close(torch.compile(loop, backend="eager", fullgraph=True)(*inputs), expected)
    torch.testing.assert_close(torch.export.export(loop, inputs).module()(*inputs), expected)
    torch._dynamo.reset()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(loop(*inputs).float(), expected, rtol=0.1, atol=0.1)
    double = loop.double()
    assert double(*(one.double() for one in inputs)).dtype == torch.float64


def test_a_method_of_another_type_gets_links_of_its_type():
    base = seeded("concat", Spec(VECTORS, CLASSES)).double()
    loop = progressive(base, mode="concat", project=3)
    assert {one.dtype for one in loop.parameters()} == {torch.float64}


def test_nothing_is_left_behind_when_a_pass_fails():
    loop = stir(seeded("pro:concat", Spec(VECTORS, CLASSES)))
    batch = batch_of()
    expected = loop(batch).output
    calls = []

    def fail(*_):
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("in the second pass")

    failing = loop.fusion.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="second pass"):
        loop(batch)
    failing.remove()
    assert all(state_of(encoder) is None for encoder in loop.encoders.values())
    assert torch.equal(loop(batch).output, expected)
    copy.deepcopy(loop)


def test_looping_a_built_method_leaves_it_alone():
    frozen = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    base = seeded("concat", Spec(VECTORS, CLASSES, {"image": frozen})).train()
    base.encoders["image"].eval()
    before = copy.deepcopy(base.state_dict())
    loop = progressive(base, steps=3)
    assert type(loop) is methods.find("pro:concat")[0]
    assert base.training
    assert loop.training
    assert not base.encoders["image"].training
    assert not loop.encoders["image"].inner.training
    loop(batch_of()).output.sum().backward()
    assert all(parameter.grad is None for parameter in base.parameters())
    assert all(torch.equal(value, before[name]) for name, value in base.state_dict().items())
    assert type(base) is Concat


class Inner(nn.Module):
    """An encoder of the user's that gives parts of its own."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 4)

    def forward(self, x):
        sequence = self.embed(x)
        return Encoded(sequence.mean(1), sequence)


def test_encoders_of_the_users_own():
    modalities = {"text": MIXED["text"], "image": MIXED["image"], "sound": MIXED["sound"]}
    batch = make_batch(modalities)
    encoders = {"text": Inner(), "image": nn.Conv2d(1, 3, 3), "sound": nn.Linear(3, 4)}
    base, loop = (seeded(name, Spec(modalities, CLASSES, encoders)) for name in ("concat", "pro:concat"))
    assert torch.equal(loop(batch).output, base(batch).output)
    assert [one.at for one in loop.encoders.values()] == ["end", "module", "module"]
    assert not torch.equal(stir(loop)(batch).output, base(batch).output)


def test_pretrained_encoders(tmp_path):
    from tiny_models import tiny_bert, tiny_resnet, tiny_wav2vec2

    made = {kind: tmp_path / kind for kind in ("bert", "resnet", "sound")}
    models = {
        "text": {"name": "pretrained", "model": tiny_bert(made["bert"])},
        "image": {"name": "pretrained", "model": tiny_resnet(made["resnet"]), "freeze": False},
        "sound": {"name": "pretrained", "model": tiny_wav2vec2(made["sound"])},
    }
    modalities = {
        "text": Modality("text", "tokens", (6,), vocabulary=9),
        "image": Modality("image", "image", (3, 16, 16)),
        "sound": Modality("sound", "sequence", (40, 1)),
    }
    spec, batch = Spec(modalities, CLASSES, models), make_batch(modalities)
    base, loop = seeded("concat", spec), seeded("pro:concat", spec, into={"image": "stage1"})
    assert torch.equal(loop(batch).output, base(batch).output)
    stir(loop).train()
    assert not loop.encoders["text"].inner.stages["layer1"].training
    loop.objective(loop(batch), batch, Step())["task"].backward()
    assert all(one.grad.abs().sum() > 0 for one in loop.link_parameters())
    shorter = batch.part(0, 6)
    shorter.values["sound"] = batch["sound"][:, :32]
    shorter.lengths["sound"] = batch.lengths["sound"].clamp(max=32)
    assert torch.isfinite(loop(shorter).output).all()


@pytest.mark.slow
@pytest.mark.usefixtures("lean_processes")
def test_two_processes_train_as_one():
    made = np.random.default_rng(0)
    samples = Samples.of({"a": made.normal(size=(40, 3)), "b": made.normal(size=(40, 2))}, made.integers(0, 2, 40))
    encoders = {name: {"name": "mlp", "hidden": [6], "dropout": 0.0} for name in samples.names}
    one, two = (
        Model.fit(
            "pro:concat",
            samples,
            None,
            settings={"dropout": 0.0, "width": 8, "mode": "concat"},
            encoders=encoders,
            trainer=Trainer(epochs=2, batch_size=10, device="cpu", devices=devices),
        ).method.state_dict()
        for devices in (1, 2)
    )
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("mode", ["add", "concat"])
def test_images_are_fed_as_if_pixel_by_pixel(mode):
    modalities = {"image": Modality("image", "image", (2, 8, 8)), "audio": VECTORS["audio"]}
    loop = stir(seeded("pro:concat", Spec(modalities, CLASSES), mode=mode))
    batch = make_batch(modalities)
    found = loop(batch).features["image"].pooled

    encoder = loop.encoders["image"]
    first = encoder.stages["conv1"][0]  # with zeros around the image, which hear nothing
    features = loop.represent(batch)
    fed = encoder.link.project(loop.fusion(features, batch))[..., None, None].expand(-1, -1, 8, 8)
    if mode == "add":
        hidden = first(batch["image"] + fed)
    else:
        weight = torch.cat([first.weight, encoder.link.extra.weight], dim=1)
        hidden = nn.functional.conv2d(torch.cat([batch["image"], fed], dim=1), weight, padding=2)
    hidden = encoder.stages["conv1"][1:](hidden)
    for stage in list(encoder.stages)[1:]:
        hidden = encoder.stages[stage](hidden)
    torch.testing.assert_close(found, encoder.finish(hidden, None).pooled)
