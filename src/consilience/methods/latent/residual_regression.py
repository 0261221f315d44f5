"""What a latent model misses, predicted from what is given, as a correction of what it imputes.

    x̂_m = E[x_m | x_S] + W_m φ(x_S, S),        φ_j = √(2/D) cos(ω_j · (x_S, S) + b_j)

A latent of few dimensions leaves out details, some of which can be predicted from the given modalities. W_m is a ridge
regression of the residuals of training samples, for random sets S of what each of them has, on random Fourier features
(Rahimi and Recht 2007, Random Features for Large-Scale Kernel Machines): kernel regression whose size does not grow
with the number of samples, and which keeps none of them. The penalty of each modality has the least error on held-out
samples; a modality for which the model alone is better is not corrected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.modalities import Modality
from consilience.methods.latent.subsets import MOST_ENUMERATED, all_subsets

if TYPE_CHECKING:
    from consilience.methods.latent.latent_model import LatentModel

# Pairs of a sample and a set that are learned from at most, and are computed at once.
MOST_PAIRS, AT_ONCE = 20_000, 512
# The widths of the kernels, in median distances of two pairs: as many features have one as another.
WIDTHS = (0.3, 0.5, 0.8)
PENALTIES = (0.1, 0.5, 2.0, 8.0, 32.0)
# What a flag of a given modality counts, where the numbers of a modality have a mean square norm of 1.
FLAG = 0.7
# Modalities that are read and corrected: numbers of a fixed shape, at most so many.
_KINDS, MOST_NUMBERS = ("vector", "image"), 4096


# Σ φφᵀ, Σ φ rᵀ and Σ r² over pairs, with the residual r of a modality.
Sums = tuple[Tensor, Tensor, Tensor]


class ResidualRegression:
    """Ridge regression of residuals on random features of what is given.

    Args:
        names: The modalities that are read, in order.
        centre: Of all their prepared numbers side by side, `[number]`.
        frequencies: ω `[number + modality, feature]`.
        phases: b `[feature]`.
        weights: Modality → W_m `[feature, number]`; others are not corrected.
    """

    def __init__(
        self,
        names: Sequence[str],
        centre: Tensor,
        frequencies: Tensor,
        phases: Tensor,
        weights: Mapping[str, Tensor],
    ):
        self.names, self.centre, self.frequencies, self.phases = tuple(names), centre, frequencies, phases
        self.weights = dict(weights)

    @classmethod
    @torch.no_grad()
    def fit(cls, model: LatentModel, train: Batch, held_out: Batch, features: int, seed: int) -> ResidualRegression:
        """Learn from the training samples, choose penalties on the held-out samples, then learn from both.

        Args:
            model: The trained model.
            train: Samples that it learned from, prepared, on its device.
            held_out: Samples that it did not learn from, likewise.
            features: How many random features at most; no more than there are pairs of a sample and a set.
            seed: Of the features, and of the sets where there are many.
        """
        generator = torch.Generator().manual_seed(seed)
        names = [name for name in model.names if _is_read(model.likelihoods[name].modality)]
        pairs, checks = (_pairs(batch, generator) for batch in (train, held_out))
        made = cls._draw(names, train, pairs, features, generator)
        targets = [name for name in names if len(pairs[0]) and len(checks[0])]
        learned = made._sums(model, train, pairs, targets)
        checked = made._sums(model, held_out, checks, targets)
        for name in targets:
            penalty = _best_penalty(learned[name], checked[name])
            if penalty is not None:
                gram, both, _ = (first + second for first, second in zip(learned[name], checked[name]))
                made.weights[name] = _solved(gram, both, penalty).float()
        return made

    @classmethod
    def _draw(
        cls, names: Sequence[str], train: Batch, pairs: tuple[Tensor, Tensor], features: int, generator: torch.Generator
    ) -> ResidualRegression:
        """Draw features whose kernels have the widths of the data."""
        centre, scales = [], []
        for name in names:
            there = train.present_in(name)
            values = train[name].flatten(1).float()
            mean = values[there].mean(0) if there.any() else values.new_zeros(values.shape[1])
            size = (values[there] - mean).square().sum(1).mean() if there.any() else values.new_ones(())
            centre.append(mean)
            scales.append(torch.full_like(mean, size.clamp(min=1e-12).rsqrt().item()))
        device = train.device
        count = max(1, min(features, len(pairs[0])))
        wide = torch.cat(centre) if centre else torch.zeros(0, device=device)
        frequencies = torch.randn(len(wide) + len(names), count, generator=generator).to(device)
        phases = (2 * math.pi * torch.rand(count, generator=generator)).to(device)
        made = cls(names, wide, frequencies, phases, {})
        if not len(pairs[0]) or not names:
            return made
        scale = torch.cat([*scales, torch.full((len(names),), FLAG, device=device)])[:, None]
        some = torch.randperm(len(pairs[0]), generator=generator)[:500].to(device)
        read = made._read(train.select(pairs[0][some]), pairs[1][some]) * scale.T
        apart = torch.pdist(read)
        width = apart[apart > 0].median() if (apart > 0).any() else apart.new_ones(())
        widths = torch.tensor(WIDTHS, device=device)[torch.arange(count, device=device) % len(WIDTHS)]
        made.frequencies = frequencies * scale / (widths * width)
        return made

    def features(self, batch: Batch, given: Tensor) -> Tensor:
        """Return φ of what each sample has of the given modalities: given `[batch, modality]` → `[batch, feature]`."""
        angles = torch.addmm(self.phases, self._read(batch, batch.present & given), self.frequencies)
        return angles.cos_().mul_(math.sqrt(2 / len(self.phases)))

    def corrections(self, batch: Batch, names: Sequence[str]) -> dict[str, Tensor]:
        """Return what is added to expected values of what samples lack: name → `[batch, *shape]`, prepared.

        It is 0 for a sample that has the modality, or that has nothing.
        """
        wanted = [name for name in names if name in self.weights]
        if not wanted:
            return {}
        features = self.features(batch, batch.present)
        anything = batch.present.any(1)
        found = {}
        for name in wanted:
            added = (features @ self.weights[name]).view(len(batch), *batch[name].shape[1:])
            off = batch.present_in(name) | ~anything
            found[name] = added.masked_fill_(off.view(-1, *[1] * (added.ndim - 1)), 0)
        return found

    def to(self, device: torch.device) -> ResidualRegression:
        """Return it on a device, itself if it is there."""
        if self.phases.device == device:
            return self
        weights = {name: weight.to(device) for name, weight in self.weights.items()}
        return ResidualRegression(
            self.names, self.centre.to(device), self.frequencies.to(device), self.phases.to(device), weights
        )

    def _read(self, batch: Batch, given: Tensor) -> Tensor:
        """Return centred numbers, 0 where not given, and flags of what is given: `[batch, number + modality]`."""
        columns = [given[:, batch.names.index(name)] for name in self.names]
        widths = [math.prod(batch[name].shape[1:]) for name in self.names]
        values = [
            (batch[name].flatten(1).float() - centre).masked_fill(~there[:, None], 0)
            for name, centre, there in zip(self.names, self.centre.split(widths), columns)
        ]
        return torch.cat([*values, torch.stack(columns, dim=1).float()], dim=1)

    @torch.no_grad()
    def _sums(
        self, model: LatentModel, batch: Batch, pairs: tuple[Tensor, Tensor], names: Sequence[str]
    ) -> dict[str, Sums]:
        """Return the sums for each modality, over the pairs that do not give it, in 64 bits."""
        count, device = len(self.phases), batch.device
        sums: dict[str, Sums] = {}
        for name in names:
            width = math.prod(batch[name].shape[1:])
            gram, both, squares = (
                torch.zeros(size, dtype=torch.float64, device=device) for size in ((count, count), (count, width), ())
            )
            sums[name] = gram, both, squares
        for rows, given in zip(*(part.split(AT_ONCE) for part in pairs)):
            part = batch.select(rows)
            features = self.features(part, given)
            mean = model.encode(part, given[None]).mean[0]
            for name in names:
                place = batch.names.index(name)
                chosen = (part.present[:, place] & ~given[:, place]).nonzero()[:, 0]
                if not len(chosen):
                    continue
                expected = model.likelihoods[name].mean(model.decoders[name](mean[chosen]))
                residual = (part[name][chosen] - expected).flatten(1).float()
                own = features[chosen]
                gram, both, squares = sums[name]
                gram += own.T @ own
                both += own.T @ residual
                squares += residual.square().sum()
        return sums

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return tensors and JSON for `from_state`."""
        tensors = {"centre": self.centre, "frequencies": self.frequencies, "phases": self.phases}
        tensors |= {f"weights.{self.names.index(name)}": weight for name, weight in self.weights.items()}
        return {key: value.cpu().contiguous() for key, value in tensors.items()}, {"names": list(self.names)}

    @classmethod
    def from_state(cls, tensors: Mapping[str, Tensor], described: Mapping[str, Any]) -> ResidualRegression:
        """Rebuild from what `state` returned."""
        names = [str(name) for name in described["names"]]
        weights = {name: tensors[f"weights.{n}"] for n, name in enumerate(names) if f"weights.{n}" in tensors}
        centre, frequencies, phases = (tensors[key] for key in ("centre", "frequencies", "phases"))
        fits = frequencies.shape == (len(centre) + len(names), len(phases))
        if not fits or any(weight.ndim != 2 or len(weight) != len(phases) for weight in weights.values()):
            raise ValueError("the tensors of its residual regression do not fit together")
        return cls(names, centre, frequencies, phases, weights)


def _is_read(modality: Modality) -> bool:
    return modality.kind in _KINDS and math.prod(modality.shape) <= MOST_NUMBERS


def _pairs(batch: Batch, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return rows `[pair]` with a set of what they have each, neither nothing nor all of it, `[pair, modality]`."""
    n, modalities = batch.present.shape
    most = 2**modalities - 2 if modalities <= MOST_ENUMERATED else MOST_PAIRS
    each = min(most, max(1, MOST_PAIRS // max(n, 1)))
    if modalities <= MOST_ENUMERATED and most:
        order = torch.rand(n, most, generator=generator).argsort(1)[:, :each]
        sets = all_subsets(modalities)[order]
    else:
        sets = torch.rand(n, each, modalities, generator=generator) < 0.5
    rows = torch.arange(n).repeat_interleave(sets.shape[1]).to(batch.device)
    drawn, there = sets.flatten(0, 1).to(batch.device), batch.present[rows]
    given = drawn & there
    use = given.any(1) & (given != there).any(1)
    if each == most:  # every set occurs, those of a sample among them
        use &= (drawn == given).all(1)
    chosen = use.nonzero()[:, 0]
    chosen = chosen[torch.randperm(len(chosen), generator=generator)[:MOST_PAIRS].to(chosen.device)]
    return rows[chosen], given[chosen]


def _best_penalty(learned: Sums, held_out: Sums) -> float | None:
    """Return the penalty with the least squared error on held-out samples; None if all are worse than no correction."""
    gram, both, squares = held_out
    best, least = None, squares.item()
    for penalty in PENALTIES:
        weights = _solved(learned[0], learned[1], penalty)
        error = (squares - 2 * (weights * both).sum() + (weights * (gram @ weights)).sum()).item()
        if error < least:
            best, least = penalty, error
    return best


def _solved(gram: Tensor, both: Tensor, penalty: float) -> Tensor:
    """(Σ φφᵀ + penalty)⁻¹ Σ φ rᵀ, `[feature, number]`."""
    ridge = gram + penalty * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    return torch.cholesky_solve(both, torch.linalg.cholesky(ridge))
