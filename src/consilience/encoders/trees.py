"""Decision trees, the choice of an expert that needs no features and no gradients."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from torch import Tensor, nn

from consilience.core.errors import UnsupportedError
from consilience.core.samples import Kind, Modality
from consilience.core.settings import Interval, NonNegativeFloat, PositiveInt
from consilience.encoders.choice import register_encoder
from consilience.encoders.encoder import Encoded, Encoder

TreeKind = Literal["extra", "boosted"]


@register_encoder("trees")
class Trees(Encoder):
    """Decision trees instead of a network, for classification by a method whose experts are trained one by one.

    They give an opinion and no features. Settings that are None have the default of their kind, see
    `methods.opinions.tree_expert`.

    Args:
        modality: A vector.
        kind: "extra": extremely randomised trees (Geurts et al. 2006), each grown alone, whose class shares are
            averaged. "boosted": gradient boosting over histograms, in rounds of one tree for each class, which takes
            much longer where there are many classes.
        trees: Number of trees, or of rounds of boosting.
        leaf: Least number of training samples in a leaf.
        features: Share of the features among which a split is chosen.
        leaves: Most leaves of a boosted tree; extra trees have no limit.
        rate: Learning rate of boosting.
        l2: Regularisation of the leaves' values in boosting.
    """

    reads: ClassVar[tuple[Kind, ...]] = ("vector",)
    gives_features = False
    expert = "trees"
    width = 0

    def __init__(
        self,
        modality: Modality,
        *,
        kind: TreeKind = "extra",
        trees: Annotated[int, Interval(1, 10_000)] | None = None,
        leaf: PositiveInt | None = None,
        features: Annotated[float, Interval(0, 1, above=True)] | None = None,
        leaves: Annotated[int, Interval(2, 1024)] = 8,
        rate: Annotated[float, Interval(0, 1, above=True)] = 0.1,
        l2: NonNegativeFloat = 1.0,
    ):
        super().__init__()
        self.modality_name = modality.name
        self.kind, self.trees, self.leaf, self.features = kind, trees, leaf, features
        self.leaves, self.rate, self.l2 = leaves, rate, l2
        self.stages = nn.ModuleDict()

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Encoded:
        """Raise an error: there are no features."""
        raise UnsupportedError(f"encoder 'trees' of modality {self.modality_name!r} gives an opinion and no features")
