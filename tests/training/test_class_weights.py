"""Class weights by label, as a command line gives them."""

import numpy as np
import pytest

from consilience.core.errors import UnknownNameError
from consilience.training.class_weights import match_classes


def test_labels_may_be_given_as_text():
    numbers, words = np.array([0, 1, 2]), np.array(["ok", "fault"])
    assert match_classes({"1": 5.0, 2: 3}, numbers) == {1: 5.0, 2: 3}
    assert match_classes({"fault": 5.0}, words) == {"fault": 5.0}
    assert match_classes("balanced", words) == "balanced"
    with pytest.raises(UnknownNameError, match="unknown class 'falt': did you mean 'fault'"):
        match_classes({"falt": 1.0}, words)
