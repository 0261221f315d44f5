"""Kernel regression of what is missing on what is given, as a part of what a latent model imputes.

    x̂_m = α_m d_m + β_m K_m(x) + γ_m K_m(d),        d_m = E[x_m | x_S],        K_m(·) = W_m(·) φ(x_S, S)

A latent of few dimensions leaves out details, some of which can be predicted from the given modalities. W_m is a ridge
regression of training samples, for random sets S of what each of them has: of their values x and of the model's
expectations d. φ are the given numbers and random Fourier features of them (Rahimi and Recht 2007, Random Features for
Large-Scale Kernel Machines): the regression does not grow with the number of samples, and it keeps none of them. With
α = β = 1 and γ = −1 the residuals of the model are regressed, with α + β = 1 and γ = 0 two predictions are averaged.
The penalty and α, β, γ of each modality have the least error on held-out samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.modalities import Modality
from consilience.methods.latent.subsets import MOST_ENUMERATED, all_subsets

if TYPE_CHECKING:
    from consilience.methods.latent.latent_model import LatentModel

# Pairs of a sample and a set that are learned from at most, and are computed at once.
MOST_PAIRS, AT_ONCE = 20_000, 512
# Modalities are learned together while the sums of features over their pairs take at most so many bytes.
SUMS_BYTES = 2**30
# The widths of the kernels, in median distances of two pairs: as many features have one as another.
WIDTHS = (0.3, 0.5, 0.8)
PENALTIES = (0.1, 0.5, 2.0, 8.0, 32.0)
# What a flag of a given modality counts, where the numbers of a modality have a mean square norm of 1.
FLAG = 0.7
# Modalities that are read and predicted: numbers of a fixed shape, at most so many.
_KINDS, MOST_NUMBERS = ("vector", "image"), 4096


_TENSORS = ("centre", "scale", "frequencies", "phases")


class Sums(NamedTuple):
    """Sums over pairs, in 64 bits, of all that is read φ, the centred values x of a modality, and the model's d of x.

    Attributes:
        gram: Σ φφᵀ.
        values: Σ φ xᵀ.
        expected: Σ φ dᵀ.
        products: Σ x², Σ d² and Σ x d.
    """

    gram: Tensor
    values: Tensor
    expected: Tensor
    products: Tensor


class ImputationRegression:
    """Ridge regression of each modality on others that are given, and on random features of them.

    Args:
        names: The modalities that are read, in order.
        widths: The number of numbers of each.
        centre: Of all their prepared numbers side by side, `[number]`.
        scale: Of these numbers and of a flag for each modality, `[number + modality]`.
        frequencies: ω `[number + modality, feature]`, for scaled numbers.
        phases: b `[feature]`.
        weights: Modality → β W(x) + γ W(d), `[feature + number + modality, number of the modality]`; of the others the
            model's expectation is imputed alone.
        shares: Modality → α.
    """

    def __init__(
        self,
        names: Sequence[str],
        widths: Sequence[int],
        centre: Tensor,
        scale: Tensor,
        frequencies: Tensor,
        phases: Tensor,
        weights: Mapping[str, Tensor],
        shares: Mapping[str, float],
    ):
        self.names, self.widths, self.centre, self.scale = tuple(names), list(widths), centre, scale
        self.frequencies, self.phases, self.weights, self.shares = frequencies, phases, dict(weights), dict(shares)

    @classmethod
    @torch.no_grad()
    def fit(cls, model: LatentModel, train: Batch, held_out: Batch, features: int, seed: int) -> ImputationRegression:
        """Learn from the training samples, choose penalties and shares on the held-out ones, then learn from both.

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
        size = 8 * (len(made.phases) + len(made.scale)) ** 2
        at_once = max(1, SUMS_BYTES // (2 * size))
        for start in range(0, len(targets), at_once):
            some = targets[start : start + at_once]
            learned = made._sums(model, train, pairs, some)
            checked = made._sums(model, held_out, checks, some)
            for name in some:
                found = _best(learned[name], checked[name], len(held_out))
                if found is not None:
                    penalty, (share, of_values, of_expected) = found
                    both = Sums(*(first.add_(second) for first, second in zip(learned[name], checked[name])))
                    target = of_values * both.values + of_expected * both.expected
                    made.weights[name], made.shares[name] = _solved(both.gram, target, penalty).float(), share
        return made

    @classmethod
    def _draw(
        cls, names: Sequence[str], train: Batch, pairs: tuple[Tensor, Tensor], features: int, generator: torch.Generator
    ) -> ImputationRegression:
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
        flags = torch.full((len(names),), FLAG, device=device)
        numbers = torch.cat(centre) if centre else flags[:0]
        frequencies = torch.randn(len(numbers) + len(names), count, generator=generator).to(device)
        phases = (2 * math.pi * torch.rand(count, generator=generator)).to(device)
        made = cls(names, list(map(len, centre)), numbers, torch.cat([*scales, flags]), frequencies, phases, {}, {})
        if not len(pairs[0]) or not names:
            return made
        some = torch.randperm(len(pairs[0]), generator=generator)[:500].to(device)
        apart = torch.pdist(made._read(train.select(pairs[0][some]), pairs[1][some]))
        width = apart[apart > 0].median() if (apart > 0).any() else apart.new_ones(())
        widths = torch.tensor(WIDTHS, device=device)[torch.arange(count, device=device) % len(WIDTHS)]
        made.frequencies = frequencies / (widths * width)
        return made

    def features(self, batch: Batch, given: Tensor) -> Tensor:
        """Return what values are predicted from: given `[batch, modality]` → `[batch, feature + number + modality]`.

        It depends on what each sample has of the given modalities.
        """
        read = self._read(batch, batch.present & given)
        angles = torch.addmm(self.phases, read, self.frequencies)
        return torch.cat([angles.cos_().mul_(math.sqrt(2 / len(self.phases))), read], dim=1)

    def combined(self, batch: Batch, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the model's expectations combined with the regression, where a sample lacks the modality.

        Args:
            batch: Prepared samples. One without any modality keeps the model's expectation.
            expected: Name → `[batch, *shape]`, prepared.
        """
        wanted = [name for name in expected if name in self.weights]
        if not wanted:
            return dict(expected)
        features, found = self.features(batch, batch.present), dict(expected)
        anything = batch.present.any(1)
        centres = dict(zip(self.names, self._parts(self.centre)))
        for name in wanted:
            own = features @ self.weights[name] + (1 - self.shares[name]) * centres[name]
            mixed = self.shares[name] * expected[name] + own.view(expected[name].shape)
            lacks = anything & ~batch.present_in(name)
            found[name] = torch.where(lacks.view(-1, *[1] * (mixed.ndim - 1)), mixed, expected[name])
        return found

    def _parts(self, numbers: Tensor) -> Sequence[Tensor]:
        """The numbers of each modality, of all side by side."""
        return numbers.split(self.widths)

    def to(self, device: torch.device) -> ImputationRegression:
        """Return it on a device, itself if it is there."""
        if self.phases.device == device:
            return self
        weights = {name: weight.to(device) for name, weight in self.weights.items()}
        centre, scale, frequencies, phases = (getattr(self, name).to(device) for name in _TENSORS)
        return ImputationRegression(self.names, self.widths, centre, scale, frequencies, phases, weights, self.shares)

    def _read(self, batch: Batch, given: Tensor) -> Tensor:
        """Return centred and scaled numbers, 0 where not given, and flags: `[batch, number + modality]`."""
        columns = [given[:, batch.names.index(name)] for name in self.names]
        values = [
            (batch[name].flatten(1).float() - centre).masked_fill(~there[:, None], 0)
            for name, centre, there in zip(self.names, self._parts(self.centre), columns)
        ]
        return torch.cat([*values, torch.stack(columns, dim=1).float()], dim=1) * self.scale

    @torch.no_grad()
    def _sums(
        self, model: LatentModel, batch: Batch, pairs: tuple[Tensor, Tensor], names: Sequence[str]
    ) -> dict[str, Sums]:
        """Return the sums for each modality, over the pairs that do not give it."""
        count, device = len(self.phases) + len(self.scale), batch.device
        centres = dict(zip(self.names, self._parts(self.centre)))
        sums: dict[str, Sums] = {}
        for name in names:
            sizes = ((count, count), (count, len(centres[name])), (count, len(centres[name])), (3,))
            sums[name] = Sums(*(torch.zeros(size, dtype=torch.float64, device=device) for size in sizes))
        for rows, given in zip(*(part.split(AT_ONCE) for part in pairs)):
            part = batch.select(rows)
            features = self.features(part, given)
            mean = model.encode(part, given[None]).mean[0]
            for name in names:
                place = batch.names.index(name)
                chosen = (part.present[:, place] & ~given[:, place]).nonzero()[:, 0]
                if not len(chosen):
                    continue
                decoded = model.likelihoods[name].mean(model.decoders[name](mean[chosen]))
                values, expected = (each.flatten(1).float() - centres[name] for each in (part[name][chosen], decoded))
                own, total = features[chosen], sums[name]
                total.gram.add_(own.T @ own)
                total.values.add_(own.T @ values)
                total.expected.add_(own.T @ expected)
                pairs_of = ((values, values), (expected, expected), (values, expected))
                total.products.add_(torch.stack([(a * b).sum() for a, b in pairs_of]))
        return sums

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return tensors and JSON for `from_state`."""
        tensors = {name: getattr(self, name) for name in _TENSORS}
        tensors |= {f"weights.{self.names.index(name)}": weight for name, weight in self.weights.items()}
        described = {"names": list(self.names), "widths": self.widths, "shares": self.shares}
        return {key: value.cpu().contiguous() for key, value in tensors.items()}, described

    @classmethod
    def from_state(cls, tensors: Mapping[str, Tensor], described: Mapping[str, Any]) -> ImputationRegression:
        """Rebuild from what `state` returned."""
        names, shares = [str(name) for name in described["names"]], dict(described["shares"])
        widths = [int(width) for width in described["widths"]]
        weights = {name: tensors[f"weights.{names.index(name)}"] for name in shares}
        centre, scale, frequencies, phases = (tensors[name] for name in _TENSORS)
        shapes = {name: (len(phases) + len(scale), width) for name, width in zip(names, widths)}
        if (
            len(centre) != sum(widths)
            or len(scale) != len(centre) + len(names)
            or frequencies.shape != (len(scale), len(phases))
            or any(weights[name].shape != shapes[name] for name in shares)
        ):
            raise ValueError("the tensors of its regression for imputation do not fit together")
        return cls(names, widths, centre, scale, frequencies, phases, weights, shares)


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


def _best(learned: Sums, held_out: Sums, samples: int) -> tuple[float, tuple[float, float, float]] | None:
    """Return the penalty and α, β, γ with the least squared error on held-out samples; None: the model alone has it.

    α, β, γ are held to 1, 0, 0 as if by one sample more, of so many.
    """
    squares, of_expected, both = held_out.products.tolist()
    alone = torch.tensor([1.0, 0, 0], dtype=torch.float64)
    best, least = None, squares - 2 * both + of_expected
    for penalty in PENALTIES:
        on_values, on_expected = (_solved(learned.gram, each, penalty) for each in learned[1:3])
        # Products of d, K(x) and K(d) with each other, and with x.
        cross = [(first * held_out.expected).sum().item() for first in (on_values, on_expected)]
        seen = [held_out.gram @ on_values, held_out.gram @ on_expected]
        own = [(a * b).sum().item() for a, b in ((on_values, seen[0]), (on_values, seen[1]), (on_expected, seen[1]))]
        gram = alone.new_tensor([[of_expected, *cross], [cross[0], own[0], own[1]], [cross[1], own[1], own[2]]])
        products = alone.new_tensor(
            [both, *((each * held_out.values).sum().item() for each in (on_values, on_expected))]
        )
        held = gram + gram.diagonal().mean().clamp(min=1e-12) / samples * torch.eye(3, dtype=gram.dtype)
        factors = alone + torch.linalg.solve(held, products - gram @ alone)
        error = (squares - 2 * products @ factors + factors @ gram @ factors).item()
        if error < least:
            share, values, expected = factors.tolist()
            best, least = (penalty, (share, values, expected)), error
    return best


def _solved(gram: Tensor, both: Tensor, penalty: float) -> Tensor:
    """(Σ φφᵀ + penalty)⁻¹ Σ φ xᵀ, `[feature, number]`."""
    ridge = gram + penalty * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    return torch.cholesky_solve(both, torch.linalg.cholesky(ridge))
