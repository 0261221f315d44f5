"""`MultimodalVAE`: latent fusion of partly observed modalities without labels, as an estimator."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import InputError, show
from consilience.core.samples import Samples
from consilience.core.settings import Names, NonNegativeInt, PositiveFloat, PositiveInt, checked
from consilience.encoders import EncoderChoice
from consilience.estimators.answer_types import like_input
from consilience.estimators.estimator_inputs import recipe_of
from consilience.estimators.hold_out import hold_out_unlabelled
from consilience.estimators.latent_likelihoods import LatentLikelihoods
from consilience.estimators.saving import write_encoder, write_latent
from consilience.estimators.sklearn_parameters import check_fitted, draw_seed
from consilience.methods.latent.decoders import DecoderChoice
from consilience.methods.latent.default_networks import SUBSET_ENCODERS, default_decoders, default_encoders
from consilience.methods.latent.generation_metrics import coherent, generated_samples, generation_errors, linear_probe
from consilience.methods.latent.imputation import fill_cells, fill_missing
from consilience.methods.latent.latent_traversal import interpolate, most_varying_dimensions, traverse
from consilience.methods.latent.likelihoods.likelihood import LikelihoodChoice
from consilience.methods.latent.objectives.objective import objective_settings
from consilience.methods.latent.trained_latent_model import TrainedLatent
from consilience.report.sample_pictures import draw_walk
from consilience.training.loggers import say_trained

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class MultimodalVAE(LatentLikelihoods):
    """A latent variable model of several modalities: encode, generate and score any of them given any others.

    It is trained without labels.

    Args:
        objective: "m2vae", "jmvae", "joint", "vae", "mvae", "mmvae", "mopoe" or "mvtcae".
        latent: Number of latent dimensions.
        bound: Of m2vae, "tight", or "paper" for the form that was published, which is lower.
        subsets: Of m2vae, "chain" for one random chain of nested subsets per step, or "all" for the full sum.
        subset_encoder: "trunk", "own", "poe" or "set"; None: "set" for m2vae, else the default of the objective.
        settings: Further settings of the objective.
        encoders: Modality → encoder; by default by kind, for vectors a perceptron of 256 and 128 units.
        decoders: Modality → decoder; by default by kind, for vectors a perceptron of 256 units.
        likelihoods: Modality → likelihood; by default by kind and values.
        weights: Modality → factor of its log-likelihood.
        beta: Factor of every divergence.
        beta_warmup: Epochs over which the factor rises from 0 to `beta`.
        regression_features: What `impute` fills in combines the model's expectation with ridge regressions on so many
            random features of what is given, with the factors of least error on the samples held out; 0, or without
            such samples: the expectation alone.
        columns: For a 2-D array or a DataFrame: modality → slice, positions, names or a glob.
        kinds: Modality → kind, where the shape does not show it.
        fill: What single empty cells of a table become, as in `load_data`; "none": an error. Fill values and
            categories are learned from all rows of X, those held out for validation too.
        validation: Share of the samples for early stopping; or None, or samples.
        training: Further arguments of `consilience.training.Trainer`, such as `checkpoint`.
        callbacks: `consilience.training.callbacks.Callback` objects. They are not saved with the model.
        random_state: Seed of initial weights, batches and draws; a RandomState or None.
        **training settings

    Example:
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

    first = "objective"
    nested = ("settings", "training")

    objective: str = "m2vae"
    latent: int = 20
    bound: str = "tight"
    subsets: str = "chain"
    subset_encoder: str | None = None
    settings: Mapping[str, Any] | None = None
    encoders: Mapping[str, EncoderChoice] | None = None
    decoders: Mapping[str, DecoderChoice] | None = None
    likelihoods: Mapping[str, LikelihoodChoice] | None = None
    weights: Mapping[str, float] | None = None
    beta: float = 1.0
    beta_warmup: float = 0
    regression_features: NonNegativeInt = 1000
    validation: Any = 0.1

    @checked
    def fit(self, X: Any, y: Any = None, present: Any = None, sample_weight: Any = None) -> MultimodalVAE:
        """Train the model.

        Args:
            X: Mapping name → array, `Samples`, or a table.
            y: Ignored.
            present: Booleans `[n, modality]`; False: missing.
            sample_weight: `[n]`.
        """
        self._forget()
        self._check_declared()
        seed = draw_seed(self.random_state)
        samples = self._read(X, present, sample_weight)
        train, validation = self._hold_out(samples, seed)
        self.recipe_ = recipe_of(train)
        gaps = {name: known.gaps for name, known in self._known_encodings().items() if known.flagged}
        began = time.perf_counter()
        self.trained_ = TrainedLatent.fit(
            train,
            validation,
            trainer=self._trainer(seed),
            encoders=default_encoders(train.modalities, self.encoders),
            objective=self.objective,
            settings={**(self.settings or {}), **self._objective_settings()},
            latent=self.latent,
            subset_encoder=self.subset_encoder or SUBSET_ENCODERS.get(self.objective),
            decoders=default_decoders(train.modalities, self.decoders),
            likelihoods=self.likelihoods,
            weights=self.weights,
            beta=self.beta,
            warmup=self.beta_warmup,
            gaps=gaps or None,
            regression_features=self.regression_features,
        )
        if self.verbose:
            say_trained(self.objective, self.trained_.logs, time.perf_counter() - began)
        self.modalities_ = self.trained_.names
        self.n_iter_ = max(1, sum(len(log.rows) for log in self.trained_.logs))
        return self

    @checked
    def encode(self, X: Any, given: Names | None = None, present: Any = None) -> tuple[Any, Any]:
        """Return mean and variance of q(z | x), `[n, latent]` each.

        Args:
            X: Samples.
            given: Modalities to condition on, where a sample has them; None: all.
            present: `[n, modality]`.
        """
        mean, variance = self._fitted().encode(self._known(X, present), given, self.device)
        return like_input(X, mean), like_input(X, variance)

    @checked
    def transform(self, X: Any, present: Any = None) -> Any:
        """Return the posterior mean `[n, latent]`, for pipelines."""
        return self.encode(X, present=present)[0]

    @checked
    def generate(
        self,
        names: Names | None = None,
        given: Any = None,
        *,
        samples: PositiveInt | None = None,
        noise: bool = True,
        present: Any = None,
    ) -> dict[str, Any]:
        """Generate modalities from others.

        Args:
            names: Modalities to generate; None: all.
            given: Samples to condition on. `sample` generates without any.
            samples: Draws per sample, of z from the learned posterior q(z | given) and of x from p(x | z); None: the
                decoder mean at the posterior mean.
            noise: Whether draws of x come from the likelihood; False: its mean.
            present: `[n, modality]` of `given`.

        Returns:
            Name → `[n, *shape]`, or `[samples, n, *shape]`, in the units of the training data.
        """
        if given is None:
            raise InputError("generate needs samples to condition on, given=X; sample(n) generates without any")
        made = self._fitted().generate(
            self._known(given, present),
            names,
            draws=samples,
            noise=noise,
            seed=self._seed(),
            device=self.device,
        )
        return {name: like_input(given, values) for name, values in made.items()}

    @checked
    def sample(self, n: PositiveInt = 1, names: Names | None = None, *, noise: bool = True) -> dict[str, np.ndarray]:
        """Generate n samples from the prior: name → `[n, *shape]`. noise=False: the means of the likelihoods."""
        return self._fitted().sample(n, names, noise=noise, seed=self._seed(), device=self.device)

    @checked
    def impute(self, X: Any, present: Any = None, *, draws: NonNegativeInt = 100) -> Samples:
        """Return the samples with what is missing filled in from what is there, by expected values.

        They are the model's expectations, combined with a regression by what held-out samples say; with
        `regression_features=0` the model's alone, as in `generate`.

        Missing modalities are filled in, and single empty cells of a table, if `fill` is "indicator": the features
        "COLUMN is empty" say where they are, and stay 1. A column that had no empty cell in training has no such
        feature, and its empty cells in new rows keep the median.

        Args:
            X: Samples.
            present: `[n, modality]`.
            draws: The expected values are means over so many draws from the posterior; 0: the decoder's mean at the
                posterior's mean. Draws have the same noise for all samples and in every call.
        """
        samples = self._known(X, present, targets=True)
        cells = fill_cells(self._fitted(), samples, self.device, draws)
        return fill_missing(self._fitted(), samples, self.device, draws, keep=cells)

    @checked
    def generation_errors(
        self, X: Any, of: Names | None = None, given: Names | None = None, present: Any = None
    ) -> dict[str, float]:
        """Return the error of each generated modality: root mean square error, or the share of wrong values.

        Args:
            X: Samples with the true values.
            of: Modalities to generate; None: all of X. Those also in `given` are reconstructions.
            given: Modalities to condition on; None: all.
            present: `[n, modality]`.
        """
        samples = self._known(X, present)
        names = [name for name in self._fitted().names if name in (samples.names if of is None else of)]
        return generation_errors(samples, self._fitted().generate(samples, names, given, device=self.device))

    @checked
    def coherence(
        self,
        X: Any,
        classifier: Any,
        of: Names,
        given: Names,
        y: Any = None,
        *,
        with_given: bool = True,
        present: Any = None,
    ) -> float:
        """Return the share of samples whose generated modalities are classified like the true sample.

        Args:
            X: Samples.
            classifier: A fitted classifier with `predict(samples)`.
            of: Modalities to generate.
            given: Modalities to condition on.
            y: Expected labels; None: what the classifier predicts for X.
            with_given: Whether the classifier sees `given` beside the generated modalities.
            present: `[n, modality]`.
        """
        samples = self._known(X, present)
        reference = np.asarray(classifier.predict(samples) if y is None else y)
        made = generated_samples(self._fitted(), samples, of, given, with_given, self.device)
        return float(np.mean(coherent(classifier, made, reference)))

    @checked
    def interpolate(
        self, X: Any, Y: Any, names: Names | None = None, *, steps: PositiveInt = 9
    ) -> dict[str, np.ndarray]:
        """Generate along the straight line in latent space from X to Y: name → `[n, step, *shape]`."""
        return interpolate(self._fitted(), self._known(X, None), self._known(Y, None), names, steps, self.device)

    @checked
    def interpolation_picture(self, X: Any, Y: Any, name: str, *, steps: PositiveInt = 9) -> Figure:
        """Draw one modality along the line from each sample of X to the one of Y, one sample per row."""
        made = self.interpolate(X, Y, [name], steps=steps)[name]
        return draw_walk(self._fitted().preparation.raw[name], made)

    @checked
    def traversal_picture(
        self,
        X: Any,
        name: str,
        *,
        dimensions: PositiveInt | Iterable[NonNegativeInt] = 6,
        span: PositiveFloat = 2.0,
        steps: PositiveInt = 9,
    ) -> Figure:
        """Draw one modality along single latent dimensions, −span to span, from the posterior mean of the first sample.

        Args:
            X: Samples.
            name: The modality.
            dimensions: Latent dimensions, or the number of those along which the samples of X differ most.
            span: Largest distance from the posterior mean.
            steps: Pictures per dimension.
        """
        trained, mean = self._fitted(), self.encode(self._known(X, None))[0]
        chosen = most_varying_dimensions(mean, dimensions) if isinstance(dimensions, int) else list(dimensions)
        made = traverse(trained, mean[0], [name], chosen, span, steps)[name]
        titles = [f"{value:+.1f}" for value in np.linspace(-span, span, steps)]
        return draw_walk(trained.preparation.raw[name], made, [f"z{dimension}" for dimension in chosen], titles)

    @checked
    def linear_probe(self, train: Samples, test: Samples, given: Names | None = None) -> float:
        """Return the test accuracy of a linear classifier of the latents, fitted on train; both must have labels."""
        for role, samples in (("train", train), ("test", test)):
            if not isinstance(samples, Samples) or samples.y is None:
                raise InputError(f"linear_probe: {role} must be Samples with labels, Samples.of(X, y)")
        latents = [self.encode(samples, given)[0] for samples in (train, test)]
        return linear_probe(latents[0], np.asarray(train.y), latents[1], np.asarray(test.y))

    @checked
    def save(self, path: str | Path) -> Path:
        """Write a folder of safetensors and JSON, for `consilience.load`."""
        self._fitted()
        return write_latent(Path(path), self)

    @checked
    def export_encoder(self, name: str, path: str | Path) -> Path:
        """Write the encoder of one modality, with its preparation and q(z | x_name), for `consilience.load`."""
        return write_encoder(Path(path), self._fitted(), name)

    def _fitted(self) -> TrainedLatent:
        check_fitted(self, "trained_")
        return self.trained_

    def _known(self, X: Any, present: Any, targets: bool = False) -> Samples:
        samples = self._read(X, present, known=self._fitted().preparation.raw)
        return samples if targets else samples.without_targets()

    def _objective_settings(self) -> dict[str, Any]:
        """Bound and subsets where the objective has them, or where they were changed: the objective refuses those."""
        known = objective_settings(self.objective)
        own = {"bound": (self.bound, "tight"), "subsets": (self.subsets, "chain")}
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
            raise InputError(f"validation must be a share ≥ 0 and < 1, None, or samples, got {show(given)}")
        held = hold_out_unlabelled(train, float(given), seed)
        return (train[~held], train[held]) if held.any() else (train, None)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "trained_")
