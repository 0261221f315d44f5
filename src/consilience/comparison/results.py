"""What a comparison found, in plain tables: the one thing that every table, figure and page is drawn from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError

if TYPE_CHECKING:
    import polars

    from consilience.report.rank_diagram import Standing

# Every table's columns and what is in them, by the names polars gives its types.
SCHEMAS: dict[str, dict[str, str]] = {
    "values": {
        "set": "String",
        "method": "String",
        "seed": "Int64",
        "corruption": "String",
        "level": "Float64",
        "metric": "String",
        "value": "Float64",
    },
    "trust": {
        "set": "String",
        "method": "String",
        "seed": "Int64",
        "corruption": "String",
        "level": "Float64",
        "modality": "String",
        "trust": "Float64",
    },
    "diagnostics": {
        "set": "String",
        "method": "String",
        "seed": "Int64",
        "corruption": "String",
        "level": "Float64",
        "modality": "String",
        "samples": "Int64",
        "r": "Float64",
        "static": "Boolean",
        "weight": "Float64",
        "trust": "Float64",
        "static_trust": "Float64",
        "loss": "Float64",
        "covariance": "Float64",
        "gap": "Float64",
    },
    "reliability": {
        "set": "String",
        "method": "String",
        "corruption": "String",
        "level": "Float64",
        "bin": "Int64",
        "low": "Float64",
        "high": "Float64",
        "share": "Float64",
        "confidence": "Float64",
        "accuracy": "Float64",
    },
    "differences": {
        "set": "String",
        "corruption": "String",
        "level": "Float64",
        "method": "String",
        "reference": "String",
        "difference": "Float64",
        "low": "Float64",
        "high": "Float64",
        "p": "Float64",
        "p_holm": "Float64",
        "significant": "Boolean",
    },
    "ranks": {"corruption": "String", "level": "Float64", "method": "String", "rank": "Float64", "sets": "Int64"},
    "timings": {
        "set": "String",
        "method": "String",
        "seed": "Int64",
        "training_seconds": "Float64",
        "prediction_seconds": "Float64",
        "parameters": "Int64",
        "epochs": "Int64",
        "device": "String",
    },
    "skipped": {"set": "String", "method": "String", "reason": "String"},
    "failed": {"set": "String", "method": "String", "seed": "Int64", "error": "String"},
}


def empty_table(name: str) -> polars.DataFrame:
    """One of the tables of `Findings` without rows.

    >>> empty_table("skipped").columns
    ['set', 'method', 'reason']
    """
    import polars

    return polars.DataFrame(schema={column: getattr(polars, kind) for column, kind in SCHEMAS[name].items()})


@dataclass
class Findings:
    """A finished comparison.

    Long tables (polars), one row per measurement; level 0 is the clean set and stands under every corruption:

    values       set, method, seed, corruption, level, metric, value
    trust        set, method, seed, corruption, level, modality, trust     mean over test samples; methods with weights
    diagnostics  set, method, seed, corruption, level, modality, samples, r, static, weight, trust, static_trust, loss,
                 covariance, gap      `trust_diagnostics` on the test set; r is null where there is no correlation
    reliability  set, method, corruption, level, bin, low, high, share, confidence, accuracy    pooled over seeds
    differences  set, corruption, level, method, reference, difference, low, high, p, p_holm, significant
                 of the main metric, method − reference, positive is better; low, high: 95 % interval
    ranks        corruption, level, method, rank, sets       mean rank over sets, 1 is best; empty for one set
    timings      set, method, seed, training_seconds, prediction_seconds, parameters, epochs, device
    skipped      set, method, reason            methods that cannot serve a set
    failed       set, method, seed, error       jobs that raised

    best: (set, corruption, level) → the method marked as best, where the difference is significant.
    standings: mean ranks over sets with what tells them apart, over all corruptions, clean, and under each corruption.
    """

    title: str
    command: str
    task: str
    metric: str
    larger_is_better: bool
    reference: str
    sets: dict[str, dict[str, Any]]  # name → DataSet.describe()
    methods: list[str]
    corruptions: list[str]
    levels: list[float]
    seeds: list[int]
    values: polars.DataFrame
    trust: polars.DataFrame
    reliability: polars.DataFrame
    differences: polars.DataFrame
    ranks: polars.DataFrame
    timings: polars.DataFrame
    skipped: polars.DataFrame
    failed: polars.DataFrame
    diagnostics: polars.DataFrame = field(default_factory=lambda: empty_table("diagnostics"))
    best: dict[tuple[str, str, float], str] = field(default_factory=dict)
    standings: list[Standing] = field(default_factory=list)
    papers: dict[str, str] = field(default_factory=dict)  # method → paper, where it has one
    notes: list[str] = field(default_factory=list)  # sentences a reader must know, such as too few seeds
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    created: str = ""

    def __post_init__(self) -> None:
        """Check every table's columns once; a frame without any stands for a table without rows."""
        import polars

        for name, schema in SCHEMAS.items():
            table = getattr(self, name)
            if not table.columns:
                setattr(self, name, empty_table(name))
                continue
            absent = [column for column in schema if column not in table.columns]
            if absent:
                raise InputError(f"findings: the table {name!r} lacks {', '.join(absent)}; it has {table.columns}")
            if "level" in schema:  # whole numbers in one table and fractions in another would not meet in a join
                setattr(self, name, table.with_columns(polars.col("level").cast(polars.Float64)))
