"""A traced rule, as an exported model has it, computes what the rule computes."""

import numpy as np
import pytest
import torch

from consilience.bayes.bayes_rule import BayesRule
from consilience.bayes.learned_buffers import knowing_values
from consilience.core.tracing import tracing


@pytest.mark.parametrize("prior", [None, [0.2, 0.5, 0.3]])
def test_a_traced_rule_gives_the_posterior_under_any_class_shares(prior):
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=200)
    opinions = 2.0 * np.eye(3)[y][:, None] + rng.normal(size=(200, 2, 3))
    rule = BayesRule(2, 3).fit(opinions, y, prior=np.full(3, 1 / 3))
    rows, present = torch.from_numpy(opinions[:20]), torch.ones(20, 2, dtype=torch.bool)
    present[:5, 0] = False
    target = None if prior is None else torch.tensor(prior, dtype=torch.float64)
    expected = rule(rows, present, target)
    with torch.no_grad(), knowing_values(rule), tracing():
        traced = rule(rows, present, target)
    torch.testing.assert_close(traced, expected)
