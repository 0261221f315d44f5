"""Shares in the training log: counts of all batches of an epoch, none where nothing was counted."""

import pytest
import torch

from consilience.methods.opinions.late import Late
from training.toys import make, make_samples, prepare, trainer


class Counting(Late):
    """Reports two shares: of samples with an even place, and, from the second epoch on, one of nothing at all."""

    logs_shares = True

    def objective(self, prediction, batch, step):
        even = torch.stack([(batch.index % 2 == 0).sum(), torch.tensor(len(batch))]).float()
        prediction.extra = {"shares": {"even": even, "never": torch.zeros(2)} if step.epoch else {}}
        return super().objective(prediction, batch, step)


def test_a_share_is_over_all_batches_of_an_epoch():
    samples = make_samples(25)
    preparation = prepare(samples)
    log = trainer(preparation, batch_size=10, epochs=3).run(make(Counting, preparation), samples)
    assert "even" not in log.rows[0]
    assert [row["even"] for row in log.rows[1:]] == pytest.approx([13 / 25, 13 / 25])
    assert all("never" not in row for row in log.rows)


def test_what_a_method_does_not_announce_is_not_logged():
    samples = make_samples(25)
    preparation = prepare(samples)
    method = make(Counting, preparation)
    method.logs_shares = False
    log = trainer(preparation, batch_size=10, epochs=2).run(method, samples)
    assert "even" not in log.rows[1]
