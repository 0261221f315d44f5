"""Dynamic fusion on six views of handwritten digits, half of them noisy: bounded encoders, unbounded ones, TMC's own.

The one set of the evidential papers that is small and public. The protocol is Zhang et al.'s noise (each view of a
sample independently with probability one half) on Han et al.'s split.
"""

from consilience.comparison.experiments.experiment import Experiment, Part, register_experiment

VIEWS = ("pix", "fou", "fac", "zer", "kar", "mor")
METHODS = (
    "best-unimodal",
    "late",
    "late-probs",
    "concat",
    "tmc",
    "etmc",
    "ecml",
    "pdf",
    "qmf",
    "bayes",
    "bayes-robust",
)
# Of the 1600 training rows. The published runs train on all of them for a fixed number of epochs; what is held out here
# says which method to take, and may as well be little.
VALIDATION = 0.05
PAPER = "Zhang et al. 2023, Provable Dynamic Fusion for Low-Quality Multimodal Data"


def protocol(normalise: bool) -> dict[str, object]:
    """Linear → (LayerNorm →) ReLU → dropout for each view, 60 epochs, Gaussian noise of 0, 1, 2, 5, 10 deviations."""
    return {
        "data": "handwritten",
        "validation": VALIDATION,
        "methods": list(METHODS),
        "reference": "bayes-robust",
        "corruption": ["gaussian"],
        "levels": (0, 1, 2, 5, 10),
        "seeds": 10,
        "repeats": 10,
        "encoders": {view: {"name": "mlp", "hidden": [64], "dropout": 0.1, "normalise": normalise} for view in VIEWS},
        "training": {"epochs": 60, "batch_size": 50, "lr": 5e-4, "average": "mean", "patience": None},
    }


QUICK = {"levels": (0, 5, 10), "seeds": 3}

register_experiment(
    Experiment(
        name="qmf-handwritten",
        title="Handwritten digits in six views, half of them noisy: who trusts the right ones?",
        paper=PAPER,
        parts={"handwritten": Part(protocol(normalise=True), QUICK)},
        notes=(
            "The paper has no table on this set; its rivals' papers do, without noise. Noise is in units of each "
            "feature's standard deviation.",
            "The release has no validation rows: one in twenty of its training rows is drawn for it, anew with every "
            "seed, since nothing but the choice of an epoch and of a model to save rests on them.",
            "What is judged is the mean of the weights over the steps up to an epoch. That, the learning rate and the "
            "batch were chosen within the training rows, in ten folds of them drawn ten times, by the mean accuracy of "
            "late, QMF, TMC and ECML, clean and at noise of 5 and 10; the test set had no part in it. In those folds "
            "mean weights stand noise better than the last ones do: clearly with evidential methods, a little with "
            "QMF, and with late not at all.",
            "The test set has 400 samples, on which one draw of the noise moves an accuracy by more than methods "
            "differ: it is drawn ten times for every seed.",
            "The encoders have a norm layer: without one the energy of a view rises with its noise, see "
            "`qmf-handwritten-unbounded`.",
        ),
    )
)
register_experiment(
    Experiment(
        name="qmf-handwritten-unbounded",
        title="The same without norm layers: confidence that grows with the noise",
        paper=PAPER,
        parts={"handwritten": Part(protocol(normalise=False), QUICK)},
        notes=(
            "Logits of an encoder without a norm layer grow with the input's norm, and so does every confidence that "
            "is read off them. Theorem 2's condition r ≤ 0 fails: see the section on trust.",
        ),
    )
)
register_experiment(
    Experiment(
        name="tmc-handwritten",
        title="TMC as its authors train it: one linear layer for each view",
        paper="Han et al. 2021, Trusted Multi-View Classification",
        parts={
            "handwritten": Part(
                {
                    "data": "handwritten",
                    "validation": VALIDATION,
                    "methods": ["tmc"],
                    "reference": "tmc",
                    "corruption": ["gaussian"],
                    "levels": (0, 5, 10),
                    "seeds": 10,
                    "encoders": {view: {"name": "mlp", "hidden": []} for view in VIEWS},
                    "training": {"epochs": 500, "batch_size": 200, "lr": 3e-4, "weight_decay": 1e-5, "patience": None},
                },
                {"seeds": 3},
            )
        },
        published={("handwritten", "tmc", "clean", 0.0): 0.9851},
        notes=(
            "The views are standardised here, scaled to [0, 1] in the authors' code; the published figure is their "
            "paper's, the authors' code gives 97.90 ± 0.20 on this split.",
        ),
    )
)
