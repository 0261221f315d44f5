"""What a latent model says about how probable and how informative modalities are: methods of `MultimodalVAE`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from consilience.core.samples import Samples
from consilience.core.settings import Names, PositiveInt, check_value, checked
from consilience.estimators.answer_types import like_input
from consilience.estimators.estimator_inputs import ReadsSamples
from consilience.methods.latent.importance_sampling import LogLikelihood
from consilience.methods.latent.information import (
    Information,
    LogLikelihoods,
    complete_samples,
    entropy,
    mutual_information,
    split_parts,
    variation_of_parts,
)
from consilience.methods.latent.trained_latent_model import TrainedLatent


class LatentLikelihoods(ReadsSamples):
    """Likelihoods of any modalities given any others, entropies and information, in nats."""

    @abstractmethod
    def _fitted(self) -> TrainedLatent: ...

    @abstractmethod
    def _known(self, X: Any, present: Any, targets: bool = False) -> Samples: ...

    @abstractmethod
    def _seed(self) -> int: ...

    @checked
    def log_likelihood(
        self,
        X: Any,
        of: Names | None = None,
        given: Names | None = (),
        *,
        importance_samples: PositiveInt = 1000,
        learned_posterior: bool = False,
        present: Any = None,
    ) -> Any:
        """Estimate log p(x_of | x_given) of each sample by importance sampling.

        Args:
            X: Samples.
            of: Modalities whose likelihood is estimated; None: all.
            given: Modalities to condition on.
            importance_samples: Draws per sample.
            learned_posterior: False: of the model, ∫ p(x_of | z) p(z | x_given) dz with the exact posterior. True: of
                what `generate` draws, ∫ p(x_of | z) q(z | x_given) dz with the learned one.
            present: `[n, modality]`.

        Returns:
            Log-likelihoods `[n]` in nats.
        """
        estimate = self.estimate_log_likelihood(
            X, of, given, importance_samples=importance_samples, learned_posterior=learned_posterior, present=present
        )
        return like_input(X, estimate.value.numpy())

    @checked
    def estimate_log_likelihood(
        self,
        X: Any,
        of: Names | None = None,
        given: Names | None = (),
        *,
        importance_samples: PositiveInt = 1000,
        learned_posterior: bool = False,
        present: Any = None,
    ) -> LogLikelihood:
        """Return the same as `log_likelihood` with standard errors and effective sample sizes, tensors `[n]`."""
        return self._fitted().log_likelihood(
            self._known(X, present),
            of,
            given or (),
            draws=importance_samples,
            learned_posterior=learned_posterior,
            seed=self._seed(),
            device=self.device,
        )

    @checked
    def entropy(
        self,
        X: Any,
        of: Names | None = None,
        given: Names | None = (),
        *,
        importance_samples: PositiveInt = 1000,
        present: Any = None,
    ) -> Information:
        """Estimate H(of | given) with its standard error, on the samples that have all of these modalities.

        Entropies of continuous modalities are differential: they depend on the units and may be negative.

        Args:
            X: Samples.
            of: Modalities whose entropy is estimated; None: all but the given ones.
            given: Modalities to condition on.
            importance_samples: Draws per sample.
            present: `[n, modality]`.
        """
        given = list(given or ())
        of = [name for name in self._fitted().names if name not in given] if of is None else list(of)
        parts = split_parts([of, given] if given else [of], self._fitted().names, "entropy")
        return entropy(self._log_likelihoods(X, parts, "entropy", importance_samples, present), *parts)

    @checked
    def mutual_information(
        self,
        X: Any,
        a: str | Names,
        b: str | Names,
        given: Names | None = (),
        *,
        importance_samples: PositiveInt = 1000,
        present: Any = None,
    ) -> Information:
        """Estimate I(A; B | given) with its standard error, on the samples that have all of these modalities.

        Args:
            X: Samples.
            a: A modality or several.
            b: Others.
            given: Modalities to condition on.
            importance_samples: Draws per sample.
            present: `[n, modality]`.
        """
        given = list(given or ())
        parts = split_parts([a, b, given] if given else [a, b], self._fitted().names, "mutual_information")
        return mutual_information(
            self._log_likelihoods(X, parts, "mutual_information", importance_samples, present), *parts
        )

    @checked
    def variation_of_information(
        self,
        X: Any,
        *parts: str | Sequence[str],
        importance_samples: PositiveInt = 1000,
        present: Any = None,
    ) -> Information:
        """Estimate H(A|B) + H(B|A) of two parts with its standard error; of more parts, Σ H(A|others).

        It is estimated on the samples that have all of the modalities (eq. 93 of Korthals 2019, and eq. 94
        corrected). Differential entropies of numbers may be negative.

        Args:
            X: Samples.
            *parts: At least two, each a modality or several.
            importance_samples: Draws per sample.
            present: `[n, modality]`.
        """
        operation = "variation_of_information"
        parts = check_value("parts", parts, Sequence[str | Iterable[str]], operation)
        groups = split_parts(parts, self._fitted().names, operation, least=2)
        return variation_of_parts(groups, self._log_likelihoods(X, groups, operation, importance_samples, present))

    def _log_likelihoods(
        self, X: Any, parts: Sequence[Sequence[str]], operation: str, draws: int, present: Any
    ) -> LogLikelihoods:
        """Return modalities → log p `[n]` of the samples that have all modalities of the parts."""
        samples = complete_samples(self._known(X, present), [name for part in parts for name in part], operation)

        def log_likelihood(names: list[str]) -> Tensor:
            return self.estimate_log_likelihood(samples, names, importance_samples=draws).value

        return log_likelihood
