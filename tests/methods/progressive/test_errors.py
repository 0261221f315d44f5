"""What cannot be looped is refused, with the submodule and the reason."""

import warnings

import pytest
import torch
from torch import nn

from consilience import FusionClassifier
from consilience.core.errors import InputError, UnknownNameError, UnsupportedError
from consilience.core.samples import Modality
from consilience.methods import JointMethod, Spec, build, find
from consilience.methods.progressive.progressive import progressive
from methods.progressive.foreign import CASES, Plain, inputs_of
from toy_batches import CLASSES, VECTORS, batch_of

TEXT = {"text": Modality("text", "tokens", (4,), vocabulary=5), **VECTORS}


def loop(base=None, case="plain", encoders=None, fusion="join", **options):
    base = CASES[case][0]() if base is None else base
    return progressive(base, encoders=encoders or CASES[case][1], fusion=fusion, example=inputs_of(case), **options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"encoders": {"a": "sond"}}, r"unknown submodule 'sond': did you mean 'sound'\?.*encoders\['a'\] of Plain"),
        ({"fusion": "joint"}, r"unknown submodule 'joint': did you mean 'join'\?.*as fusion of Plain"),
        ({"fusion": nn.Linear(2, 2)}, "fusion, a Linear, is no submodule of Plain"),
        ({"encoders": {"a": "sound", "b": "sound"}}, "submodule 'sound' was given for both 'a' and 'b'"),
        ({"steps": 0}, "steps must be a whole number ≥ 1, got 0"),
        ({"mode": "multiply"}, "unknown mode 'multiply'. Known: add, concat. It was given for progressive"),
        ({"link_rank": 0}, "link_rank must be a whole number ≥ 1 or None, got 0"),
        ({"project": 1.5}, "project must be a whole number ≥ 1 or None, got 1.5"),
        ({"detach": "no"}, "detach must be True or False, got 'no'"),
        ({"encoders": ["sound"]}, r"encoders must be a mapping modality → submodule, got \['sound'\]"),
        ({"step_loss": 0.5}, r"step_loss is a setting of a method's loop; of a module, add losses of what passes\("),
        ({"link_rnak": 2}, r"unknown setting 'link_rnak': did you mean 'link_rank'\?.*given for progressive"),
        ({"statistics": "all"}, "unknown statistics 'all'.*Known: first, last, per-step"),
        ({"encoders": {"image": "sight.1"}, "mode": "concat"}, "'sight.1', which begins with BatchNorm2d"),
        ({"encoders": {"image": "sight.3"}, "mode": "concat"}, "'sight.3', which has no weights"),
    ],
)
def test_what_does_not_exist(given, message):
    with pytest.raises(InputError, match=message):
        loop(**given)


def test_weights_that_an_optimizer_may_have_missed_are_told():
    base, encoders, inputs = CASES["plain"][0](), CASES["plain"][1], inputs_of("plain")
    late = progressive(base, encoders=encoders, fusion="join")
    with pytest.warns(UserWarning, match=r"an optimizer made before it would leave them at zero.*example=inputs"):
        late(*inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        late(*inputs)
        with torch.no_grad():  # a first call that is meant to make them
            progressive(CASES["plain"][0](), encoders=encoders, fusion="join")(*inputs)


class Odd(nn.Module):
    """A model in which several things cannot be looped."""

    def __init__(self):
        super().__init__()
        self.shared, self.unused, self.flat = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.residual, self.ids = Residual(), Lookup()
        self.join, self.counts, self.head = nn.Linear(12, 6), Counts(), nn.Linear(6, 2)

    def forward(self, sound, sight):
        twice = self.shared(sound) + self.shared(sound.flip(0))
        flat = self.flat(sound.repeat_interleave(3, dim=0)).view(len(sound), 3, 4).sum(1)
        joined = self.join(torch.cat([twice, flat, self.residual(sound)], dim=1))
        return self.head(joined) + self.ids((sound > 0).long()) + self.counts(sound)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return x + self.layer(x)


class Lookup(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(2, 2)

    def forward(self, ids):
        return self.table(ids).sum(1)


class Counts(nn.Module):
    def forward(self, x):
        return (x > 0).sum()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"encoders": {"a": "shared"}}, "submodule 'shared' is called 2 times in one forward pass"),
        ({"encoders": {"a": "unused"}}, "submodule 'unused' is not called in one forward pass"),
        ({"fusion": "shared"}, "the fusion 'shared' is called 2 times in one forward pass"),
        ({"fusion": "unused"}, "the fusion 'unused' is not called"),
        ({"fusion": "counts"}, r"fusion 'counts' must return numbers \[batch, width\].*got int64 of shape \[\]"),
        (
            {"encoders": {"a": "flat"}},
            r"submodule 'flat' receives float32 of shape \[15, 4\], to which a context of 5 samp",
        ),
        ({"encoders": {"a": "residual"}, "mode": "concat"}, "'residual': .* read by more than its first layer, Linear"),
        (
            {"encoders": {"a": "ids"}, "mode": "concat"},
            "context cannot return to the fusion from 'ids', called after the fusion has returned",
        ),
    ],
)
def test_what_cannot_be_looped_leaves_the_base_as_it_was(given, message):
    base = Odd()
    with pytest.raises(UnsupportedError, match=message):
        loop(base, **{"encoders": {"a": "residual"}, **given})
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in base.modules())
    assert not any("forward" in vars(module) for module in base.modules())
    assert all(module.training for module in base.modules())


def test_other_shapes_later_are_the_callers_error():
    looped = loop()
    with pytest.raises(RuntimeError, match=r"size|shape"):
        looped(torch.zeros(5, 3), torch.zeros(5, 1, 6, 6))


def test_a_module_needs_names_and_a_method_needs_none():
    with pytest.raises(InputError, match="Plain is not a method of this library: name the submodules"):
        progressive(Plain())
    with pytest.raises(InputError, match="a method's encoders, fusion and shapes are known"):
        progressive(build("concat", Spec(VECTORS, CLASSES)), fusion="fusion")
    with pytest.raises(UnknownNameError, match=r"unknown setting 'stepz': did you mean 'steps'\?"):
        progressive(build("concat", Spec(VECTORS, CLASSES)), stepz=3)
    with pytest.raises(InputError, match=r"got 'concat': by name there is 'pro:NAME'"):
        progressive("concat")
    with pytest.raises(InputError, match=r"got a FusionClassifier: .* a fitted estimator's method is model_\.method"):
        progressive(FusionClassifier("concat"))
    with pytest.raises(InputError, match="name at least one submodule"):
        progressive(Plain(), encoders={}, fusion="join")


@pytest.mark.parametrize("family", ["pro", "wide", "unimodal-feedback"])
def test_methods_without_a_fusion(family):
    spec = Spec(VECTORS, CLASSES)
    with pytest.raises(UnsupportedError, match=f"there is no '{family}:late': 'late' has no fusion of features"):
        build(f"{family}:late", spec, {"steps": 3})
    with pytest.raises(UnknownNameError, match=f"unknown method 'concta'.*'concat'.*'{family}:NAME'"):
        build(f"{family}:concta", spec)
    assert "late" not in find(f"{family}:concat")[0].arguments(())


def test_methods_that_are_looped_already_or_built_otherwise():
    looped = build("pro:concat", Spec(VECTORS, CLASSES))
    with pytest.raises(UnsupportedError, match="'pro:concat' is a loop already"):
        progressive(looped)
    with pytest.raises(UnsupportedError, match="'late' has no fusion of features to feed back"):
        progressive(build("late", Spec(VECTORS, CLASSES)))

    class Own(JointMethod):
        name = "own"

        def forward(self, batch):
            return super().forward(batch)

    with pytest.raises(UnsupportedError, match="the forward pass of 'own' is its own"):
        progressive(Own(Spec(VECTORS, CLASSES)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps must be a whole number ≥ 1, got 0"),
        ({"mode": "times"}, "unknown mode 'times'.*Known: add, concat"),
        ({"into": "blok1"}, r"unknown stage 'blok1': did you mean 'block1'\?.* the encoder of 'image'"),
        ({"into": {"smell": "block1"}}, "unknown modality 'smell'.*given in into"),
        ({"detach": 1}, "detach must be True or False, got 1"),
        ({"step_loss": -1}, "step_loss must be a number ≥ 0, got -1"),
        ({"link_penalty": True}, "link_penalty must be a number ≥ 0, got True"),
        ({"statistics": "mean", "steps": 1}, "unknown statistics 'mean'.*Known: first"),
        ({"mode": "concat", "into": "end"}, "mode='concat' needs a layer to read the context.*'image'"),
    ],
)
def test_settings_of_a_loop(settings, message):
    with pytest.raises(InputError, match=message):
        build("pro:concat", Spec(VECTORS, CLASSES), settings)


def test_stages_of_tokens_and_transformers():
    with pytest.raises(InputError, match=r"stage 'embed' of modality text .*receives whole numbers.*into 'end'"):
        build("pro:concat", Spec(TEXT, CLASSES), {"into": {"text": "embed"}})
    spec = Spec(TEXT, CLASSES, {"text": "transformer"})
    with pytest.raises(UnsupportedError, match="stage 'layer1' of modality 'text', which begins with LayerNorm"):
        build("pro:concat", spec, {"into": {"text": "layer1"}, "mode": "concat"})


class Twice(JointMethod):
    """A method that encodes everything twice in one pass."""

    name = "twice"

    def __init__(self, spec):
        super().__init__(spec)
        self.fusion, self.head = Sum(), nn.Linear(64, spec.task.outputs)

    def represent(self, batch):
        super().represent(batch)
        return super().represent(batch)


class Sum(nn.Module):
    def forward(self, features, batch):
        return sum(encoded.pooled for encoded in features.values())


def test_an_encoder_that_is_called_twice():
    looped = progressive(Twice(Spec(VECTORS, CLASSES)))
    with pytest.raises(UnsupportedError, match="the encoder of modality 'image' is called twice in one pass"):
        looped(batch_of())
    looped.represent(batch_of())  # outside a loop it may be
