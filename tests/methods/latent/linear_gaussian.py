"""A latent model whose likelihoods are known: z ~ N(0, I), x_m = W_m z + b_m + σ_m ε."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.methods.latent.diagonal_gaussian import Gaussian


class LinearGaussian:
    """Speaks as a `LatentModel` does; its posteriors are exact, but for the widening and the shift they are given."""

    def __init__(self, latent: int = 2, sizes: tuple[int, ...] = (3, 2, 1), widen: float = 1.0, shift: float = 0.0):
        torch.manual_seed(0)
        self.latent, self.widen, self.shift = latent, widen, shift
        self.names = tuple("abc"[: len(sizes)])
        self.decoders = torch.nn.Module()  # without parameters
        self.weights = {name: torch.randn(size, latent).double() for name, size in zip(self.names, sizes)}
        self.bias = {name: torch.randn(size).double() for name, size in zip(self.names, sizes)}
        self.noise = {name: 0.4 + 0.3 * place for place, name in enumerate(self.names)}

    def samples(self, n: int, missing: float = 0.0) -> Batch:
        """Data that the model itself draws, some of it missing, though never all of a sample."""
        z = torch.randn(n, self.latent).double()
        values = {
            name: z @ weight.T + self.bias[name] + self.noise[name] * torch.randn(n, len(weight)).double()
            for name, weight in self.weights.items()
        }
        draw = torch.rand(n, len(self.names))
        present = (draw >= missing) | (draw == draw.amax(1, keepdim=True))
        return Batch(values, present, index=torch.arange(n), weight=torch.ones(n))

    def posterior(self, batch: Batch, given: list[str] | None = None) -> Gaussian:
        """The exact posterior's mean and marginal variances, widened and shifted."""
        mean, variance = torch.zeros(2, len(batch), self.latent).double()
        for rows, weight, x, precision in self._alike(batch, self.names if given is None else given):
            covariance = torch.linalg.inv(torch.eye(self.latent).double() + weight.T * precision @ weight)
            mean[rows] = (x * precision) @ weight @ covariance
            variance[rows] = covariance.diagonal()
        return Gaussian(mean + self.shift, (self.widen * variance).log())

    def decode(self, z: Tensor, names: list[str] | None = None) -> dict[str, Tensor]:
        """The means of the modalities."""
        return {name: z @ self.weights[name].T + self.bias[name] for name in self.names if not names or name in names}

    def log_densities(self, decoded: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """log N(x_m; W_m z + b_m, σ_m² I), 0 for a sample that does not have the modality."""
        return {
            name: torch.distributions.Normal(mean, self.noise[name]).log_prob(batch[name]).sum(-1)
            * batch.present_in(name)
            for name, mean in decoded.items()
        }

    def exact(self, batch: Batch, names: list[str]) -> np.ndarray:
        """log p(x_S) of each sample in closed form, S being what it has of the names."""
        values = torch.zeros(len(batch)).double()
        for rows, weight, x, precision in self._alike(batch, names):
            if len(weight):
                covariance = weight @ weight.T + torch.diag(1 / precision)
                normal = torch.distributions.MultivariateNormal(torch.zeros(len(weight)).double(), covariance)
                values[rows] = normal.log_prob(x)
        return values.numpy()

    def _alike(self, batch: Batch, names: list[str]) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Samples that have the same of the names: rows, weights, values less bias `[row, feature]`, precisions."""
        wanted = batch.present & torch.tensor([name in names for name in self.names])
        empty = torch.zeros(0).double()
        for pattern in wanted.unique(dim=0):
            rows = (wanted == pattern).all(1).nonzero()[:, 0]
            there = [name for name, has in zip(self.names, pattern.tolist()) if has]
            weight = torch.cat([empty.reshape(0, self.latent), *(self.weights[name] for name in there)])
            x = torch.cat([empty.expand(len(rows), 0), *(batch[name][rows] - self.bias[name] for name in there)], dim=1)
            precision = [torch.full_like(self.bias[name], self.noise[name] ** -2) for name in there]
            yield rows, weight, x, torch.cat([empty, *precision])
