"""A trained latent model, and what is needed to use it on samples in the user's units."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.errors import CollapseWarning, InputError, SavedModelError, name_rows, unknown_name
from consilience.core.samples import Samples
from consilience.core.seeding import seeded
from consilience.core.targets import Task
from consilience.encoders import EncoderChoice, as_chosen, describe_choice, describe_encoders
from consilience.encoders import own_transforms as encoders_transforms
from consilience.methods import Spec
from consilience.methods.latent.diagonal_gaussian import Gaussian, kl
from consilience.methods.latent.importance_sampling import LogLikelihood, log_likelihood, log_predictive
from consilience.methods.latent.imputation_regression import MOST_PAIRS, ImputationRegression
from consilience.methods.latent.latent_model import LatentModel
from consilience.methods.latent.likelihoods.likelihood import default_likelihood
from consilience.methods.latent.unit_conversion import in_users_units, log_volume, own_transforms, within_range
from consilience.preparation import Preparation
from consilience.training import Log, Trainer
from consilience.training.batch_loader import BatchLoader
from consilience.training.building_limits import BuildingLimits
from consilience.training.devices import kept_memory, resolve_device
from consilience.training.module_inventory import ModuleInventory, ready_to_predict

# Samples that are encoded at once, and numbers that are generated at once.
BATCH, GENERATED = 256, 2**24
# Numbers of the samples, at most, that the regression for imputation learns from.
LEARNED_NUMBERS = 2**27
# After so many epochs a mean KL(q ‖ p) below so many nats, over at most so many samples, is reported as a collapse.
LEAST_NATS, MOST_JUDGED, ENOUGH_EPOCHS = 0.1, 1000, 20
_MODEL, _PREPARATION, _REGRESSION = "model.", "preparation.", "regression."


@dataclass
class TrainedLatent:
    """A trained latent model, what it was built from, and the fitted preparation.

    Attributes:
        settings: The keyword-only arguments of `LatentModel`.
        regression: What imputed values are a mean of, beside the model's expectation; None: nothing.
    """

    model: LatentModel
    preparation: Preparation
    settings: dict[str, Any] = field(default_factory=dict)
    encoders: dict[str, EncoderChoice] = field(default_factory=dict)
    logs: list[Log] = field(default_factory=list)
    regression: ImputationRegression | None = None
    _inventory: ModuleInventory | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def fit(
        cls,
        train: Samples,
        validation: Samples | None = None,
        *,
        encoders: Mapping[str, EncoderChoice] | None = None,
        trainer: Trainer | None = None,
        regression_features: int = 0,
        **settings: Any,
    ) -> TrainedLatent:
        """Choose likelihoods where none are given, prepare, build and train. Targets are ignored.

        regression_features: Random features of a regression that shares in what is imputed, as far as that lowers the
            error on the validation samples; 0, or without such samples: none.
        """
        given = dict(settings.pop("likelihoods", None) or {})
        for name in given:
            if name not in train.modalities:
                raise unknown_name("modality", name, train.modalities, "It was given in likelihoods")
        likelihoods = {
            name: given.get(name) or default_likelihood(modality, train) for name, modality in train.modalities.items()
        }
        own = encoders_transforms(train.modalities, encoders or {}) | own_transforms(train.modalities, likelihoods)
        preparation = Preparation.fit(train, Task.none(), own)
        trainer = replace(trainer or Trainer(), preparation=preparation, logs=[])
        spec = Spec(preparation.modalities, preparation.task, dict(encoders or {}))
        chosen = {**settings, "likelihoods": likelihoods}
        with seeded(trainer.seed):
            model = LatentModel(spec, **chosen)
        model.fit(train, validation, trainer)
        trainer.forget()
        trained = cls(model, preparation, chosen, dict(encoders or {}), trainer.logs)
        if sum(len(log.rows) for log in trainer.logs) >= ENOUGH_EPOCHS:
            trained._warn_of_collapse(train if validation is None else validation, trainer.device)
        if regression_features and validation is not None and len(model.names) > 1:
            trained._learn_regression(train, validation, regression_features, trainer)
        return trained

    def _learn_regression(self, train: Samples, validation: Samples, features: int, trainer: Trainer) -> None:
        """Learn the regression that shares in what is imputed."""
        most = max(1, min(MOST_PAIRS, LEARNED_NUMBERS // self._numbers(None)))
        rng = np.random.default_rng(trainer.seed)
        parts: list[Batch] = []
        for samples in (train, validation):
            if len(samples) > most:
                samples = samples[np.sort(rng.permutation(len(samples))[:most])]
            parts.extend(self._batches(samples, trainer.device, most))
        self.regression = ImputationRegression.fit(self.model, parts[0], parts[1], features, trainer.seed)

    def _regression_on(self, device: torch.device) -> ImputationRegression | None:
        if self.regression is not None:
            self.regression = self.regression.to(device)
        return self.regression

    @torch.no_grad()
    def _warn_of_collapse(self, samples: Samples, device: str) -> None:
        """Warn if the posterior of all that a sample has hardly differs from the prior."""
        batches = self._batches(samples[:MOST_JUDGED], device)
        nats = torch.cat([kl(self.model.posterior(batch)) for batch in batches]).mean()
        if nats < LEAST_NATS:
            epochs = sum(len(log.rows) for log in self.logs)
            warnings.warn(
                f"the latent model has collapsed: after {epochs} epochs z holds {nats:.3f} nats of a sample, and what "
                "is generated does not depend on what is given. Training may have stopped on a plateau before learning "
                "began: raise patience and epochs, let the divergences grow slowly (beta_warmup=30 of a MultimodalVAE, "
                "warmup elsewhere), use fewer latent dimensions, or bound='tight' of m2vae",
                CollapseWarning,
                stacklevel=3,
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The modalities' names."""
        return self.model.names

    @torch.no_grad()
    def encode(
        self, samples: Samples, given: Sequence[str] | None = None, device: str = "auto"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance `[n, latent]` of q(z | what each sample has of the given modalities)."""
        return mean_and_variance(self.model.posterior(batch, given) for batch in self._batches(samples, device))

    @torch.no_grad()
    def generate(
        self,
        samples: Samples,
        names: Sequence[str] | None = None,
        given: Sequence[str] | None = None,
        *,
        draws: int | None = None,
        noise: bool = True,
        average: int = 0,
        combined: bool = False,
        seed: int = 0,
        device: str = "auto",
    ) -> dict[str, np.ndarray]:
        """Generate modalities of each sample from what it has of the given ones, in the user's units.

        Args:
            samples: The samples.
            names: The modalities to generate; None: all.
            given: The modalities to generate from; None: all.
            draws: How many to draw from ∫ p(x | z) q(z | x_given) dz; None: the decoder's mean at the posterior's mean.
            noise: Whether a draw of x comes from its likelihood, or is the decoder's mean at a draw of z.
            average: Without draws, the mean of the decoder's means at so many draws of z, instead of its mean at the
                posterior's mean. The draws have the same noise for all samples, so that none depends on the others.
            combined: Whether `regression` shares in expected values of what a sample does not have.
            seed: Of the draws.
            device: Where to compute.

        Returns:
            Name → `[n, *shape]`, or `[draws, n, *shape]`.
        """
        names = self._known(names)
        generator = self._generator(seed, device) if draws is not None or average else None
        size = max(1, min(BATCH, GENERATED // ((draws or average or 1) * self._numbers(names))))
        shared: Tensor | None = None
        parts = []
        for batch in self._batches(samples, device, size):
            posterior = self.model.posterior(batch, given)
            if draws is not None:
                z = posterior.draw(generator, draws)
                parts.append(self.decode(z, names, generator if noise else None))
                continue
            if average and shared is None:
                mean = posterior.mean
                shape = (average, 1, self.model.latent)
                shared = torch.randn(shape, generator=generator, dtype=mean.dtype, device=mean.device)
            z = posterior.mean if shared is None else posterior.draw(shared)
            regression = self._regression_on(batch.device) if combined else None
            parts.append(self.decode(z, names, average=shared is not None, regression=regression, batch=batch))
        if len(parts) == 1:
            return parts[0]
        return {
            name: np.concatenate([part[name] for part in parts], axis=0 if draws is None else 1) for name in parts[0]
        }

    @torch.no_grad()
    def decode(
        self,
        z: Tensor,
        names: Sequence[str] | None = None,
        generator: torch.Generator | None = None,
        average: bool = False,
        regression: ImputationRegression | None = None,
        batch: Batch | None = None,
    ) -> dict[str, np.ndarray]:
        """Decode z `[..., latent]` in the user's units: to means, or with a generator to draws from the likelihoods.

        average: return the mean over the first dimension of z. regression: what shares in the means of what samples of
        the batch lack; they are kept within the range of the training values.
        """
        made: dict[str, Tensor] = {}
        for name, decoded in self.model.decode(z, self._known(names)).items():
            likelihood = self.model.likelihoods[name]
            if generator is not None:
                made[name] = likelihood.draw(decoded, generator)
            else:
                made[name] = likelihood.mean_over_draws(decoded) if average else likelihood.mean(decoded)
        if regression is not None and batch is not None:
            made = regression.combined(batch, made)
        values = {}
        for name, x in made.items():
            transform = self.preparation.transforms[name]
            values[name] = in_users_units(transform, x)
            if regression is not None and name in regression.weights:
                values[name] = within_range(transform, values[name])
            _check_finite(f"what is generated of {name!r}", values[name])
        return values

    @torch.no_grad()
    def sample(
        self, n: int, names: Sequence[str] | None = None, *, noise: bool = True, seed: int = 0, device: str = "auto"
    ) -> dict[str, np.ndarray]:
        """Generate samples with z from the prior: name → `[n, *shape]`."""
        generator = self._generator(seed, device)
        self._inventory = ready_to_predict(self.model, self._inventory, resolve_device(device))
        like = next(self.model.parameters())
        z = torch.randn(n, self.model.latent, generator=generator, dtype=like.dtype, device=like.device)
        parts = [self.decode(part, names, generator if noise else None) for part in z.split(4 * BATCH)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def log_likelihood(
        self,
        samples: Samples,
        of: Sequence[str] | None = None,
        given: Sequence[str] = (),
        *,
        draws: int = 1000,
        learned_posterior: bool = False,
        seed: int = 0,
        device: str = "auto",
    ) -> LogLikelihood:
        """Estimate log p(x_of | x_given) of each sample `[n]` in the user's units, by importance sampling.

        Missing modalities are left out of both. The result is on the CPU.

        Args:
            samples: The samples.
            of: Modalities whose likelihood is estimated; None: all.
            given: Modalities to condition on.
            draws: Per sample.
            learned_posterior: Whether z given x_given comes from q(z | x_given), as in `generate`, or from the exact
                posterior p(z | x_given).
            seed: Of the draws.
            device: Where to compute.

        Raises:
            InputError: If a sample has nothing of `of`.
        """
        given = self._known(given)
        of = [name for name in self._known(of) if name not in given]
        if not of:
            raise InputError("log_likelihood needs modalities in `of` beside those given")
        nothing = np.flatnonzero(~samples.present_among(of).any(axis=1))
        if len(nothing):
            raise InputError(f"log_likelihood: there is nothing of {', '.join(of)} in {name_rows(nothing)}")
        self.model.check(samples.only([name for name in samples.names if name in (*of, *given)]), "given")
        likelihood = log_predictive if learned_posterior else log_likelihood
        generator = self._generator(seed, device)
        parts = []
        with kept_memory(generator.device.type == "cpu"):
            for batch in self._batches(samples, device):
                estimate = likelihood(self.model, batch, of, given, draws, generator)
                hidden = {name: self.model.likelihoods[name].hidden(batch[name]) for name in of}
                volume = sum(
                    log_volume(self.preparation.transforms[name], len(batch), batch.lengths.get(name), hidden[name])
                    * batch.present_in(name).cpu()
                    for name in of
                )
                errors, effective = estimate.standard_error.cpu(), estimate.effective_samples.cpu()
                parts.append((estimate.value.cpu() - volume, errors, effective))
        return LogLikelihood(*(torch.cat(each) for each in zip(*parts)))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return tensors and JSON for `TrainedLatent.from_state`."""
        tensors, prepared = join_states(_MODEL, self.model, self.preparation)
        decoders = {name: describe_choice(choice) for name, choice in (self.settings.get("decoders") or {}).items()}
        described = {
            "settings": {**self.settings, "decoders": decoders or None},
            "encoders": describe_encoders(self.encoders, self.model),
            "preparation": prepared,
        }
        if self.regression is not None and self.regression.weights:
            learned, described["regression"] = self.regression.state()
            tensors |= {_REGRESSION + key: value for key, value in learned.items()}
        return tensors, described

    @classmethod
    def from_state(cls, tensors: Mapping[str, Tensor], described: Mapping[str, Any]) -> TrainedLatent:
        """Rebuild from what `state` returned, with the user's own modules put back into it."""
        try:
            state, preparation = split_states(_MODEL, tensors, described)
            settings, encoders = dict(described["settings"]), dict(described["encoders"])
            with seeded(0), BuildingLimits(state.values()):  # the weights are overwritten below
                model = LatentModel(Spec(preparation.modalities, preparation.task, encoders), **settings)
            if any(value.dtype == torch.float64 for value in state.values()):
                model.double()
            model.load_state_dict(state)
            regression = None
            if "regression" in described:
                learned = {
                    key.removeprefix(_REGRESSION): tensors[key] for key in tensors if key.startswith(_REGRESSION)
                }
                regression = ImputationRegression.from_state(learned, described["regression"])
        except (InputError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise SavedModelError(f"the latent model cannot be rebuilt as it was saved: {error}") from error
        return cls(model, preparation, settings, as_chosen(encoders), regression=regression)

    def _batches(self, samples: Samples, device: str, size: int = BATCH) -> Iterator[Batch]:
        target = resolve_device(device)
        self._inventory = ready_to_predict(self.model, self._inventory, target)
        dtype = self._inventory.input_type
        if len(samples) > size or samples.on_disk:
            return BatchLoader(samples, self.preparation, target, dtype=dtype).in_order(size)
        batch = self.preparation.batch(samples, dtype=dtype)
        batch.index = torch.arange(len(samples))
        return iter([batch if target.type == "cpu" else batch.to(target)])

    def _known(self, names: Sequence[str] | None) -> list[str]:
        if names is None:
            return list(self.names)
        if isinstance(names, str):
            raise InputError(f"modalities are given as a list, got the string {names!r}: write [{names!r}]")
        for name in names:
            if name not in self.names:
                raise unknown_name("modality", name, self.names)
        return list(names)

    def _numbers(self, names: Sequence[str] | None) -> int:
        return sum(self.model.likelihoods[name].outputs for name in self._known(names))

    def _generator(self, seed: int, device: str) -> torch.Generator:
        return torch.Generator(resolve_device(device)).manual_seed(seed)


def mean_and_variance(posteriors: Iterable[Gaussian]) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of the posteriors of all batches, `[n, latent]`."""
    mean, variance = (torch.cat(parts) for parts in zip(*((q.mean, q.variance) for q in posteriors)))
    encoded = mean.float().cpu().numpy(), variance.float().cpu().numpy()
    for values in encoded:
        _check_finite("the encoding", values)
    return encoded


def _check_finite(what: str, values: np.ndarray) -> None:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InputError(
            f"{what} is not finite: values of the samples, or weights of the model, are too large or damaged"
        )


def join_states(prefix: str, network: nn.Module, preparation: Preparation) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a network and of its preparation under prefixed names, and the preparation's JSON."""
    learned, prepared = preparation.state()
    tensors = {prefix + key: value for key, value in network.state_dict().items()}
    return tensors | {_PREPARATION + key: value for key, value in learned.items()}, prepared


def split_states(
    prefix: str, tensors: Mapping[str, Tensor], described: Mapping[str, Any]
) -> tuple[dict[str, Tensor], Preparation]:
    """Return a network's tensors and its preparation from what `join_states` returned."""
    network, learned = (
        {key.removeprefix(start): value for key, value in tensors.items() if key.startswith(start)}
        for start in (prefix, _PREPARATION)
    )
    return network, Preparation.from_state(learned, described["preparation"])
