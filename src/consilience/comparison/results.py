"""The results of a comparison as plain data: every table, figure and page is drawn from these.

`Findings` holds the long tables, `Choice` the chosen method, `Block` the main table of one set over seeds, `TrustBlock`
what was measured of trust, `ContributionBlock` what modalities contribute, `Standing` the mean ranks over several sets.
They are computed by `comparison.gather_results`, `comparison.choosing`, `comparison.summary` and
`comparison.modality_contributions`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from consilience.comparison.chosen_method import Choice
from consilience.core.correlation import fisher_interval
from consilience.core.errors import InputError
from consilience.evaluation.contributions import MeanContributions

if TYPE_CHECKING:
    import polars

ALPHA = 0.05
CLEAN, EVERYTHING = "clean", "all corruptions"
_COLUMNS = {
    "values": "set method seed corruption level metric value",
    "trust": "set method seed corruption level modality trust",
    "hit_trust": "set method seed corruption level modality sound hit",
    "confusion": "set method actual predicted share samples",
    "diagnostics": "set method seed corruption level modality samples r static weight trust static_trust loss "
    "covariance gap",
    "reliability": "set method corruption level bin low high share confidence accuracy",
    "differences": "set corruption level method reference difference low high p p_holm significant",
    "ranks": "corruption level method rank sets",
    "timings": "set method seed training_seconds prediction_seconds parameters epochs device",
    "contributions": "set method seed metric modality contribution half_width none all samples",
    "interactions": "set method seed first second interaction half_width",
    "costs": "set method seed metric modality corruption level cost half_width clean samples",
    "skipped": "set method reason",
    "failed": "set method seed error",
}
# The type of a column by the names polars gives them; the others are Float64.
_TYPES = {
    **dict.fromkeys(["set", "method", "corruption", "metric", "modality", "first", "second"], "String"),
    **dict.fromkeys(["reference", "device", "reason", "error", "actual", "predicted"], "String"),
    **dict.fromkeys(["seed", "samples", "bin", "sets", "parameters", "epochs"], "Int64"),
    **dict.fromkeys(["static", "significant"], "Boolean"),
}
SCHEMAS: dict[str, dict[str, str]] = {
    name: {column: _TYPES.get(column, "Float64") for column in columns.split()} for name, columns in _COLUMNS.items()
}


def empty_table(name: str) -> polars.DataFrame:
    """Return one of the tables of `Findings` without rows.

    >>> empty_table("skipped").columns
    ['set', 'method', 'reason']
    """
    import polars

    return polars.DataFrame(schema={column: getattr(polars, kind) for column, kind in SCHEMAS[name].items()})


@dataclass
class Findings:
    """The results of a comparison.

    Long tables (polars), one row per measurement; level 0 is the clean set and stands under every corruption:

    values       set, method, seed, corruption, level, metric, value
    trust        set, method, seed, corruption, level, modality, trust     mean over test samples; methods with weights
    hit_trust    set, method, seed, corruption, level, modality, sound, hit     mean trust in a modality over the test
                 samples in which it is sound, and over those in which it was corrupted
    confusion    set, method, actual, predicted, share, samples     of the chosen method on clean test samples of all
                 seeds together; share: of the samples of the actual class
    diagnostics  set, method, seed, corruption, level, modality, samples, r, static, weight, trust, static_trust, loss,
                 covariance, gap      `trust_diagnostics` on the test set; r is null where there is no correlation
    reliability  set, method, corruption, level, bin, low, high, share, confidence, accuracy    pooled over seeds
    differences  set, corruption, level, method, reference, difference, low, high, p, p_holm, significant
                 of the main metric, method − reference, positive is better; low, high: 95 % interval
    ranks        corruption, level, method, rank, sets       mean rank over sets, 1 is best; empty for one set
    timings      set, method, seed, training_seconds, prediction_seconds, parameters, epochs, device
    contributions  set, method, seed, metric, modality, contribution, half_width, none, all, samples
                 Shapley values of the metric on clean test samples; half_width: of the 95 % interval over samples
    interactions set, method, seed, first, second, interaction, half_width    of pairs of modalities
    costs        set, method, seed, metric, modality, corruption, level, cost, half_width, clean, samples
                 how much worse the main metric is on clean test samples if one modality is missing in all of them, or
                 corrupted in all; positive: worse; half_width: of the 95 % interval over samples, where it has one
    skipped      set, method, reason            methods that cannot serve a set
    failed       set, method, seed, error       jobs that raised

    best: (set, corruption, level) → the method marked as best, where the difference is significant.
    choices: set → the method that was chosen by validation samples, what was published, and how sure the choice is.
    standings: mean ranks over sets with their tests, over all corruptions, clean, and under each corruption.
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
    contributions: polars.DataFrame = field(default_factory=lambda: empty_table("contributions"))
    interactions: polars.DataFrame = field(default_factory=lambda: empty_table("interactions"))
    hit_trust: polars.DataFrame = field(default_factory=lambda: empty_table("hit_trust"))
    confusion: polars.DataFrame = field(default_factory=lambda: empty_table("confusion"))
    costs: polars.DataFrame = field(default_factory=lambda: empty_table("costs"))
    best: dict[tuple[str, str, float], str] = field(default_factory=dict)
    choices: dict[str, Choice] = field(default_factory=dict)
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


@dataclass(frozen=True)
class Condition:
    """A corruption at a level. Level 0 is the clean set, the same under every corruption."""

    corruption: str
    level: float

    @property
    def clean(self) -> bool:
        """Whether nothing is corrupted here."""
        return self.level == 0

    @property
    def words(self) -> str:
        """The condition as a sentence names it."""
        return "clean" if self.clean else f"{self.corruption} at level {self.level:g}"


@dataclass(frozen=True)
class Difference:
    """Of the main metric, method − reference, positive is better: its 95 % interval and corrected p-value."""

    value: float
    low: float
    high: float
    p_holm: float
    significant: bool


@dataclass(frozen=True)
class Cell:
    """One method under one condition, over seeds; std is None for one seed."""

    mean: float
    std: float | None
    median: float
    worst: float
    seeds: int
    best: bool = False
    difference: Difference | None = None

    @property
    def mark(self) -> str:
        """▲ significantly better than the reference, ▼ significantly worse, otherwise nothing."""
        if self.difference is None or not self.difference.significant:
            return ""
        return "▲" if self.difference.value > 0 else "▼"


@dataclass(frozen=True)
class Row:
    """One method in one set: its cells, and why there are none or fewer."""

    method: str
    cells: tuple[Cell | None, ...]
    fate: str = ""  # "", "skipped", "failed" or "not run"
    reason: str = ""
    reference: bool = False


@dataclass(frozen=True)
class Block:
    """The main table of one set."""

    set: str
    metric: str
    conditions: tuple[Condition, ...]
    rows: tuple[Row, ...]

    def at(self, method: str, condition: Condition) -> Cell | None:
        """Return the cell of a method under a condition."""
        for row in self.rows:
            if row.method == method:
                return row.cells[self.conditions.index(condition)]
        return None

    @property
    def remarks(self) -> list[str]:
        """A sentence for every method that was skipped or failed, for all or some seeds."""
        return [f"`{row.method}`: {row.reason}" for row in self.rows if row.reason]


@dataclass(frozen=True)
class Lead:
    """The methods under one condition from the best mean to the worst, and those that share the best."""

    condition: Condition
    ranked: tuple[tuple[Row, Cell], ...]
    tied: tuple[tuple[Row, Cell], ...]

    @property
    def beaten(self) -> int:
        """How many methods are significantly worse than the reference."""
        return sum(cell.mark == "▼" for _, cell in self.ranked)


@dataclass(frozen=True)
class MeasuredTrust:
    """Trust diagnostics of one modality of one method under one condition, over seeds.

    r is the correlation of the method's weights with the modality's own loss, None where its weights are static.
    """

    modality: str
    seeds: int
    samples: float
    r: float | None
    r_std: float | None
    r_worst: float | None
    positive: int
    static: bool
    trust: float
    static_trust: float
    loss: float
    covariance: float
    gap: float

    @property
    def fails(self) -> bool:
        """Whether r > 0 beyond chance: in every seed, and for a single seed beyond Fisher's interval."""
        if self.r is None or self.r <= 0:
            return False
        if self.seeds == 1:
            return fisher_interval(self.r, round(self.samples))[0] > 0
        return self.positive == self.seeds


@dataclass(frozen=True)
class TrustRow:
    """One method: what was measured under each condition, one entry per modality; empty where nothing was."""

    method: str
    cells: tuple[tuple[MeasuredTrust, ...], ...]

    @property
    def static(self) -> bool:
        """Whether its weights depend only on which modalities are present."""
        return all(measured.static for cell in self.cells for measured in cell)

    def largest(self, place: int) -> MeasuredTrust | None:
        """Return the modality with the largest r under a condition, which decides whether theorem 2 applies."""
        known = [measured for measured in self.cells[place] if measured.r is not None]
        return max(known, key=lambda measured: measured.r or 0.0) if known else None

    @property
    def met(self) -> list[tuple[int, int]]:
        """For each condition, on how many modalities r ≤ 0, and how many have an r."""
        known = [[measured.r for measured in cell if measured.r is not None] for cell in self.cells]
        return [(sum(r <= 0 for r in cell), len(cell)) for cell in known]

    @property
    def worst(self) -> int:
        """The condition with the largest r of any modality."""
        largest = [self.largest(place) for place in range(len(self.cells))]
        heights = [-2.0 if measured is None or measured.r is None else measured.r for measured in largest]
        return heights.index(max(heights))


@dataclass(frozen=True)
class TrustBlock:
    """What was measured of trust on one set."""

    set: str
    conditions: tuple[Condition, ...]
    rows: tuple[TrustRow, ...]


@dataclass(frozen=True)
class ContributionRow:
    """What each modality contributes to one method, over seeds; `stds` are None for one seed."""

    method: str
    seeds: int
    mean: MeanContributions
    stds: tuple[float | None, ...]


@dataclass(frozen=True)
class ContributionBlock:
    """What each modality contributes on one set; `leader` is the best method on clean data by its mean."""

    set: str
    metric: str
    modalities: tuple[str, ...]
    rows: tuple[ContributionRow, ...]
    leader: str
    error: bool = False  # whether less is better, so that contributions are to the negative


@dataclass(frozen=True)
class Standing:
    """Methods ranked on every set under one condition, from the best mean rank to the worst; 1 is best.

    Attributes:
        label: `CLEAN`, `EVERYTHING` or a corruption.
        methods, ranks: The methods and their mean ranks.
        sets: The number of sets.
        critical: How far apart two mean ranks must lie for their methods to differ, by Nemenyi's test.
        p: Of Friedman's test that all methods are alike.
        left_out: Methods without a rank, because they do not serve every set.
    """

    label: str
    methods: tuple[str, ...]
    ranks: tuple[float, ...]
    sets: int
    critical: float
    p: float
    left_out: tuple[str, ...] = ()

    @property
    def differ(self) -> bool:
        """Whether Friedman's test finds that not all methods are alike; only then any two are compared."""
        return self.p <= ALPHA

    @property
    def hopeless(self) -> bool:
        """Whether the sets are too few for any two methods to differ significantly."""
        return self.critical >= len(self.methods) - 1

    @property
    def bars(self) -> list[tuple[int, int]]:
        """First and last place of every longest run of methods that do not differ significantly.

        >>> Standing("clean", ("a", "b", "c", "d"), (1.2, 2.0, 2.9, 3.9), 20, 1.05, 0.001).bars
        [(0, 1), (1, 2), (2, 3)]
        """
        last = len(self.methods) - 1
        if not self.differ:
            return [(0, last)]
        found: list[tuple[int, int]] = []
        for first, rank in enumerate(self.ranks):
            end = max(place for place in range(first, last + 1) if self.ranks[place] - rank <= self.critical)
            if end > first and (not found or end > found[-1][1]):
                found.append((first, end))
        return found

    def rank_of(self, method: str) -> float:
        """Return the mean rank of a method."""
        return self.ranks[self.methods.index(method)]

    def worse_than(self, method: str) -> list[str]:
        """Return the methods that this one is significantly better than."""
        if not self.differ:
            return []
        return [other for other, rank in zip(self.methods, self.ranks) if rank - self.rank_of(method) > self.critical]

    @property
    def where(self) -> str:
        """The condition in words."""
        return {CLEAN: "on clean data", EVERYTHING: "over all corruptions"}.get(self.label, f"under {self.label}")
