"""Progressive fusion on spoken opinions (table 8): on CMU-MOSI's utterance features, and on the public sequence files.

Of the paper's five models two are built on a pretrained language model and fine-tune it (MAG on BERT and on XLNet); the
public files hold no words to feed it. The others are compared: FLSTM, LFN and MIM, each against its loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from consilience.comparison.experiments.experiment import Claim, Experiment, Part, register_experiment

if TYPE_CHECKING:
    from consilience.comparison.comparison import Comparison
    from consilience.comparison.results import Findings
    from consilience.report.document import Section, TextTable


class Figures(NamedTuple):
    """One line of table 8."""

    acc7: float
    acc2_nonzero: float
    mae: float
    pearson: float


# As printed; the line of MIM's loop on CMU-MOSEI is lost in the copy of the paper that is at hand.
TABLE8: dict[tuple[str, str], Figures] = {
    ("mosi", "ef-lstm"): Figures(0.312, 0.759, 1.01, 0.64),
    ("mosi", "pro:ef-lstm"): Figures(0.318, 0.768, 1.0, 0.66),
    ("mosi", "lowrank"): Figures(0.312, 0.766, 1.01, 0.62),
    ("mosi", "pro:lowrank"): Figures(0.321, 0.772, 1.01, 0.62),
    ("mosi", "mim"): Figures(0.455, 0.817, 0.72, 0.75),
    ("mosi", "pro:mim"): Figures(0.463, 0.834, 0.71, 0.77),
    ("mosei", "ef-lstm"): Figures(0.441, 0.751, 0.72, 0.51),
    ("mosei", "pro:ef-lstm"): Figures(0.448, 0.758, 0.72, 0.52),
    ("mosei", "lowrank"): Figures(0.449, 0.753, 0.72, 0.52),
    ("mosei", "pro:lowrank"): Figures(0.461, 0.764, 0.71, 0.52),
    ("mosei", "mim"): Figures(0.533, 0.791, 0.59, 0.71),
}
MODELS = {"ef-lstm": "FLSTM", "lowrank": "LFN", "mim": "MIM"}
# Utterance vectors have no steps for an LSTM to run over: concatenation stands in for it.
ON_VECTORS = {"concat": "ef-lstm", "lowrank": "lowrank", "mim": "mim"}
CONTROLS = ("wide:", "unimodal-feedback:")
SETS = {"mosi": "CMU-MOSI", "mosei": "CMU-MOSEI"}


def kinds_of(bases: Iterable[str], kinds: tuple[str, ...] = ("", "pro:")) -> list[str]:
    """Every base followed by its other forms."""
    return [f"{kind}{base}" for base in bases for kind in kinds]


def utterances() -> Part:
    """Positive or negative from one vector of text, voice and face: each model, its loop and both controls."""
    full = {
        "data": "mosi",
        "methods": kinds_of(ON_VECTORS, ("", "pro:", *CONTROLS)),
        "reference": "concat",
        "levels": (0,),
        "seeds": 10,
    }
    quick = {"methods": kinds_of(ON_VECTORS), "seeds": 3, "training": {"epochs": 20}}
    return Part(full, quick, "CMU-MOSI, utterance features")


def sequences(name: str) -> Part:
    """The score from −3 to 3 from sequences of words, voice and face."""
    full = {
        "data": f"{name}-sequences",
        "methods": kinds_of(MODELS),
        "reference": "ef-lstm",
        "metric": "acc2_nonzero",
        "levels": (0,),
        "seeds": 10,
        "training": {"epochs": 40, "patience": 8, "clip": 1.0},
    }
    quick = {
        "seeds": 2,
        "settings": {method: {"hidden": 32} for method in kinds_of(["ef-lstm"])},
        "training": {"epochs": 3 if name == "mosi" else 1, "clip": 1.0},  # CMU-MOSEI is ten times as large
    }
    return Part(full, quick, f"{SETS[name]}, sequences")


def claims() -> tuple[Claim, ...]:
    """That every loop improves its base; on utterance features, and where there are sequences, on those."""

    def improves(base: str, row: str, part: str, name: str, what: str) -> Claim:
        before, after = (TABLE8.get((name, one)) for one in (row, f"pro:{row}"))
        assert before is not None
        printed = f"{100 * before.acc2_nonzero:.1f} → {'?' if after is None else f'{100 * after.acc2_nonzero:.1f}'} %"
        says = f"Progressive fusion improves {MODELS[row]} on {what} of {SETS[name]} (published: {printed})"
        return Claim(says, part, f"pro:{base}", base)

    on_vectors = (improves(base, row, "utterances", "mosi", "utterance features") for base, row in ON_VECTORS.items())
    on_sequences = (improves(base, base, name, name, "sequences") for name in SETS for base in MODELS)
    return (*on_vectors, *on_sequences)


def all_metrics(comparisons: Mapping[str, Comparison]) -> list[Section]:
    """The paper's four metrics of every model on sequences, where there are any."""
    from consilience.report.document import Section

    tables = tuple(metrics_table(name, comparisons[name].findings) for name in SETS if name in comparisons)
    words = (
        "Mean ± standard deviation over seeds, and the paper's figures. Two-class accuracy is without the samples "
        "whose score is 0; the paper does not say how it counts them.",
    )
    return [Section("metrics", "All four metrics of the paper", words, tables)] if tables else []


def metrics_table(name: str, findings: Findings) -> TextTable:
    """Methods × metrics, each with the published figures beside it."""
    from consilience.report.document import TextTable
    from consilience.report.seed_summary import over_seeds
    from consilience.report.wording import NOTHING, Scale, say_metric

    columns, header = [], ["method"]
    for metric in Figures._fields:
        measured = over_seeds(findings, metric).filter(level=0.0)
        scale = Scale.of(metric, measured["std"].to_list())
        ours = {row["method"]: scale.pair(row["mean"], row["std"]) for row in measured.iter_rows(named=True)}
        said = {one: getattr(TABLE8[name, one], metric) for one in findings.methods if (name, one) in TABLE8}
        header += [f"{say_metric(metric)}{',' * bool(scale.unit)}{scale.unit}", "published"]
        columns += [
            [ours.get(method, NOTHING) for method in findings.methods],
            [scale.number(said.get(method)) for method in findings.methods],
        ]
    return TextTable(SETS[name], tuple(header), tuple(zip(findings.methods, *columns)))


register_experiment(
    Experiment(
        name="progressive-table8",
        title="Spoken opinions: does progressive fusion improve FLSTM, LFN and MIM?",
        paper="Shankar, Thompson and Fiterau 2022, Progressive Fusion for Multimodal Integration, table 8",
        parts={"utterances": utterances(), **{name: sequences(name) for name in SETS}},
        published={
            **{
                ("utterances", f"{kind}{base}", "clean", 0.0): TABLE8["mosi", f"{kind}{row}"].acc2_nonzero
                for base, row in ON_VECTORS.items()
                for kind in ("", "pro:")
            },
            **{(name, method, "clean", 0.0): said.acc2_nonzero for (name, method), said in TABLE8.items()},
        },
        claims=claims(),
        notes=(
            "FLSTM is defined nowhere in the paper; it is taken for EF-LSTM. On utterance features, one vector a "
            "sample, there is nothing for an LSTM to run over, and concatenation (`concat`) stands in for it: what "
            "stands beside it is the paper's figure for sequences.",
            "The utterance features come from networks that were trained on the labels of the training part (Poria et "
            "al.), so that training samples say little of how far a modality is to be trusted; positives are half of "
            "the training part and more of the test part.",
            "MAG on BERT and on XLNet is left out: it needs the words themselves and fine-tunes a language model, the "
            "public sequence files hold GloVe vectors. MIM has GRUs or perceptrons here where the paper has BERT: its "
            "published figures are those of another text encoder.",
            "LFN has GRUs for all three modalities on sequences, and perceptrons on utterance features.",
            "The line of MIM's loop on CMU-MOSEI is lost in the copy of the paper that is at hand.",
        ),
        more=all_metrics,
    )
)
