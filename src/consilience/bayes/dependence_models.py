"""Which model of the dependence between experts serves a number of classes, and the tensors that it is saved as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from consilience.bayes.class_gaussians import ClassGaussian, fit_gaussian
from consilience.bayes.copula import ClassCopula, fit_copula, normal_quantiles
from consilience.bayes.few_sample_gaussians import FewSampleGaussian, fit_few_sample_gaussian, has_few_samples
from consilience.bayes.kappa import Estimate, Kappa
from consilience.bayes.low_rank_gaussians import LowRankGaussian, fit_low_rank_gaussian
from consilience.core.errors import InputError

DependenceModel: TypeAlias = ClassGaussian | LowRankGaussian | ClassCopula
# The most entries of the covariances of all classes: a gigabyte.
_MAX_ENTRIES = 2**27


def has_low_rank(kappa: Kappa, modalities: int, classes: int) -> bool:
    """Whether covariances have low rank, because one for each class would need more than a gigabyte.

    >>> has_low_rank("gaussian", 4, 100), has_low_rank("gaussian", 4, 1000)
    (False, True)
    """
    features = modalities * (classes - 1)
    large = classes * features**2 > _MAX_ENTRIES
    if large and kappa == "copula":
        raise InputError(
            f"kappa='copula' needs a covariance of {features} features for each of {classes} classes, more than "
            f"{_MAX_ENTRIES:.1e} numbers: use kappa='gaussian', whose covariances then have low rank, or kappa='none'"
        )
    return large


def initial_tensors(kappa: Kappa, modalities: int, classes: int) -> dict[str, Tensor]:
    """The tensors of a model before it is fitted, by name: standard normal features."""
    features = modalities * (classes - 1)
    mean = torch.zeros(classes, features)
    if has_low_rank(kappa, modalities, classes):
        factors, level = torch.zeros(features, 0), torch.ones(classes)
        return {"mean": mean, "variance": torch.ones(features), "factors": factors, "level": level}
    tensors = {"mean": mean, "covariance": torch.eye(features).repeat(classes, 1, 1)}
    if kappa == "copula":
        tensors["knots"] = normal_quantiles(torch.float32).repeat(classes, features, 1)
    return tensors


def tensors_of(model: DependenceModel) -> dict[str, Tensor]:
    """A fitted model's tensors, with the names of `initial_tensors`."""
    if isinstance(model, LowRankGaussian):
        return {"mean": model.mean, "variance": model.variance, "factors": model.factors, "level": model.level}
    if isinstance(model, ClassCopula):
        return {**tensors_of(model.gaussian), "knots": model.knots}
    return {"mean": model.mean, "covariance": model.covariance}


def model_of(tensors: Mapping[str, Tensor], widths: tuple[int, ...]) -> DependenceModel:
    """The model with these tensors."""
    if "covariance" not in tensors:
        return LowRankGaussian(tensors["mean"], tensors["variance"], tensors["factors"], tensors["level"], widths)
    gaussian = ClassGaussian(tensors["mean"], tensors["covariance"], widths)
    return ClassCopula(tensors["knots"], gaussian) if "knots" in tensors else gaussian


def fit_dependence(
    kappa: Kappa, x: Tensor, y: Tensor, classes: int, widths: Sequence[int], present: Tensor
) -> DependenceModel:
    """Fit the model that is kept: x `[n, feature]` in float64, class indices y `[n]`, present `[n, modality]`."""
    if has_low_rank(kappa, len(widths), classes):
        return fit_low_rank_gaussian(x, y, classes, widths, present)
    return (fit_gaussian if kappa == "gaussian" else fit_copula)(x, y, classes, widths, present)


def fit_for_one_use(
    kappa: Kappa, x: Tensor, y: Tensor, classes: int, widths: Sequence[int], present: Tensor
) -> DependenceModel | FewSampleGaussian:
    """Fit a model of the same densities in the form that is fastest to fit and to use once; it cannot be saved."""
    full = kappa == "gaussian" and not has_low_rank(kappa, len(widths), classes)
    if full and has_few_samples(y, classes, x.shape[1], present):
        return fit_few_sample_gaussian(x, y, classes, widths)
    return fit_dependence(kappa, x, y, classes, widths, present)


def estimate(model: DependenceModel | FewSampleGaussian, x: Tensor, present: Tensor) -> Estimate:
    """ln κ̂ and ln p̂; a copula models dependence alone and has no density."""
    if isinstance(model, ClassCopula):
        return model.log_kappa(x, present), None
    log_density, log_kappa = model.log_density_and_kappa(x, present)
    return log_kappa, log_density
