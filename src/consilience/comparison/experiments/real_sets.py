"""A table for each real set: fusion by features, by opinions and by evidence, under noise and with modalities missing.

Handwritten digits and tweets have theirs in `qmf-handwritten` and `qmf-table1`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consilience.comparison.experiments.experiment import Experiment, Part, register_experiment

# What every set is met with; `early` has one encoder for all, so it is there where encoders are not chosen.
METHODS = (
    "best-unimodal",
    "concat",
    "lowrank",
    "late",
    "late-probs",
    "qmf",
    "tmc",
    "ecml",
    "bayes",
    "bayes-robust",
)
QUICK_METHODS = ("best-unimodal", "concat", "late", "qmf", "tmc", "bayes")
SENSORS = ("CE", "CP", "SE", "TS1", "TS2", "TS3", "TS4", "VS1")
COMPONENTS = {"cooler": "The cooler", "valve": "The valve", "pump": "The pump", "accumulator": "The accumulator"}


def part(data: str, also: tuple[str, ...] = (), *, title: str, training: Mapping[str, Any], **own: Any) -> Part:
    """The protocol of a set: noise by standard deviations and missing modalities at two levels, 10 seeds.

    also: methods besides those that every set is met with.
    """
    full = {
        "data": data,
        "methods": [*also, *METHODS],
        "reference": "late",
        "corruption": ["gaussian", "missing"],
        "levels": (0, 5, 10),
        "seeds": 10,
        "training": dict(training),
        **own,
    }
    single = [name for name in also if name.startswith("unimodal:")]
    return Part(
        full,
        {"methods": [*single, *QUICK_METHODS], "seeds": 2, "training": {**training, "epochs": 15}, "settings": {}},
        title,
    )


SPLIT = "Test samples came with the data and are the same for every seed; validation is drawn anew from training."

register_experiment(
    Experiment(
        name="sets-mosi",
        title="Spoken reviews: what do voice and face add to the words?",
        paper="Poria et al. 2017, Context-Dependent Sentiment Analysis in User-Generated Videos",
        parts={
            "mosi": part(
                "mosi",
                ("unimodal:text", "unimodal:audio", "unimodal:video", "early", "m2vae"),
                title="CMU-MOSI, utterance by utterance",
                training={"epochs": 60},
            )
        },
        published={
            ("mosi", "unimodal:text", "clean", 0.0): 0.781,
            ("mosi", "unimodal:audio", "clean", 0.0): 0.603,
            ("mosi", "unimodal:video", "clean", 0.0): 0.558,
            ("mosi", "concat", "clean", 0.0): 0.803,
        },
        notes=(
            "The published figures are of bc-LSTM, which reads an utterance together with its neighbours in the video; "
            "here each utterance is judged alone, from the same features. Its figure for all three stands beside "
            "`concat`, the nearest relative.",
            "The features come from networks that were trained on the training part's labels: validation, drawn from "
            "it, is near 100 % while the test is not, so early stopping and whatever is fitted out-of-fold (`bayes`, "
            "`bayes-robust`) learn little from it. Positives are 49 % of the training part and 62 % of the test.",
            SPLIT,
        ),
    )
)

register_experiment(
    Experiment(
        name="sets-hydraulic",
        title="A hydraulic rig: which of its parts is worn, with sensors that fail?",
        parts={
            component: part(
                "hydraulic",
                component=component,
                title=title,
                encoders={sensor: {"name": "mlp", "hidden": [32], "dropout": 0.1} for sensor in SENSORS},
                settings={"lowrank": {"rank": 4, "width": 64}},
                training={"epochs": 30, "batch_size": 128, "lr": 3e-3},
            )
            for component, title in COMPONENTS.items()
        },
        notes=(
            "Nothing published is set beside these figures: papers on this rig split its cycles at random, and "
            "neighbouring cycles are nearly alike. Here whole blocks of 45 cycles are for training, validation or "
            "test, which is harder.",
            "The blocks are drawn once: seeds differ in initial weights, order and noise, so the spread over seeds "
            "does not tell what other blocks would give.",
            "Each sensor's minute is read whole by a small perceptron (32 features) instead of step by step by a "
            "recurrent network, which takes some fifty times as long: cycles are aligned, so it matters when something "
            "happens. `lowrank` has rank 4 and width 64.",
            "Thirty epochs, so that ten seeds of all four take minutes on a processor; each report names the methods "
            "that were still improving.",
            "Where one sensor alone tells the wear, equal weights (`late`, `late-probs`) let the seven others outvote "
            "it: compare them with `best-unimodal`.",
        ),
    )
)

register_experiment(
    Experiment(
        name="sets-breast-tcga",
        title="Breast tumours by genes, microRNAs and proteins, none of the last in the test set",
        parts={
            "breast-tcga": part(
                "breast-tcga",
                ("unimodal:mrna", "unimodal:mirna", "early", "m2vae"),
                title="Three subtypes of breast cancer",
                training={"epochs": 100, "batch_size": 32},
            )
        },
        notes=(
            "The proteins of the 70 test tumours were not measured: every test figure, clean ones too, is of a method "
            "that has learned with three modalities and is asked with two. `missing` takes from what is left.",
            "`best-unimodal` decides by the modality that was best on validation, or by the next best where that is "
            "not there, as with proteins in the test.",
            "With 150 tumours for training and validation and 70 for the test, one tumour is 1.4 points. " + SPLIT,
            "No published figure is of this split and this measure: the package that the data come with (mixOmics) "
            "reports balanced error rates in cross-validation.",
        ),
    )
)

register_experiment(
    Experiment(
        name="sets-utd-mhad",
        title="27 actions from a wrist sensor and a skeleton",
        paper="Chen, Jafari and Kehtarnavaz 2015, UTD-MHAD: A Multimodal Dataset for Human Action Recognition",
        parts={
            "utd-mhad": part(
                "utd-mhad",
                ("unimodal:inertial", "unimodal:skeleton"),
                title="UTD-MHAD, people of even number tested",
                steps=32,
                encoders={
                    name: {"name": "mlp", "hidden": [128, 64], "dropout": 0.1} for name in ("inertial", "skeleton")
                },
                training={"epochs": 100},
            )
        },
        published={
            ("utd-mhad", "unimodal:inertial", "clean", 0.0): 0.672,
            ("utd-mhad", "late", "clean", 0.0): 0.791,
        },
        notes=(
            "The authors' classifier reads statistics of the inertial signals and depth images, for which alone they "
            "report 66.1 %; the skeletons here were computed from such images and stand beside no figure of theirs. "
            "Their figure for both stands beside `late`.",
            "Every recording is brought to 32 steps, since people take different time for an action, and read whole by "
            "a perceptron. A recurrent network takes some ten times as long an epoch and learns slowly from 366 "
            "recordings.",
            "Validation is drawn from the people that are trained on, the test is on others: validation is easier. "
            + SPLIT,
        ),
    )
)
