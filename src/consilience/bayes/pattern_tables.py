"""The dependence models as tables over all sets of present modalities, for graphs that cannot factor a covariance.

`GaussianByPattern` factors the covariance of the modalities that a row has when it meets them. An exported model has
the factors of all sets, and each row looks up its own. There are 2^modalities sets, so this serves few modalities.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from consilience.bayes.class_gaussians import ClassGaussian
from consilience.bayes.copula import ClassCopula, normal_scores
from consilience.bayes.dependence_models import DependenceModel
from consilience.bayes.kappa import Estimate
from consilience.core.errors import UnsupportedError
from consilience.core.modality_sets import all_sets, set_numbers

PATTERN_TABLES = ("centre", "whitening", "constant", "knots")
# The most numbers in the table of all sets: 256 MB in float64.
_MOST_NUMBERS = 2**25


def pattern_tables(model: DependenceModel) -> dict[str, Tensor]:
    """The means, whitening matrices and constants of a model for all sets of modalities.

    Returns:
        `centre` `[class, 1, feature]`, `whitening` `[class, feature, set·feature]` with zeros outside a set, `constant`
        `[set, class]`, and the `knots` of a copula.

    Raises:
        UnsupportedError: If the table would be too large, or the covariances have low rank.
    """
    gaussian = model.gaussian if isinstance(model, ClassCopula) else model
    classes, features = gaussian.mean.shape
    numbers = 2 ** len(gaussian.widths) * classes * features**2
    if not isinstance(gaussian, ClassGaussian) or numbers > _MOST_NUMBERS:
        raise UnsupportedError(
            f"kappa models the dependence between {len(gaussian.widths)} experts of {classes} classes, for which an "
            "exported model would need a covariance of every class and every set of modalities, more than 256 MB: "
            "train with kappa='none'"
        )
    sets = all_sets(len(gaussian.widths))
    blocks = torch.arange(features).split(list(gaussian.widths))
    whitening = gaussian.mean.new_zeros(classes, len(sets), features, features)
    constant = gaussian.mean.new_zeros(len(sets), classes)
    for number, members in enumerate(sets.tolist()):
        if not any(members):
            continue
        columns = torch.cat([block for block, there in zip(blocks, members) if there])
        lower = torch.linalg.cholesky(gaussian.covariance[:, columns[:, None], columns])
        identity = torch.eye(len(columns), dtype=lower.dtype).expand_as(lower)
        inverse = torch.linalg.solve_triangular(lower, identity, upper=False)
        whitening[:, number, columns[:, None], torch.arange(len(columns))] = inverse.mT
        log_determinant = lower.diagonal(dim1=1, dim2=2).log().sum(1)
        constant[number] = -log_determinant - 0.5 * len(columns) * math.log(2 * math.pi)
    tables = {
        "centre": gaussian.mean[:, None],
        "whitening": whitening.transpose(1, 2).flatten(2),
        "constant": constant,
    }
    return tables | ({"knots": model.knots} if isinstance(model, ClassCopula) else {})


def estimate_by_table(tables: Mapping[str, Tensor], x: Tensor, present: Tensor, widths: tuple[int, ...]) -> Estimate:
    """ln κ̂ and ln p̂ as `dependence_models.estimate` gives them: x `[n, feature]`, present `[n, modality]`."""
    copula = "knots" in tables
    of_class = normal_scores(x, tables["knots"]).transpose(0, 1) if copula else x[None]
    sets, classes = tables["constant"].shape
    white = (of_class - tables["centre"]) @ tables["whitening"]
    squares = white.unflatten(2, (sets, sum(widths))).square().sum(dim=3)  # [class, n, set]
    density = tables["constant"].T[:, None] - 0.5 * squares
    chosen = set_numbers(present)[None, :, None].expand(classes, -1, 1)
    joint = density.gather(2, chosen)[..., 0].T
    alone = torch.tensor([2**m for m in range(len(widths))])
    own = (density[..., alone] * present).sum(dim=2).T
    joint = torch.where(present.sum(dim=1, keepdim=True) > 1, joint, own)
    return joint - own, None if copula else joint
