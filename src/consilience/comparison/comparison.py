"""Which fusion method should I use on my data? Train the methods, corrupt the test set, compare with statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from consilience.comparison.chosen_method import Choice
from consilience.comparison.engine import run_jobs
from consilience.comparison.gather_results import differences_to, gather_findings
from consilience.comparison.plan import EXTENDABLE, Job, Plan, Source, digest, resolve
from consilience.comparison.progress import announce
from consilience.comparison.publishing import keep_best, name_published, read_finished
from consilience.comparison.quick_default import check_seeds_of_folds, default_methods, default_seeds
from consilience.comparison.results import Findings
from consilience.comparison.sources import digest_of_file
from consilience.comparison.stacked_jobs import train_together
from consilience.comparison.store import Store, writing
from consilience.comparison.summary import trust_over_seeds
from consilience.core.errors import ConsilienceError, InputError, TrainingError, unknown_name
from consilience.core.file_names import file_name
from consilience.core.settings import Interval, NonNegativeFloat, NonNegativeInt, PositiveInt, checked
from consilience.evaluation import find_metric
from consilience.version import __version__

if TYPE_CHECKING:
    import polars

    from consilience.report.result_tables import TableFormat

REPORT = "report.html"
# The default corruption of each modality's kind, and missing modalities.
DEFAULT_CORRUPTIONS = (None, "missing")
_STAMP = "report.stamp"


class Comparison:
    """A finished comparison: `table()`, `statistics()`, `report()`, `choice`, and `best`, the folder of its model."""

    def __init__(self, store: Store, findings: Findings):
        self.store, self.findings = store, findings

    def __repr__(self) -> str:
        count = len(self.findings.methods)
        methods = "one method" if count == 1 else f"{count} methods"
        return f"Comparison of {methods} on {', '.join(self.findings.sets)} in {self.folder}"

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.store.folder

    @property
    def bests(self) -> dict[str, Path]:
        """Set → the folder of the published model, for `consilience.load`; see `choices` for how it was trained."""
        folders = {name: self.store.best(name, self.findings.sets) for name in self.findings.sets}
        return {name: folder for name, folder in folders.items() if folder.is_dir()}

    @property
    def best(self) -> Path:
        """The folder of the published model, where one set was compared."""
        if len(self.bests) != 1:
            raise InputError(f"{len(self.bests)} sets have a best model: see bests, which is by set")
        return next(iter(self.bests.values()))

    @property
    def choices(self) -> dict[str, Choice]:
        """Set → the method that was chosen by validation samples, how sure that is, and what `best/` holds."""
        return self.findings.choices

    @property
    def choice(self) -> Choice:
        """The chosen method, where one set was compared."""
        if len(self.choices) != 1:
            raise InputError(f"a method was chosen on {len(self.choices)} sets: see choices, which is by set")
        return next(iter(self.choices.values()))

    @checked
    def table(self, format: TableFormat = "console", *, worst: bool = False) -> Any:
        """Return the table: "console" to be printed, "markdown" or "latex" as text; worst: add the worst seed."""
        from consilience.report.result_tables import main_table

        return main_table(self.findings, format, worst=worst)

    @checked
    def statistics(self, reference: str | None = None, methods: Iterable[str] | None = None) -> polars.DataFrame:
        """Return differences to the reference with intervals and corrected p-values, one row per condition.

        A positive difference is better than the reference, also of a loss or an error, where smaller is better.

        Args:
            reference: Another than the comparison's own.
            methods: Only these are compared, so that the correction counts no others.
        """
        if reference is None and methods is None:
            return self.findings.differences
        reference = reference or self.findings.reference
        asked = set(self.findings.methods if methods is None else (reference, *methods))
        for name in (reference, *asked):
            if name not in self.findings.methods:
                raise unknown_name("method", name, self.findings.methods, "It was not compared here")
        written = self.store.read_plan()
        assert written is not None
        finished = read_finished(self.store, written)
        good = [(job, result) for job, result in finished if job.method in asked and not result.failed]
        return differences_to(reference, good, written, find_metric(self.findings.metric))[0]

    def trust(self) -> polars.DataFrame:
        """Return trust diagnostics over seeds, one row per method, condition and modality; see docs/trust.md.

        r is the correlation of the method's weights with the modality's own loss, wanted ≤ 0; null where static.
        """
        return trust_over_seeds(self.findings)

    @checked
    def report(self, path: str | Path | None = None) -> Path:
        """Write the report page and its figures into a folder, by default the run folder, and return its path."""
        from consilience.report.page import write_report

        folder = Path(path) if path is not None else self.folder
        with writing(folder):
            return write_report(self.findings, folder)

    def write_cards(self) -> None:
        """Write what was measured into the README.md of each model in `best/`, where it is not there yet."""
        from consilience.report.card_results import card_of_best
        from consilience.training.model_card import write_card
        from consilience.training.model_folder import read_description

        for name, folder in self.bests.items():
            results = card_of_best(self.findings, name)
            if results is not None and folder.resolve().is_relative_to(self.folder.resolve()):
                with writing(self.folder):
                    write_card(folder, read_description(folder), results)


@checked
def compare(
    data: Any,
    methods: Iterable[str] | None = None,
    *,
    corruption: str | Mapping[str, str] | Iterable[Any] | None = None,
    levels: Iterable[NonNegativeFloat] = (0, 5, 10),
    seeds: PositiveInt | None = None,
    repeats: PositiveInt = 1,
    # Whole numbers stay what they are: the names of results depend on them.
    probability: Annotated[int | float, Interval(0, 1)] = 0.5,
    metric: str | None = None,
    reference: str | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    encoders: Mapping[str, Any] | Literal["auto"] | None = "auto",
    training: Mapping[str, Any] | None = None,
    class_weight: Mapping[Any, float] | str | None = None,
    tune: NonNegativeInt = 0,
    choose_by: str | None = None,
    refit: bool = True,
    out: str | Path | None = None,
    jobs: PositiveInt = 1,
    side_by_side: bool = False,
    cluster: str | None = None,
    verbose: bool | NonNegativeInt = 1,
    command: str | None = None,
    thorough: bool = False,
    **loading: Any,
) -> Comparison:
    """Train methods over seeds, measure them clean and corrupted, and compare.

    Args:
        data: A name, a path, a `DataSet`, or several of them.
        methods: Names. None: a few strong methods and baselines, those of `QUICK_METHODS` that serve the data.
            NAME@LABEL is a variant of a method, with the settings given for NAME@LABEL.
        corruption: A name, a mapping modality → name, which corrupts only what it names, or several; by default noise
            on numbers and blanks in text, and missing modalities.
        levels: Of corruption; 0, the clean set, is always among them.
        seeds: How often each method is trained; by default 5 times, and 10 times if methods are named or thorough.
            With `folds=K`, of which each seed tests one, a multiple of K.
        repeats: Draws of the noise for every seed. On a small test set one draw may move an accuracy by more than
            methods differ, and predicting again is cheaper than training again.
        probability: With which a modality of a sample is corrupted.
        metric: What the table shows and tests; accuracy or mse by default.
        reference: The method that the others are compared with; `late` by default.
        settings: Method → its settings.
        encoders: Modality → encoder. "auto": the encoder `auto` for vectors of a classification. None: the default of
            every kind.
        training: Settings of `Trainer`.
        class_weight: "balanced" or class → weight, in the training of every method.
        tune: Trials of random search for every method.
        choose_by: The metric by which a method is chosen for `best/`: its mean over all seeds on validation samples,
            clean and corrupted. By default the log-loss (nll), or the squared error (mse) of a regression.
        refit: Whether `best/` holds the chosen method trained once more with seed 0 on the train and validation parts,
            for as many steps as early stopping found. Otherwise it is the model of the seed with the median score.
        out: The run folder. The same call continues where an earlier one stopped; more methods or seeds extend it.
        jobs: Processes.
        side_by_side: Train a method's seeds as one batched model where it allows that, for a GPU.
        cluster: "ray" for a Ray cluster.
        verbose: 0 for no progress.
        command: The command to show in the report.
        thorough: Where no methods are named, compare every method that serves the data, with 10 seeds.
        loading: Options of `load_data`.

    Returns:
        The finished comparison.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     comparison = compare(
        ...         "digits", ["late", "concat"], corruption="gaussian", levels=(0, 5), seeds=2,
        ...         training={"epochs": 1}, out=f"{folder}/run", verbose=0,
        ...     )
        ...     statistics = comparison.statistics()
        >>> statistics["method"].to_list(), statistics["level"].to_list()
        (['concat', 'concat'], [0.0, 5.0])
    """
    given = data if isinstance(data, list | tuple) else [data]
    corruptions: tuple[Any, ...] = DEFAULT_CORRUPTIONS
    if corruption is not None:
        corruptions = (corruption,) if isinstance(corruption, str | Mapping) else tuple(corruption)
    sources = tuple(Source.of(each, loading) for each in given)
    if seeds is None:
        seeds = default_seeds(methods is not None, thorough, [source.folds for source in sources])
    else:
        check_seeds_of_folds(seeds, {source.label: source.folds for source in sources})
    plan = Plan(
        sources=sources,
        methods=default_methods(thorough, settings or {}) if methods is None else tuple(methods),
        corruptions=corruptions or DEFAULT_CORRUPTIONS,
        levels=tuple(levels),
        seeds=seeds,
        repeats=repeats,
        probability=probability,
        metric=metric,
        reference=reference or "",
        settings=settings or {},
        encoders=encoders or {},
        training=training or {},
        class_weight=class_weight,
        tune=tune,
        choose_by=choose_by,
        refit=refit,
    )
    asked = plan.asked()
    store = Store(default_folder(plan, asked) if out is None else out)
    written = store.settle(asked, lambda: resolve(plan, asked, command))
    todo = [Job(**job) for job in written["jobs"]]
    if open_jobs := [job for job in todo if not store.done(job)]:
        if verbose:
            announce(written, open_jobs, quick=methods is None and not thorough, workers=jobs)
        for label in written["sets"]:
            store.check_published(store.best(label, written["sets"]))
    run = partial(run_jobs, plan=plan, store=store, workers=jobs, cluster=cluster, verbose=verbose)
    if side_by_side:
        train_together(todo, plan, store, verbose)
    run(todo)
    keep_best(store, written, run)
    return conclude(store, written)


@checked
def reopen(folder: str | Path) -> Comparison:
    """Return the comparison in a run folder, with the jobs that are finished."""
    store = Store(folder)
    written = store.read_plan()
    if written is None:
        raise InputError(f"{folder} holds no comparison: there is no readable plan.json")
    if (experiment := written["asked"].get("experiment")) is not None:
        raise InputError(
            f"{folder} holds the experiment {experiment!r}, no comparison of methods: its page is drawn again by "
            f"`{written['command']}`"
        )
    if damaged := store.damaged(Job(**job) for job in written["jobs"]):
        raise InputError(
            f"{folder} is not whole: {len(damaged)} of its results, such as {damaged[0].name}, cannot be read. "
            "If it is a copy, copy it again; or run the comparison again, which repeats these jobs and keeps the others"
        )
    return conclude(store, written)


def conclude(store: Store, written: Mapping[str, Any]) -> Comparison:
    """Read the results, and write the report unless it shows these results already."""
    try:
        return _conclude(store, written)
    except (ConsilienceError, OSError):
        raise
    except Exception as error:  # a plan or a result that was changed may hold anything
        raise InputError(
            f"the results in {store.folder} cannot be shown ({type(error).__name__}: {error}): its plan or a result "
            "was changed after it was written. If it is a copy, copy it again; or run the comparison in another folder"
        ) from error


def _conclude(store: Store, written: Mapping[str, Any]) -> Comparison:
    finished = read_finished(store, written)
    if not finished:
        raise InputError(f"{store.folder} holds no finished result yet: run the comparison first")
    if all(result.failed for _, result in finished):
        job, result = finished[0]
        raise TrainingError(f"every job failed; the first, {job.describe()}, with {result.about['error']}")
    findings = gather_findings(written, finished)
    findings.choices = {
        name: name_published(store, written, finished, choice) for name, choice in findings.choices.items()
    }
    comparison = Comparison(store, findings)
    published = [asdict(choice.published) if choice.published else None for choice in findings.choices.values()]
    stamp = digest([written, [[job.key, result.failed] for job, result in finished], published, __version__])
    comparison.write_cards()
    drawn = store.folder / _STAMP
    if not drawn.is_file() or drawn.read_bytes() != _mark_page(store, stamp).encode():
        with store.alone():
            store.check_unchanged(written)
            comparison.report()
            store.write_text(_STAMP, _mark_page(store, stamp))
    return comparison


def _mark_page(store: Store, stamp: str) -> str:
    """What results a page shows, and a digest of it: a page that was copied in part is drawn again."""
    page = store.folder / REPORT
    return f"{stamp} {digest_of_file(page) if page.is_file() else 'no page'}"


def default_folder(plan: Plan, asked: Mapping[str, Any]) -> Path:
    """`runs/SETS-xxxxxxxx`, where the letters change with every setting that results depend on."""
    fixed = {name: value for name, value in asked.items() if name not in EXTENDABLE}
    return Path("runs") / file_name(f"{'-'.join(source.label for source in plan.sources)}-{digest(fixed)[:8]}")
