"""Which fusion method should I use on my data? Trains the methods, corrupts the test set, and says, with statistics."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.comparison.engine import run_jobs
from consilience.comparison.plan import EXTENDABLE, Job, Plan, Source, digest, jobs_of, registered_name
from consilience.comparison.store import Store, writing
from consilience.comparison.summary import Finished, differences_to, gather_findings, merits
from consilience.comparison.together import train_together
from consilience.data import DataSet
from consilience.errors import InputError, TrainingError, unknown_name
from consilience.evaluation import find_metric
from consilience.report.findings import Findings
from consilience.report.tables import TableFormat
from consilience.version import __version__

if TYPE_CHECKING:
    from consilience.methods import Spec

REPORT = "report.html"
# What suits each modality's kind, and a sensor that says nothing.
DEFAULT_CORRUPTIONS = (None, "missing")
_STAMP = "report.stamp"
# Libraries that figures depend on. Fabric comes in a distribution of its own, or inside one of the two others.
_RECORDED = ("torch", "numpy", "scikit-learn", "lightning-fabric", "lightning", "pytorch-lightning")


class Comparison:
    """A finished comparison: `table()`, `statistics()`, `report()`, and `best`, the folder of the best model."""

    def __init__(self, store: Store, findings: Findings):
        self.store, self.findings = store, findings

    def __repr__(self) -> str:
        return f"Comparison of {len(self.findings.methods)} methods on {', '.join(self.findings.sets)} in {self.folder}"

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.store.folder

    @property
    def bests(self) -> dict[str, Path]:
        """Set → the folder of the model that was best on validation, for `consilience.load`."""
        folders = {name: best_folder(self.store, name, len(self.findings.sets)) for name in self.findings.sets}
        return {name: folder for name, folder in folders.items() if folder.is_dir()}

    @property
    def best(self) -> Path:
        """The folder of the best model, where one set was compared."""
        if len(self.bests) != 1:
            raise InputError(f"{len(self.bests)} sets have a best model: see bests, which is by set")
        return next(iter(self.bests.values()))

    def table(self, format: TableFormat = "console", *, worst: bool = False) -> Any:
        """The main table: "console" for rich to print, "markdown" or "latex" as text; worst: add the worst seed."""
        from consilience.report.tables import main_table

        return main_table(self.findings, format, worst=worst)

    def statistics(self, reference: str | None = None, methods: Sequence[str] | None = None) -> Any:
        """Differences to the reference with intervals and corrected p-values, one row per condition (polars).

        reference: another than the comparison's own; methods: only these against it, so that the correction counts no
        others.
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
        good = [(job, one) for job, one in read_finished(self.store, written) if job.method in asked and not one.failed]
        return differences_to(reference, good, written, find_metric(self.findings.metric))

    def trust(self) -> Any:
        """Trust diagnostics over seeds, one row per method, condition and modality (polars); see docs/trust.md.

        r is the correlation of the method's weights with the modality's own loss, wanted ≤ 0; null where static.
        """
        from consilience.report.trust import trust_over_seeds

        return trust_over_seeds(self.findings)

    def report(self, path: str | Path | None = None) -> Path:
        """Draw the report page and its figures into a folder, by default the run folder."""
        from consilience.report.page import write_report

        folder = Path(path) if path is not None else self.folder
        with writing(folder):
            return write_report(self.findings, folder)


def compare(
    data: Any,
    methods: Sequence[str] | None = None,
    *,
    corruption: str | Mapping[str, str] | Iterable[Any] | None = None,
    levels: Sequence[float] = (0, 5, 10),
    seeds: int = 10,
    repeats: int = 1,
    probability: float = 0.5,
    metric: str | None = None,
    reference: str | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    encoders: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    tune: int = 0,
    out: str | Path | None = None,
    jobs: int = 1,
    side_by_side: bool = False,
    cluster: str | None = None,
    verbose: int = 1,
    command: str | None = None,
    **loading: Any,
) -> Comparison:
    """Train methods over seeds, measure them clean and corrupted, and compare.

    data: a name, a path, a `DataSet`, or several of them; `loading` goes to `load_data` · methods: names, or None for
    every method that serves the data; NAME@LABEL is a variant of a method, with the settings given for NAME@LABEL ·
    corruption: a name, a mapping modality → name, or several; by default what suits each modality's kind (noise on
    numbers, blanks in text), and modalities gone missing · repeats: draws of the noise for every seed; on a small test
    set one draw may move an accuracy by more than methods differ, and predicting again is cheaper than training again ·
    reference: what the others are compared with, `late` unless told otherwise · training: settings of `Trainer` · tune:
    trials of random search for every method · out: the run folder; the same call goes on where an earlier one stopped ·
    jobs: processes · side_by_side: train a method's seeds as one batched model where it allows that, for a GPU, which
    one small model leaves idle · cluster: "ray".
    """
    given = data if isinstance(data, list | tuple) else [data]
    corruptions: tuple[Any, ...] = DEFAULT_CORRUPTIONS
    if corruption is not None:
        corruptions = (corruption,) if isinstance(corruption, str | Mapping) else tuple(corruption)
    plan = Plan(
        sources=tuple(Source.of(one, loading) for one in given),
        methods=None if methods is None else tuple(methods),
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
        tune=tune,
    )
    asked = plan.asked()
    store = Store(default_folder(plan, asked) if out is None else out)
    store.check(asked)
    written = store.read_plan()
    if written is None or written["asked"] != asked:
        written = resolve(plan, asked, command)
        store.write_plan(written)
    todo = [Job(**job) for job in written["jobs"]]
    run = partial(run_jobs, plan=plan, store=store, workers=jobs, cluster=cluster, verbose=verbose)
    if side_by_side:
        train_together(todo, plan, store, verbose)
    run(todo)
    keep_best(store, written, run)
    return conclude(store, written)


def reopen(folder: str | Path) -> Comparison:
    """The comparison that lies in a run folder, as far as it has come."""
    store = Store(folder)
    written = store.read_plan()
    if written is None:
        raise InputError(f"{folder} holds no comparison: there is no readable plan.json")
    if (experiment := written["asked"].get("experiment")) is not None:
        raise InputError(
            f"{folder} holds the experiment {experiment!r}, no comparison of methods: its page is drawn again by "
            f"`{written['command']}`"
        )
    return conclude(store, written)


def conclude(store: Store, written: Mapping[str, Any]) -> Comparison:
    """Read the results, and draw the report unless it shows just these results already."""
    finished = read_finished(store, written)
    if not finished:
        raise InputError(f"{store.folder} holds no finished result yet: run the comparison first")
    if all(result.failed for _, result in finished):
        job, result = finished[0]
        raise TrainingError(f"every job failed; the first, {job.describe()}, with {result.about['error']}")
    comparison = Comparison(store, gather_findings(written, finished))
    stamp = digest([written, [[job.key, result.failed] for job, result in finished], __version__])
    marker = store.folder / _STAMP
    drawn = marker.exists() and marker.read_text(encoding="utf-8") == stamp and (store.folder / REPORT).exists()
    if not drawn:
        comparison.report()
        store.write_text(_STAMP, stamp)
    return comparison


def read_finished(store: Store, written: Mapping[str, Any]) -> Finished:
    """Every job of a plan that has a result, failed ones included."""
    results = ((job, store.read(job)) for job in (Job(**one) for one in written["jobs"]))
    return [(job, result) for job, result in results if result is not None]


def keep_best(store: Store, written: Mapping[str, Any], run: Callable[[list[Job]], None]) -> None:
    """Publish each set's best model, and of each method keep its best seed's.

    A job may win whose model an earlier call, with another metric, did not keep: it is done again.
    """
    finished = read_finished(store, written)
    ordered = merits(finished, written)
    winners = {source: jobs[0] for source, jobs in ordered.items()}
    lost = [job for job in winners.values() if not store.model(job).is_dir() and not _published(store, job, written)]
    if lost:
        for job in lost:
            store.discard(job)
        run(lost)
    for source, job in winners.items():
        if store.model(job).is_dir():
            store.publish(job, best_folder(store, source, len(written["sets"])))
    kept = {job.key for jobs in ordered.values() for job in jobs}
    store.drop_models(job for job, _ in finished if job.key not in kept)


def best_folder(store: Store, source: str, sets: int) -> Path:
    """Where a set's best model is published."""
    return store.folder / "best" / source if sets > 1 else store.folder / "best"


def _published(store: Store, job: Job, written: Mapping[str, Any]) -> bool:
    marker = best_folder(store, job.source, len(written["sets"])) / "job.key"
    return marker.exists() and marker.read_text(encoding="utf-8") == job.key


def resolve(plan: Plan, asked: Mapping[str, Any], command: str | None) -> dict[str, Any]:
    """Everything about a comparison that must be known before its first job, and again when it is reopened."""
    from consilience import methods as room
    from consilience.comparison.work import label_of

    loaded = {source.label: source.load() for source in plan.sources}
    check_protocol(plan, loaded)
    chosen: dict[str, list[str]] = {}
    skipped: list[dict[str, str]] = []
    for label, data in loaded.items():
        chosen[label], reasons = applicable(plan.methods, plan.reference, data, plan.encoders)
        skipped += [{"set": label, "method": method, "reason": reason} for method, reason in reasons.items()]
    everyone = list(dict.fromkeys(name for names in chosen.values() for name in names))
    if not everyone:
        listed = "; ".join(f"{one['method']}: {one['reason']}" for one in skipped)
        raise InputError(f"compare: none of the methods can serve this data ({listed})")
    reference = plan.reference or ("late" if "late" in everyone else everyone[0])
    if reference not in everyone:
        reasons = {one["method"]: one["reason"] for one in skipped}
        why = reasons.get(reference, "it is a family of methods, not one of them")
        raise InputError(f"compare: {reference!r} cannot be the reference here: {why}. Name another, or none")
    named = {*everyone, *(one["method"] for one in skipped)}
    for name in plan.settings:
        if name not in named:
            raise unknown_name("method", name, named, "It was given in settings")
    for label, data in loaded.items():
        check_methods(plan, chosen[label], data)
    fingerprints = {source.label: source.fingerprint() for source in plan.sources}
    papers = {name: room.find(registered_name(name))[0].paper for name in everyone}
    return {
        "asked": asked,
        "command": command or f"consilience.compare({', '.join(repr(label) for label in loaded)}, …)",
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "reference": reference,
        "sets": {label: data.describe() for label, data in loaded.items()},
        "corruptions": {
            label: [label_of(one, data.modalities) for one in plan.corruptions] for label, data in loaded.items()
        },
        "skipped": skipped,
        "papers": {name: paper for name, paper in papers.items() if paper},
        "versions": versions_used(),
        "jobs": [job.to_json() for job in jobs_of(plan, chosen, fingerprints)],
    }


def versions_used() -> dict[str, str]:
    """Of this library, Python, the libraries that numbers depend on, and the platform."""
    return {
        "consilience": __version__,
        "python": platform.python_version(),
        **installed_versions(),
        "platform": platform.platform(terse=True),
    }


def installed_versions() -> dict[str, str]:
    """The versions of those libraries that are installed under their own name.

    >>> installed_versions()["torch"].split(".")[0]
    '2'
    """
    found = {}
    for name in _RECORDED:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def check_protocol(plan: Plan, loaded: Mapping[str, DataSet]) -> None:
    """Refuse before the first training what would fail in every job: metric, corruption, training, encoders."""
    from consilience.comparison.work import label_of
    from consilience.corruption import Corruptor
    from consilience.training import Trainer
    from consilience.training.devices import resolve_device

    tasks = {data.task for data in loaded.values()}
    if len(tasks) > 1:
        raise InputError("compare: the sets must share one task; some are classification, some regression")
    for data in loaded.values():
        if plan.metric is not None:
            find_metric(plan.metric, data.task, targets=data.y[:1].size)
        few = data.train[:2]
        for corruption in plan.corruptions:
            Corruptor(few).apply(few, corruption, 0.0, probability=plan.probability)
        labels = [label_of(corruption, data.modalities) for corruption in plan.corruptions]
        if len(set(labels)) < len(labels):
            raise InputError(f"compare: two of the corruptions are the same: {', '.join(labels)}")
    fields = Trainer.__dataclass_fields__.keys() - {"preparation", "logs", "seed", "on_interrupt", "checkpoint"}
    for name in plan.training:
        if name not in fields:
            raise unknown_name("training setting", name, fields)
    resolve_device(Trainer(**plan.training).device)
    modalities = {name for data in loaded.values() for name in data.modalities}
    for name in plan.encoders:
        if name not in modalities:
            raise unknown_name("modality", name, modalities, "It was given in encoders")


def check_methods(plan: Plan, names: Sequence[str], data: DataSet) -> None:
    """Build every method once as it will be trained: settings and encoders that do not fit are said at once."""
    from consilience import methods as room

    spec = spec_of(data, plan.encoders)
    for name in names:
        room.build(registered_name(name), spec, plan.settings.get(name))


def applicable(
    names: Sequence[str] | None, reference: str, data: DataSet, encoders: Mapping[str, Any] | None = None
) -> tuple[list[str], dict[str, str]]:
    """The methods to run on a set, and for the others why not. A family without an argument means all its members."""
    from consilience import methods as room

    known = room.registry()
    if names is None:
        names = [name for name in known if not name.endswith(":")]
    if reference and reference not in names:
        names = [*names, reference]
    spelled: list[str] = []
    for name in names:
        arguments = known[name].arguments(data.modalities) if name in known and name.endswith(":") else [""]
        spelled += [name + argument for argument in arguments]
    spec = spec_of(data, encoders or {})
    run, reasons = [], {}
    for name in dict.fromkeys(spelled):
        cls, argument = room.find(registered_name(name), data.modalities)
        reason = cls.reason_against(spec)
        if reason is None and argument is not None and argument not in cls.arguments(data.modalities):
            reason = f"{argument!r} is none of its arguments here: {', '.join(cls.arguments(data.modalities))}"
        if reason is None:
            run.append(name)
        else:
            for one in data.modalities.values():  # as the user knows it
                reason = reason.replace(spec.modalities[one.name].describe(), one.describe())
            reasons[name] = reason
    return run, reasons


def spec_of(data: DataSet, encoders: Mapping[str, Any]) -> Spec:
    """What methods will be built from: text has become tokens, or whatever the encoder chosen reads.

    encoders: modality → choice, of which those for other sets' modalities are left out.
    """
    from consilience.encoders import seen_by_encoder
    from consilience.methods import Spec
    from consilience.targets import Task

    return Spec(
        {name: seen_by_encoder(one, encoders.get(name)) for name, one in data.modalities.items()},
        Task.of(data.y[data.split == "train"], data.task),
        {name: choice for name, choice in encoders.items() if name in data.modalities},
    )


def default_folder(plan: Plan, asked: Mapping[str, Any]) -> Path:
    """`runs/SETS-xxxxxxxx`, where the letters change with every setting that results depend on."""
    fixed = {name: value for name, value in asked.items() if name not in EXTENDABLE}
    return Path("runs") / f"{'-'.join(source.label for source in plan.sources)}-{digest(fixed)[:8]}"
