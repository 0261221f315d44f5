"""`MultimodalVAE`: latent fusion of partly observed modalities without labels, as an estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from consilience.core.errors import InputError
from consilience.core.samples import Kind, Samples
from consilience.core.settings import whole_number
from consilience.encoders import EncoderChoice
from consilience.estimators.column_selection import Columns
from consilience.estimators.estimator_inputs import ReadsSamples, like_input, without_targets
from consilience.estimators.multimodal_vae_saving import write_encoder, write_latent
from consilience.estimators.sklearn_parameters import draw_seed
from consilience.evaluation.trust import present_modalities
from consilience.methods.latent.decoders import DecoderChoice
from consilience.methods.latent.generation_metrics import agreement, generated_samples, generation_errors, linear_probe
from consilience.methods.latent.importance_sampling import LogLikelihood
from consilience.methods.latent.imputation import fill_missing
from consilience.methods.latent.latent_traversal import interpolate, liveliest, traverse
from consilience.methods.latent.likelihoods import LikelihoodChoice
from consilience.methods.latent.objectives.objective import objective_settings
from consilience.methods.latent.trained_latent_model import TrainedLatent
from consilience.methods.latent.variation_of_information import Information, variation_of_information
from consilience.report.sample_pictures import draw_walk

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class MultimodalVAE(ReadsSamples):
    """One latent for several modalities: encode, generate and judge any of them from any others. No labels needed.

    objective: "m2vae", "jmvae", "joint", "vae", "mvae", "mmvae", "mopoe" or "mvtcae" · latent: its dimensions ·
    bound: of m2vae, "paper" or "tight" · subsets: "all", or "chain" for one random chain of nested subsets a step ·
    subset_encoder: "trunk", "own", "poe", "set"; by default what suits the objective · settings: further ones of the
    objective · encoders, decoders, likelihoods: modality → choice, by default by kind and values · weights: modality →
    factor of its log-likelihood · beta: factor of every divergence, reached over the first `beta_warmup` epochs ·
    columns, kinds, training, device, …: as for `FusionClassifier` · validation: a share of the samples for early
    stopping, None, or samples.

    >>> from consilience import load_data
    >>> data = load_data("digits")
    >>> model = MultimodalVAE(latent=8, epochs=2).fit(data.train)
    >>> mean, variance = model.encode(data.test, given=["top_left"])
    >>> mean.shape == variance.shape == (len(data.test), 8)
    True
    >>> upper = data.test.only(["top_left", "top_right"])
    >>> model.generate(["bottom_left"], given=upper)["bottom_left"].shape[1]
    16
    """

    nested = ("settings", "training")

    def __init__(
        self,
        objective: str = "m2vae",
        *,
        latent: int = 20,
        bound: str = "paper",
        subsets: str = "all",
        subset_encoder: str | None = None,
        settings: Mapping[str, Any] | None = None,
        encoders: Mapping[str, EncoderChoice] | None = None,
        decoders: Mapping[str, DecoderChoice] | None = None,
        likelihoods: Mapping[str, LikelihoodChoice] | None = None,
        weights: Mapping[str, float] | None = None,
        beta: float = 1.0,
        beta_warmup: float = 0,
        columns: Columns | None = None,
        kinds: Mapping[str, Kind] | None = None,
        epochs: int = 100,
        batch_size: int = 64,
        lr: float = 1e-3,
        optimizer: str = "adam",
        weight_decay: float = 0.0,
        patience: int | None = 15,
        validation: Any = 0.1,
        training: Mapping[str, Any] | None = None,
        device: str = "auto",
        precision: str = "32",
        random_state: Any = 0,
        verbose: int = 0,
    ):
        self.objective = objective
        self.latent = latent
        self.bound = bound
        self.subsets = subsets
        self.subset_encoder = subset_encoder
        self.settings = settings
        self.encoders = encoders
        self.decoders = decoders
        self.likelihoods = likelihoods
        self.weights = weights
        self.beta = beta
        self.beta_warmup = beta_warmup
        self.columns = columns
        self.kinds = kinds
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.optimizer = optimizer
        self.weight_decay = weight_decay
        self.patience = patience
        self.validation = validation
        self.training = training
        self.device = device
        self.precision = precision
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, present: Any = None, sample_weight: Any = None) -> MultimodalVAE:
        """Train. X: mapping name → array, `Samples`, or a table; present: `[n, modality]`; y is not looked at."""
        self._forget()
        self._check_mappings("settings", "encoders", "decoders", "likelihoods", "weights", "kinds", "training")
        seed = draw_seed(self.random_state)
        samples = self._read(X, present, sample_weight)
        train, validation = self._hold_out(samples, seed)
        self.trained_ = TrainedLatent.fit(
            train,
            validation,
            trainer=self._trainer(seed),
            encoders=self.encoders,
            objective=self.objective,
            settings={**(self.settings or {}), **self._objective_settings()},
            latent=self.latent,
            subset_encoder=self.subset_encoder,
            decoders=self.decoders,
            likelihoods=self.likelihoods,
            weights=self.weights,
            beta=self.beta,
            warmup=self.beta_warmup,
        )
        return self._adopt()

    def _adopt(self) -> MultimodalVAE:
        self.modalities_ = self.trained_.names
        self.n_iter_ = max(1, sum(len(log.rows) for log in self.trained_.logs))
        return self

    def encode(self, X: Any, given: Sequence[str] | None = None, present: Any = None) -> tuple[Any, Any]:
        """Mean and variance of q(z | x), `[n, latent]` each, from what each sample has of the given modalities."""
        mean, variance = self._fitted().encode(self._known(X, present), given, self.device)
        return like_input(X, mean), like_input(X, variance)

    def transform(self, X: Any, present: Any = None) -> Any:
        """The posterior's mean `[n, latent]`, so that a pipeline can go on from it."""
        return self.encode(X, present=present)[0]

    def generate(
        self,
        names: Sequence[str] | None = None,
        given: Any = None,
        *,
        samples: int | None = None,
        noise: bool = True,
        present: Any = None,
    ) -> dict[str, Any]:
        """Modalities from whatever `given` holds of the others: name → `[n, *shape]`, in the units of training.

        They are the decoders' means at the posterior's mean. samples=k gives `[k, n, *shape]` drawn from
        p(x | given): z from the posterior and x from its likelihood, or with noise=False its mean. `sample` needs no
        `given`.
        """
        if given is None:
            raise InputError("generate needs samples to start from, given=X; sample(n) makes some up from nothing")
        made = self._fitted().generate(
            self._known(given, present),
            names,
            draws=_count("samples", samples),
            noise=noise,
            seed=self._seed(),
            device=self.device,
        )
        return {name: like_input(given, values) for name, values in made.items()}

    def sample(self, n: int = 1, names: Sequence[str] | None = None, *, noise: bool = True) -> dict[str, np.ndarray]:
        """Samples that the model makes up: name → `[n, *shape]`. noise=False: the likelihoods' means."""
        count = _count("n", n) or 1
        return self._fitted().sample(count, names, noise=noise, seed=self._seed(), device=self.device)

    def impute(self, X: Any, present: Any = None) -> Samples:
        """The same samples with every missing modality filled in from those that are there."""
        return fill_missing(self._fitted(), self._known(X, present, targets=True), self.device)

    def log_likelihood(
        self,
        X: Any,
        of: Sequence[str] | None = None,
        given: Sequence[str] = (),
        *,
        importance_samples: int = 1000,
        present: Any = None,
    ) -> Any:
        """log p(x_of | x_given) of each sample `[n]` in nats, by default of all modalities."""
        found = self.estimate_log_likelihood(X, of, given, importance_samples=importance_samples, present=present)
        return like_input(X, found.value.numpy())

    def estimate_log_likelihood(
        self,
        X: Any,
        of: Sequence[str] | None = None,
        given: Sequence[str] = (),
        *,
        importance_samples: int = 1000,
        present: Any = None,
    ) -> LogLikelihood:
        """The same with standard errors and effective sample sizes, all tensors `[n]`."""
        return self._fitted().log_likelihood(
            self._known(X, present),
            of,
            given,
            draws=_count("importance_samples", importance_samples) or 1,
            seed=self._seed(),
            device=self.device,
        )

    def variation_of_information(
        self,
        X: Any,
        *parts: str | Sequence[str],
        importance_samples: int = 1000,
        present: Any = None,
    ) -> Information:
        """H(A|B) + H(B|A) of two parts, each a modality or several, in nats, and its standard error; or Σ H(A|others).

        As the model sees the samples that have all of them: eq. 93 of Korthals 2019, and 94 corrected. Differential
        entropies of numbers may be negative.
        """
        groups = [[part] if isinstance(part, str) else list(part) for part in parts]
        named = [name for group in groups for name in group]
        if len(groups) < 2 or not all(groups) or len(set(named)) < len(named):
            raise InputError(
                f"variation_of_information needs at least two parts, each of modalities that no other has, got {parts}"
            )
        samples = self._known(X, present)
        whole = present_modalities(samples, named).all(axis=1)
        if not whole.any():
            raise InputError(f"variation_of_information: no sample has all of {', '.join(named)}")
        samples = samples[np.flatnonzero(whole)]

        def log_likelihood(names: list[str]) -> torch.Tensor:
            return self.estimate_log_likelihood(samples, names, importance_samples=importance_samples).value

        without = [log_likelihood([name for one in groups if one is not group for name in one]) for group in groups]
        return variation_of_information(log_likelihood(named), torch.stack(without))

    def generation_errors(
        self, X: Any, of: Sequence[str] | None = None, given: Sequence[str] | None = None, present: Any = None
    ) -> dict[str, float]:
        """How far generated modalities are from the true ones of X: root mean square, or the share that is wrong.

        of: by default all that X has; those also in `given`, by default everything, are reconstructions.
        """
        samples = self._known(X, present)
        names = [name for name in self._fitted().names if name in (samples.names if of is None else of)]
        return generation_errors(samples, self._fitted().generate(samples, names, given, device=self.device))

    def coherence(
        self,
        X: Any,
        classifier: Any,
        of: Sequence[str],
        given: Sequence[str],
        y: Any = None,
        *,
        with_given: bool = True,
        present: Any = None,
    ) -> float:
        """The share of samples for which a classifier says the same of what is generated as of the true sample.

        classifier: anything fitted with `predict(samples)` · of: what to generate · given: from what · y: what it
        should say, by default what it says of X as it is · with_given: whether it sees `given` beside what is
        generated, or only that.
        """
        samples = self._known(X, present)
        reference = np.asarray(classifier.predict(samples) if y is None else y)
        made = generated_samples(self._fitted(), samples, of, given, with_given, self.device)
        return agreement(classifier, made, reference)

    def interpolate(
        self, X: Any, Y: Any, names: Sequence[str] | None = None, *, steps: int = 9
    ) -> dict[str, np.ndarray]:
        """From each sample of X to its counterpart in Y, straight through the latent: name → `[n, step, *shape]`."""
        return interpolate(self._fitted(), self._known(X, None), self._known(Y, None), names, steps, self.device)

    def interpolation_picture(self, X: Any, Y: Any, name: str, *, steps: int = 9) -> Figure:
        """One modality on the way from each sample of X to its counterpart in Y, a sample a row."""
        made = self.interpolate(X, Y, [name], steps=steps)[name]
        return draw_walk(self._fitted().preparation.raw[name], made)

    def traversal_picture(
        self, X: Any, name: str, *, dimensions: Sequence[int] | int = 6, span: float = 2.0, steps: int = 9
    ) -> Figure:
        """One modality along single dimensions of the latent, −span … span, from the posterior mean of X's first.

        dimensions: which, or how many of those along which the samples of X differ most.
        """
        trained, mean = self._fitted(), self.encode(self._known(X, None))[0]
        chosen = liveliest(mean, dimensions) if isinstance(dimensions, int) else list(dimensions)
        made = traverse(trained, mean[0], [name], chosen, span, steps)[name]
        titles = [f"{value:+.1f}" for value in np.linspace(-span, span, steps)]
        return draw_walk(trained.preparation.raw[name], made, [f"z{one}" for one in chosen], titles)

    def linear_probe(self, train: Samples, test: Samples, given: Sequence[str] | None = None) -> float:
        """The accuracy on test of a linear classifier of the latents, fitted on train; both carry their labels."""
        for role, samples in (("train", train), ("test", test)):
            if not isinstance(samples, Samples) or samples.y is None:
                raise InputError(f"linear_probe: {role} must be Samples with labels, Samples.of(X, y)")
        latents = [self.encode(one, given)[0] for one in (train, test)]
        return linear_probe(latents[0], np.asarray(train.y), latents[1], np.asarray(test.y))

    def save(self, path: str | Path) -> Path:
        """Write a folder of safetensors and JSON, for `consilience.load`."""
        self._fitted()
        return write_latent(Path(path), self)

    def export_encoder(self, name: str, path: str | Path) -> Path:
        """Write the encoder of one modality alone, with its preparation and q(z | x_name), for `load_encoder`."""
        return write_encoder(Path(path), self._fitted(), name)

    def _fitted(self) -> TrainedLatent:
        check_is_fitted(self, "trained_")
        return self.trained_

    def _known(self, X: Any, present: Any, targets: bool = False) -> Samples:
        samples = self._read(X, present, known=self._fitted().preparation.raw)
        return samples if targets else without_targets(samples)

    def _objective_settings(self) -> dict[str, Any]:
        """Bound and subsets, where the objective knows them; one that was changed is for the objective to refuse."""
        known = objective_settings(self.objective)
        own = {"bound": (self.bound, "paper"), "subsets": (self.subsets, "all")}
        return {name: value for name, (value, default) in own.items() if name in known or value != default}

    def _seed(self) -> int:
        return draw_seed(self.random_state)

    def _hold_out(self, train: Samples, seed: int) -> tuple[Samples, Samples | None]:
        given = self.validation
        if given is None:
            return train, None
        if isinstance(given, Samples | Mapping):
            return train, self._read(given, known=train.modalities)
        if not isinstance(given, float | int | np.number) or isinstance(given, bool) or not 0 <= given < 1:
            raise InputError(f"validation must be a share ≥ 0 and < 1, None, or samples, got {given!r}")
        held = np.random.default_rng(seed).permutation(len(train)) < round(float(given) * len(train))
        return (train[~held], train[held]) if held.any() else (train, None)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.dict = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "trained_")


def _count(setting: str, value: int | None) -> int | None:
    return None if value is None else whole_number(setting, value)
