import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from consilience.core.errors import UnknownNameError
from consilience.methods import PerModality, Spec
from toy_batches import CLASSES, VECTORS


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
