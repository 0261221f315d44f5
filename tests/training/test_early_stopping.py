import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from consilience.training.early_stopping import EarlyStopping

LOSS = st.one_of(st.floats(-5, 5), st.just(math.inf), st.just(math.nan))


@given(st.lists(st.tuples(LOSS, LOSS), min_size=1, max_size=12), st.integers(1, 4))
def test_models_at_once_stop_as_each_alone(losses, patience):
    together = EarlyStopping(patience, models=2)
    for epoch, pair in enumerate(losses):
        for model, loss in enumerate(pair):
            together.improves(loss, epoch, model)
    for model in range(2):
        own = np.array([pair[model] for pair in losses])
        known = np.where(np.isnan(own), math.inf, own)
        best = int(known.argmin()) if np.isfinite(known.min()) else None
        assert together.best_epoch[model] == best
        assert together.stale[model] == (len(own) if best is None else len(own) - 1 - best)
        assert together.ended(model) == (together.stale[model] >= patience)


def test_without_patience_nothing_ends():
    stopping = EarlyStopping(None)
    assert [stopping.improves(loss, epoch) for epoch, loss in enumerate([1.0, 2.0, 2.0])] == [True, False, False]
    assert not stopping.ended()


def test_state_goes_on():
    first, second = EarlyStopping(2), EarlyStopping(2)
    first.improves(1.0, 0)
    first.improves(3.0, 1)
    second.restore(first.state())
    assert second.improves(2.0, 2) is False
    assert (second.best, second.best_epoch, second.ended()) == ([1.0], [0], True)
