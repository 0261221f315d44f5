import math
import sys
import types

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from consilience import methods
from consilience.encoders import Encoded
from consilience.errors import ConsilienceError, InputError, UnknownNameError, UnsupportedError
from consilience.methods import (
    ExpertMethod,
    JointMethod,
    Method,
    PerModality,
    Prediction,
    Spec,
    Step,
    encode,
    expert_losses,
    task_losses,
    weighted_mean,
)
from consilience.samples import Modality
from toy_batches import CLASSES, NUMBERS, VECTORS, batch_of

SPEC = Spec(VECTORS, CLASSES)


@pytest.fixture
def scratch(monkeypatch):
    """A registry that the test may write to."""
    methods.registry()
    monkeypatch.setattr(methods, "_REGISTRY", dict(methods._REGISTRY))


def test_the_registry_knows_the_first_inhabitants_in_order():
    known = methods.registry()
    assert list(known) == sorted(known)
    first = {"concat", "align", "early", "late", "late-probs", "unimodal:", "best-unimodal"}
    assert first <= known.keys()
    assert all(cls.name == name for name, cls in known.items())
    known.clear()
    assert methods.registry()  # a copy


def test_families_are_spelled_out():
    names = methods.available(["keys", "temp.1"])
    assert {"unimodal:keys", "unimodal:temp.1", "concat"} <= set(names)
    assert "unimodal:" not in names
    assert "unimodal:MODALITY" in methods.available()


def test_finding():
    assert methods.find("concat")[1] is None
    cls, argument = methods.find("unimodal:temp.1")
    assert (cls.name, argument) == ("unimodal:", "temp.1")
    assert methods.find("unimodal:a:b")[1] == "a:b"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("conct", "unknown method 'conct': did you mean 'concat'"),
        ("Concat", "did you mean 'concat'"),
        ("unimodal", "did you mean 'unimodal:(image|audio)'.*It is a family"),
        ("unimodal-audio", "did you mean 'unimodal:audio'"),
        ("concat:image", "unknown method 'concat:image'"),
        ("", "Known: align"),
    ],
)
def test_unknown_methods_are_suggested(name, message):
    with pytest.raises(UnknownNameError, match=message):
        methods.build(name, SPEC)


def test_unknown_modalities_of_a_family_are_suggested():
    for name in ("unimodal:imge", "unimodal:"):
        with pytest.raises(UnknownNameError, match=r"unknown modality .*Known: audio, image.*'unimodal:NAME'"):
            methods.build(name, SPEC)


def test_settings():
    assert methods.build("concat", SPEC, {"width": 5}).head.in_features == 5
    assert methods.build("late", SPEC, {"expert_loss": 0.5}).expert_loss == 0.5  # inherited
    with pytest.raises(UnknownNameError, match=r"unknown setting 'wdth': did you mean 'width'.*method 'concat'"):
        methods.build("concat", SPEC, {"wdth": 5})
    with pytest.raises(UnknownNameError, match="unknown setting 'spec'"):  # only keyword-only arguments are settings
        methods.build("concat", SPEC, {"spec": 5})
    with pytest.raises(UnknownNameError, match="unknown setting 'width': There are none"):
        methods.build("best-unimodal", SPEC, {"width": 5})


@pytest.mark.parametrize("wrong", [{"width": "wide"}, {"width": -1}, {"dropout": 2.0}, {"width": 2.5}])
def test_settings_out_of_range_name_the_method_and_the_setting(wrong):
    with pytest.raises(InputError, match=rf"method 'concat': {next(iter(wrong))} must be"):
        methods.build("concat", SPEC, wrong)


def test_reasons_against():
    text = {"review": Modality("review", "tokens", (9,), 50), **VECTORS}
    for name, spec, reason in [
        ("late-probs", Spec(VECTORS, NUMBERS), "serves classification, not regression"),
        ("align", SPEC.only("image"), "needs at least 2 modalities, got 1"),
        ("early", Spec(text, CLASSES), "reads vector, image, sequence, not review"),
    ]:
        with pytest.raises(UnsupportedError, match=f"method {name!r} cannot be used here: it {reason}"):
            methods.build(name, spec)
        assert methods.registry()[name].reason_against(spec.modalities, spec.task).startswith("it ")
    assert methods.registry()["concat"].reason_against(text, NUMBERS) is None


@pytest.mark.parametrize("name", ["", "Concat", "con cat", "con_cat", "-concat", "concat-", "1concat", "a::", ":", "ä"])
def test_malformed_names_fail_at_registration(name):
    with pytest.raises(ConsilienceError, match="must be lower-case words joined by hyphens"):
        methods.register(name)


@pytest.mark.usefixtures("scratch")
def test_duplicates_fail_loudly():
    with pytest.raises(ConsilienceError, match=r"method 'concat' is registered twice: Concat and .*Another"):

        @methods.register("concat")
        class Another(Method):
            pass


@pytest.mark.usefixtures("scratch")
def test_a_method_of_the_users_joins_by_registering():
    @methods.register("mine-2", paper="Me, Mine", equation="1")
    class Mine(Method):
        def __init__(self, spec, *, depth: int = 1):
            super().__init__(spec)
            self.depth = depth

    assert methods.registry()["mine-2"] is Mine
    assert (Mine.name, Mine.paper, Mine.equation) == ("mine-2", "Me, Mine", "1")
    assert methods.build("mine-2", SPEC, {"depth": 3}).depth == 3
    with pytest.raises(UnknownNameError, match="did you mean 'mine-2'"):
        methods.find("mine2")


@pytest.mark.usefixtures("scratch")
def test_other_packages_join_through_entry_points(monkeypatch):
    class Plugin:
        def load(self):
            if "guest" not in methods._REGISTRY:
                methods.register("guest")(type("Guest", (Method,), {}))

    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Plugin()] if "methods" in group else [])
    assert methods.find("guest")[0].__name__ == "Guest"


def test_load_room_imports_every_module(tmp_path, monkeypatch):
    room = tmp_path / "annexe"
    room.mkdir()
    (room / "__init__.py").write_text("")
    (room / "first.py").write_text("met = True")
    (room / "second.py").write_text("met = True")
    monkeypatch.syspath_prepend(tmp_path)
    package = types.ModuleType("annexe")
    package.__path__ = [str(room)]
    monkeypatch.setitem(sys.modules, "annexe", package)
    methods.load_room("annexe", [str(room)])
    assert sys.modules["annexe.first"].met
    assert sys.modules.pop("annexe.second").met
    del sys.modules["annexe.first"]


def test_spec():
    with pytest.raises(UnknownNameError, match=r"unknown modality 'imag': did you mean 'image'.*given in encoders"):
        Spec(VECTORS, CLASSES, {"imag": "mlp"})
    spec = Spec(VECTORS, CLASSES, {"image": {"hidden": [5]}, "audio": nn.Linear(2, 7)})
    assert [encoder.width for encoder in spec.build_encoders().values()] == [5, 7]
    only = spec.only("audio")
    assert (list(only.modalities), list(only.encoders), only.task) == (["audio"], ["audio"], CLASSES)
    with pytest.raises(UnknownNameError, match="unknown modality 'adio': did you mean 'audio'"):
        spec.only("adio")


ODD = ["keys", "temp.1", "", "training", "0", "ä ö", "forward", "items"]


@given(st.lists(st.one_of(st.sampled_from(ODD), st.text(max_size=5)), min_size=1, max_size=6, unique=True))
@settings(max_examples=50, deadline=None)
def test_per_modality_accepts_any_name(names):
    modules = {name: nn.Linear(position + 1, 2) for position, name in enumerate(names)}
    each = PerModality(modules)
    assert len(each) == len(names)
    assert list(each.items()) == list(modules.items())
    assert list(each.values()) == list(modules.values())
    assert all(each[name] is module for name, module in modules.items())
    again = PerModality({name: nn.Linear(position + 1, 2) for position, name in enumerate(names)})
    again.load_state_dict(each.state_dict())
    assert sum(one.numel() for one in again.parameters()) == sum(2 * width + 2 for width in range(1, len(names) + 1))
    with pytest.raises(UnknownNameError, match="unknown modality"):
        each["no such name"]


@pytest.mark.parametrize("name", ["concat", "late", "align", "best-unimodal", "unimodal:temp.1"])
def test_odd_modality_names_serve_every_method(name):
    modalities = {"keys": Modality("keys", "vector", (2,)), "temp.1": Modality("temp.1", "vector", (3,))}
    method = methods.build(name, Spec(modalities, CLASSES))
    assert method(batch_of(modalities=modalities)).output.shape == (6, 3)


class Normed(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.map, self.norm = nn.Linear(width, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(self.map(x))


def test_absent_rows_move_no_batch_statistics():
    present = torch.tensor([[True, True], [False, True], [True, True], [False, True], [True, True]])
    batch = batch_of(5, present)
    spec = Spec(VECTORS, CLASSES, {"image": Normed(3)})
    encoder, alone = spec.build_encoder("image"), spec.build_encoder("image")
    alone.load_state_dict(encoder.state_dict())
    encoded = encode(encoder, batch, "image")
    expected = alone(batch["image"][present[:, 0]])
    torch.testing.assert_close(encoded.pooled[present[:, 0]], expected.pooled)
    assert (encoded.pooled[~present[:, 0]] == 0).all()
    for name, value in alone.state_dict().items():
        assert torch.equal(encoder.state_dict()[name], value)
    # What an absent row holds reaches neither the features nor the gradients.
    garbage = batch_of(5, present)
    garbage.values["image"][~present[:, 0]] = float("nan")
    torch.testing.assert_close(encode(alone, garbage, "image").pooled[present[:, 0]], encoded.pooled[present[:, 0]])
    encode(alone, garbage, "image").pooled.sum().backward()
    assert all(torch.isfinite(one.grad).all() for one in alone.parameters())


def test_encoding_keeps_order_sequences_and_masks():
    modality = Modality("words", "sequence", (4, 2))
    present = torch.tensor([[False], [True], [False], [True]])
    batch = batch_of(4, present, modalities={"words": modality})
    batch.lengths = {"words": torch.tensor([0, 3, 0, 1])}
    encoder = Spec({"words": modality}, CLASSES, {"words": "gru"}).build_encoder("words").eval()
    encoded = encode(encoder, batch, "words")
    for row in (1, 3):
        single = encoder(batch["words"][row : row + 1], batch.lengths["words"][row : row + 1])
        torch.testing.assert_close(encoded.pooled[row], single.pooled[0], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(encoded.sequence[row], single.sequence[0], atol=1e-6, rtol=1e-5)
    assert encoded.mask.tolist() == [[False] * 4, [True] * 3 + [False], [False] * 4, [True] + [False] * 3]
    assert not encoded.pooled[[0, 2]].any()


def test_encoding_what_nobody_has():
    batch = batch_of(3, torch.zeros(3, 2, dtype=torch.bool))
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        encoder = SPEC.build_encoder("image").to(dtype)
        before = {name: value.clone() for name, value in encoder.state_dict().items()}
        encoded = encode(encoder, batch, "image")
        assert (encoded.pooled.shape, encoded.pooled.dtype) == ((3, encoder.width), dtype)
        assert not encoded.pooled.any()
        assert not encoded.mask.any()
        assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())


def test_encoding_a_batch_that_is_whole_without_knowing_it():
    known, unknown = batch_of(4), batch_of(4)
    unknown.complete = frozenset()
    encoder = SPEC.build_encoder("image").eval()
    assert torch.equal(encode(encoder, known, "image").pooled, encode(encoder, unknown, "image").pooled)


def test_task_losses_by_hand():
    batch = batch_of(5)
    logits = torch.randn(5, 3)
    expected = [
        math.log(sum(math.exp(one) for one in row)) - row[label]
        for row, label in zip(logits.tolist(), batch.y.tolist())
    ]
    np.testing.assert_allclose(task_losses(CLASSES, logits, batch), expected, rtol=1e-5)
    batch = batch_of(5, task=NUMBERS)
    output = torch.randn(5, 2)
    expected = [
        sum((o - t) ** 2 for o, t in zip(row, target)) / 2 for row, target in zip(output.tolist(), batch.y.tolist())
    ]
    np.testing.assert_allclose(task_losses(NUMBERS, output, batch), expected, rtol=1e-5)


@pytest.mark.parametrize("task", [CLASSES, NUMBERS], ids=["classes", "numbers"])
def test_expert_losses_are_task_losses_of_each(task):
    batch = batch_of(5, task=task)
    opinions = torch.randn(5, 4, task.outputs)
    found = expert_losses(task, opinions, batch)
    assert found.shape == (5, 4)
    for expert in range(4):
        torch.testing.assert_close(found[:, expert], task_losses(task, opinions[:, expert], batch))


@given(st.integers(0, 100), st.sampled_from([1e-20, 1.0, 1e15]))
@settings(deadline=None)
def test_weighted_means_are_numpys_and_know_no_scale(seed, scale):
    random = np.random.default_rng(seed)
    values, weight = random.normal(size=(6, 3)), random.random((6, 3)) * (random.random((6, 3)) < 0.7)
    weight[0] += 0.1
    v, w = torch.tensor(values), torch.tensor(weight * scale)
    np.testing.assert_allclose(weighted_mean(v, w), np.average(values, weights=weight), rtol=1e-9)
    np.testing.assert_allclose(weighted_mean(v, w, dim=0), np.average(values, weights=weight, axis=0), rtol=1e-9)


def test_a_mean_of_nothing_is_zero_with_a_gradient():
    values = torch.randn(4, 2, requires_grad=True)
    weight = torch.tensor([[1.0, 0.0]]).expand(4, 2)
    found = weighted_mean(values, weight, dim=0)
    assert found[1] == 0
    (found.sum() + weighted_mean(values, torch.zeros(4, 2))).backward()
    assert torch.equal(values.grad, torch.tensor([[0.25, 0.0]]).expand(4, 2))
    assert weighted_mean(torch.ones(2), torch.tensor([True, False])) == 1


class Loudest(ExpertMethod):
    def combine(self, opinions, batch):
        return opinions.sum(1), batch.present.float()


@pytest.mark.parametrize("task", [CLASSES, NUMBERS], ids=["classes", "numbers"])
def test_experts_learn_from_the_samples_that_have_their_modality(task):
    present = torch.tensor([[True, True], [False, True], [True, False], [False, False]])
    batch = batch_of(4, present, task, weight=[1.0, 2.0, 0.5, 3.0])
    method = Loudest(Spec(VECTORS, task), expert_loss=0.3).eval()
    prediction = method(batch)
    losses = method.objective(prediction, batch, Step())
    own = expert_losses(task, prediction.opinions, batch).detach().numpy()
    weight = batch.weight.numpy()
    # Divided by the whole batch's weight, so that batches of a step add up however their gaps fall.
    expected = sum(weight[i] * own[i, m] for i in range(4) for m in range(2) if present[i, m]) / weight.sum()
    assert losses["experts"].item() == pytest.approx(0.3 * expected, rel=1e-5)
    fused = task_losses(task, prediction.output, batch).detach().numpy()
    assert losses["task"].item() == pytest.approx(np.average(fused, weights=weight), rel=1e-5)
    assert list(Loudest(Spec(VECTORS, task), expert_loss=0).objective(prediction, batch, Step())) == ["task"]


def test_a_joint_method_is_encoders_fusion_head():
    class Sum(JointMethod):
        def __init__(self, spec):
            super().__init__(spec)
            self.head = nn.Linear(4, spec.task.outputs)

        def fusion(self, features, batch):
            return sum(one.pooled for one in features.values())

    method = Sum(Spec(VECTORS, CLASSES, {"image": nn.Linear(3, 4), "audio": nn.Linear(2, 4)}))
    batch = batch_of(5)
    prediction = method(batch)
    joint = method.encoders["image"](batch["image"]).pooled + method.encoders["audio"](batch["audio"]).pooled
    torch.testing.assert_close(prediction.joint, joint)
    torch.testing.assert_close(prediction.output, method.head(joint))
    assert isinstance(prediction.features["image"], Encoded)


def test_the_bare_contract_says_what_is_missing():
    with pytest.raises(NotImplementedError):
        Method(SPEC)(batch_of())
    with pytest.raises(NotImplementedError):
        ExpertMethod(SPEC)(batch_of())
    runs = []

    class Recorder:
        def run(self, *given):
            runs.append(given)

    method = Method(SPEC)
    method.fit("train", "validation", Recorder())
    assert runs == [(method, "train", "validation")]
    assert Method.arguments(["a"]) == []
    assert Prediction(torch.zeros(1)).extra == {}
