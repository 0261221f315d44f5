"""How far a modality that looks unusual can still be used, learned from training samples that were spoilt on purpose.

`Reliability` computes how unusual each modality of a sample looks. A fixed map from "unusual" to "broken" discards what
a mildly noisy modality still knows. The gate here corrects that map: from the signals of each modality it computes

    ρ_m, the probability that the modality is sound, and τ_m, a temperature of its expert's opinion

and from all of them the log-odds a that none is broken. The posterior is

    P(c | x) = σ(a)·P_bayes(c | x) + (1 − σ(a))·P_robust(c | x; ρ, τ)

The gate is a small network that starts as the fixed map. It is fitted by the log-loss on out-of-fold samples, sound and
spoilt, with a penalty on its departure from the fixed map that weighs more the fewer samples there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from consilience.bayes.anomaly_scores import SHARED
from consilience.bayes.learned_buffers import Learned
from consilience.bayes.reliability import Signals, all_sound, gain, log_mixture, posterior_trust
from consilience.bayes.score_density import CAP, FLOOR, bounded

# The cap on P(sound) of a modality where P(all are sound) is computed.
ALL_SOUND_CAP = 0.99
_HIDDEN = 16
_MAX_LOG_TEMPERATURE = 3.0
_LEAST_RHO, _MOST_RHO = 1e-4, 0.999
# Of the fit: steps of Adam, the samples of a step, one third of them sound, and the penalty for one sample.
_STEPS, _BATCH, _RATE = 300, 768, 0.02
_PENALTY = 1.0
# How strongly ρ of sound samples is drawn to its cap.
_SOUND = 0.1
_LEAST_SCALE = 1e-3


class Graded(NamedTuple):
    """What the gate decides for every sample.

    Attributes:
        log_posterior: If any modality may be broken, `[n, class]`.
        log_odds: That none is broken, `[n]`.
        rho: P(sound) `[n, modality]`, 0 where missing.
        log_p: The experts' opinions at their temperatures τ, `[n, modality, class]`.
        share: min(1, 1/τ) `[n, modality]`: how much of the evidence of an opinion is left at its temperature.
    """

    log_posterior: Tensor
    log_odds: Tensor
    rho: Tensor
    log_p: Tensor
    share: Tensor

    @property
    def reliability(self) -> Tensor:
        """ρ·min(1, 1/τ): how far each modality counts, `[n, modality]`."""
        return self.rho * self.share

    def trust(self, log_prior: Tensor, log_posterior: Tensor) -> Tensor:
        """The same given the opinions too: smaller for a modality that contradicts the log-posterior `[n, class]`."""
        return self.share * posterior_trust(self.log_p, log_prior, self.rho, log_posterior)


class Opinions(NamedTuple):
    """The experts' opinions on some samples, and how usual their modalities look.

    Attributes:
        log_p: Calibrated log-probabilities `[n, modality, class]`.
        log_prior: `[class]`.
        present: `[n, modality]`.
        signals: Of the modalities.
    """

    log_p: Tensor
    log_prior: Tensor
    present: Tensor
    signals: Signals

    def select(self, rows: Tensor) -> Opinions:
        """Those on some of the samples."""
        signals = Signals(*(values[rows] for values in self.signals))
        return Opinions(self.log_p[rows], self.log_prior, self.present[rows], signals)

    def float(self) -> Opinions:
        """The same in 32 bits."""
        signals = Signals(*(values.float() for values in self.signals))
        return Opinions(self.log_p.float(), self.log_prior.float(), self.present, signals)


class TrustGate(Learned):
    """ρ, τ and the log-odds that none is broken, from the signals of a sample. Before `fit`, the fixed map.

    Args:
        modalities: The number of modalities.
        deviations: The number of standardised scores of each modality in its `Signals`.
    """

    centre: Tensor
    scale: Tensor

    def __init__(self, modalities: int, deviations: int = SHARED):
        super().__init__()
        features = deviations + FEATURES - SHARED
        self.learn(
            centre=torch.zeros(features),
            scale=torch.ones(features),
            hidden_weight=torch.zeros(features + modalities, _HIDDEN),
            hidden_bias=torch.zeros(_HIDDEN),
            output_weight=torch.zeros(_HIDDEN, 3),
            output_bias=torch.zeros(3),
            mixture=torch.zeros(2),
            log_gain=torch.tensor(0.0),
        )

    def forward(self, opinions: Opinions, kappa: Tensor) -> Graded:
        """Grade samples. kappa: of the gain, see `reliability.gain`."""
        network = {name: getattr(self, name).to(opinions.log_p) for name in _NETWORK}
        return _grade(network, self._features(opinions), opinions, kappa, fixed_log_odds(opinions))

    def fit(
        self,
        opinions: Opinions,
        kappa: Tensor,
        bayes: Tensor,
        y: Tensor,
        sound: Tensor,
        weight: Tensor,
        seed: int = 0,
    ) -> TrustGate:
        """Learn from out-of-fold opinions on sound and on spoilt samples.

        Args:
            opinions: On all samples.
            kappa: Of the gain.
            bayes: The log-posterior of `bayes`, which takes all modalities to be sound: `[n, class]`.
            y: Class indices `[n]`.
            sound: Which samples are sound, a mask `[n]`.
            weight: Sample weights `[n]`.
            seed: Of the initial weights and of the samples of each step.
        """
        fixed = fixed_log_odds(opinions).float()
        opinions, kappa, bayes, weight = opinions.float(), kappa.float(), bayes.float(), weight.float()
        raw, present = signal_features(opinions.signals, opinions.present), opinions.present
        self.learn(centre=raw[sound][present[sound]].mean(dim=0), scale=raw[present].std(dim=0).clamp(min=_LEAST_SCALE))
        features = self._features(opinions)
        generator = torch.Generator().manual_seed(seed)
        network = {name: torch.zeros_like(getattr(self, name)).to(opinions.log_p) for name in _NETWORK}
        # The hidden layer starts at random and the one after it at 0, so that the gate starts as the fixed map.
        first = network["hidden_weight"]
        first.copy_((2 * torch.rand(first.shape, generator=generator, dtype=first.dtype) - 1) / len(first) ** 0.5)
        for values in network.values():
            values.requires_grad_()
        optimizer = torch.optim.Adam(list(network.values()), lr=_RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, _STEPS)
        rows, spoilt = torch.where(sound)[0], torch.where(~sound)[0]
        few = _BATCH // 3
        for _ in range(_STEPS):
            batch = torch.cat([_draw(weight, rows, few, generator), _draw(weight, spoilt, _BATCH - few, generator)])
            graded = _grade(network, features[batch], opinions.select(batch), kappa, fixed[batch])
            output = mixed(graded.log_odds, bayes[batch], graded.log_posterior)
            losses = -output.gather(1, y[batch, None])[:, 0]
            loss = (losses[:few].mean() + losses[few:].mean()) / 2 + _PENALTY / len(rows) * _departure(network)
            # Sound samples are answered by `bayes`, whatever ρ is: without this term it would mean nothing there.
            loss = loss + _SOUND * (CAP - graded.reliability[:few][present[batch[:few]]]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        self.learn(**{name: values.detach() for name, values in network.items()})
        return self

    def _features(self, opinions: Opinions) -> Tensor:
        """Standardised features and which modality they are of: `[n, modality, feature]`, 0 where missing."""
        raw, present = signal_features(opinions.signals, opinions.present), opinions.present
        which = torch.eye(present.shape[1], dtype=raw.dtype, device=raw.device).expand(present.shape[0], -1, -1)
        return torch.cat([(raw - self.centre.to(raw)) / self.scale.to(raw), which], dim=2) * present[..., None]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name, before in self._buffers.items():  # a model of before 0.2 has none: it has the fixed map
            state_dict.setdefault(prefix + name, before)
        super()._load_from_state_dict(state_dict, prefix, *args)


_NETWORK = ("hidden_weight", "hidden_bias", "output_weight", "output_bias", "mixture", "log_gain")
# Of each modality, with as many deviations as inputs have.
FEATURES = SHARED + 5


def signal_features(signals: Signals, present: Tensor) -> Tensor:
    """The inputs of the gate for each modality: `[n, modality, feature]`; those of a missing one are not used.

    Its own excess and deviations, its agreement with the others, the logit of the fixed ρ; and the mean excess and the
    mean logit of the other modalities, which show whether the whole sample is a little unusual.
    """
    excess = signals.excess.log1p()
    logit = _logit(bounded(signals.sound)) * present
    others = (present.sum(dim=1, keepdim=True) - 1).clamp(min=1)
    own = [excess, *_signed_log(signals.deviations).unbind(dim=2), _signed_log(signals.agreement), logit]
    context = [(values.sum(dim=1, keepdim=True) - values) / others for values in (excess, logit)]
    return torch.stack([*own, *context], dim=2)


def _signed_log(values: Tensor) -> Tensor:
    return values.sign() * values.abs().log1p()


def fixed_log_odds(opinions: Opinions) -> Tensor:
    """The log-odds `[n]` that no modality is broken, by the fixed map."""
    log_p, log_prior, present, signals = opinions
    rho = bounded(signals.sound, FLOOR, ALL_SOUND_CAP) * present
    p = all_sound(log_p, log_prior, rho, present)
    inside = p.clamp(torch.finfo(p.dtype).tiny, 1 - torch.finfo(p.dtype).eps)
    return inside.log() - (-inside).log1p()


def mixed(log_odds: Tensor, bayes: Tensor, robust: Tensor) -> Tensor:
    """Mix two log-posteriors `[n, class]` by the log-odds `[n]` of the first.

    >>> mixed(torch.tensor([0.0]), torch.tensor([[0.8, 0.2]]).log(), torch.tensor([[0.4, 0.6]]).log()).exp()
    tensor([[0.6000, 0.4000]])
    """
    first, second = functional.logsigmoid(log_odds)[:, None], functional.logsigmoid(-log_odds)[:, None]
    return torch.logaddexp(first + bayes, second + robust)


def _grade(network: Mapping[str, Tensor], features: Tensor, opinions: Opinions, kappa: Tensor, fixed: Tensor) -> Graded:
    """Apply the network to features `[n, modality, feature]`; fixed: the log-odds by the fixed map `[n]`."""
    log_p, log_prior, present, signals = opinions
    hidden = torch.tanh(features @ network["hidden_weight"] + network["hidden_bias"])
    change, heat, alarm = (hidden @ network["output_weight"] + network["output_bias"]).unbind(dim=2)
    rho = torch.sigmoid(_logit(bounded(signals.sound)) + change).clamp(_LEAST_RHO, _MOST_RHO) * present
    temperature = torch.exp(_MAX_LOG_TEMPERATURE * torch.tanh(heat / _MAX_LOG_TEMPERATURE))
    tempered = functional.log_softmax(log_p / temperature[..., None], dim=2)
    # With ρ = 0 of a missing modality the gradient would not be finite.
    evidence = log_mixture(tempered, log_prior, rho.where(present, 0.5)) * present[..., None]
    strength = gain(rho, kappa * network["log_gain"].exp())[:, None]
    log_posterior = functional.log_softmax(log_prior + strength * evidence.sum(dim=1), dim=1)
    # A sum, since one broken modality is enough.
    log_odds = fixed * network["mixture"][0].exp() + network["mixture"][1] + (alarm * present).sum(dim=1)
    return Graded(log_posterior, log_odds, rho, tempered, (1 / temperature).clamp(max=1))


def _logit(p: Tensor) -> Tensor:
    return p.log() - (-p).log1p()


def _departure(network: Mapping[str, Tensor]) -> Tensor:
    """The penalised distance from the fixed map."""
    return (
        0.1 * network["hidden_weight"].square().sum()
        + network["output_weight"].square().sum()
        + network["output_bias"].square().sum()
        + 10 * network["mixture"].square().sum()
        + network["log_gain"].square()
    )


def _draw(weight: Tensor, rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Rows drawn with replacement, in proportion to their weights."""
    return rows[torch.multinomial(weight[rows], count, replacement=True, generator=generator)]
