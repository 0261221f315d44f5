"""How rarely sound samples may be taken for broken."""

from __future__ import annotations

import torch
from torch import Tensor

from consilience.bayes.learned_buffers import Learned

# The share of sound samples for which "something is broken" may come out more probable than not.
_FALSE_ALARMS = 0.005


class Alarm(Learned):
    """The log-odds that all are sound, calibrated on sound samples: at most 1 in 200 may raise a false alarm.

    Many modalities that each look a little unusual multiply to a false alarm, and so do dependent experts that differ.
    The log-odds are therefore counted from the 0.5 % quantile of sound samples, if that is below even odds. Before
    `fit` they are left as they are.
    """

    threshold: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.learn(threshold=torch.tensor(0.0))

    def fit(self, log_odds: Tensor) -> Alarm:
        """Learn from the log-odds of sound samples, out-of-fold: `[n]`."""
        self.learn(threshold=log_odds.quantile(_FALSE_ALARMS).clamp(max=0))
        return self

    def forward(self, log_odds: Tensor) -> Tensor:
        """The calibrated log-odds `[n]`.

        >>> alarm = Alarm().fit(torch.linspace(-4.0, 4.0, 201))
        >>> alarm(torch.tensor([-4.0, 0.0]))
        tensor([-0.0400,  3.9600])
        """
        return log_odds - self.threshold.to(log_odds)
