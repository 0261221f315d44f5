"""The control with as many parameters as the loop."""

import pytest
import torch
from torch import nn

from consilience.core.errors import UnsupportedError
from consilience.core.samples import Modality
from consilience.methods import Spec, build
from consilience.methods.progressive.wide_control import fitting_factors, widened_choice
from toy_batches import CLASSES, batch_of

KINDS = {
    "digits": {name: Modality(name, "vector", (32,)) for name in ("upper", "lower")},
    "sequences": {name: Modality(name, "sequence", (20, 3)) for name in ("one", "two")},
    "mixed": {
        "image": Modality("image", "image", (1, 12, 12)),
        "text": Modality("text", "tokens", (6,), vocabulary=50),
    },
}


def count(name, spec, **settings):
    return sum(one.numel() for one in build(name, spec, settings).parameters())


@pytest.mark.parametrize(
    ("kind", "mode"), [*((kind, "add") for kind in KINDS), ("digits", "concat"), ("sequences", "concat")]
)
def test_as_many_parameters_as_the_loop(kind, mode):
    spec = Spec(KINDS[kind], CLASSES)
    settings = {"mode": mode, "steps": 3}
    looped, wide = (count(f"{family}:concat", spec, **settings) for family in ("pro", "wide"))
    assert wide == pytest.approx(looped, rel=0.02)
    assert wide > count("concat", spec)


def test_it_is_the_base_otherwise():
    spec = Spec(KINDS["digits"], CLASSES)
    torch.manual_seed(0)
    base = build("concat", spec)
    torch.manual_seed(0)
    same = build("wide:concat", spec, {"steps": 1, "width": 256})
    assert list(same.state_dict()) == list(base.state_dict())
    batch = batch_of(modalities=KINDS["digits"])
    assert torch.equal(same.eval()(batch).output, base.eval()(batch).output)


def test_encoders_that_cannot_be_widened():
    modality = KINDS["digits"]["upper"]
    custom = nn.Linear(32, 4)
    assert widened_choice(modality, custom, 2.0) is custom
    transformer = widened_choice(KINDS["sequences"]["one"], {"name": "transformer", "heads": 8}, 1.3)
    assert transformer["width"] % 8 == 0
    with pytest.raises(UnsupportedError, match=r"encoders widened 16 times come to .* parameters, the loop has"):
        build("wide:concat", Spec({"upper": modality}, CLASSES, {"upper": custom}))


def test_factors_of_their_own_come_nearer():
    def counted(factors):
        return 100 * round(factors["coarse"]) + round(40 * factors["fine"])

    factors = fitting_factors(counted, ("coarse", "fine"), 245)
    assert counted(factors) == pytest.approx(245, rel=0.01)
    assert len(set(factors.values())) == 2


@pytest.mark.parametrize("name", ["lf-lstm", "ef-lstm", "mult", "mag"])
def test_a_method_with_a_width_or_encoders_of_its_own_is_widened_as_what_it_is(name):
    spec = Spec(KINDS["sequences"], CLASSES)
    base, wide = build(name, spec), build(f"wide:{name}", spec, {"project": 300})

    def kinds(method):
        return [type(module).__name__ for module in method.modules()][1:]

    assert kinds(wide) == kinds(base)  # the same parts, none exchanged for the default of its kind
    assert sum(one.numel() for one in wide.parameters()) > sum(one.numel() for one in base.parameters())
