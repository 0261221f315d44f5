"""Fuse the predictions of trained models: files of logits or probabilities become one posterior."""

from __future__ import annotations

import shlex
import sys
import warnings
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from consilience.cli import options
from consilience.cli.fuse_arguments import (
    class_names,
    doubt_about_labels,
    open_evidence,
    read_classes,
    read_numbers,
    read_prior,
)
from consilience.core.errors import InputError
from consilience.core.settings import Interval, NonNegativeInt, Share

if TYPE_CHECKING:
    import numpy as np
    from jsonargparse import ArgumentParser, Namespace

    from consilience.estimators.fuse_files import Evidence, Rule

USAGE = "FILE [FILE …] [options]"
EXAMPLES = """  consilience fuse image.npy audio.npy --labels y.npy --out fused.npy
  consilience fuse image.csv audio.csv --probabilities --labels y.csv --prior 0.6 0.3 0.1 --out fused.csv
  consilience fuse all.parquet --expert 'image=img_*' 'audio=aud_*' --target label --folds 5 --report fused.html
  consilience fuse a.npy b.npy --fit val_a.npy val_b.npy --fit-labels val_y.npy --target-prior em --out fused.npy"""
Kappa = Literal["gaussian", "copula", "none"]
Calibration = Literal["auto", "temperature", "robust", "bias", "none"]
Decimals = Annotated[int, Interval(1, 9)]
_HOW_TO_FIT = "give --fit FILES with --fit-labels FILE, --fit-share 0.5, or --folds 5"


def add_arguments(parser: ArgumentParser) -> None:
    """Add opinions, labels, fusion, fitting and output."""
    several: dict[str, Any] = {"nargs": "+", "type": str}
    shares: dict[str, Any] = {"nargs": "+", "type": float | str, "metavar": "P"}
    parser.add_argument("files", **several, help="opinions: .npy, .npz, .csv, .tsv or .parquet, one row per sample")
    group = parser.add_argument_group("opinions")
    group.add_argument("--probabilities", action="store_true", help="the files hold probabilities, not logits")
    help = "decimals that the probabilities were rounded to; their sums may deviate accordingly, and 0 means small"
    options.add_option(group, "rounded", Decimals, help, metavar="D")
    group.add_argument(
        "--expert", action="extend", **several, metavar="NAME=GLOB", help="columns of each expert in a file of several"
    )
    group.add_argument(
        "--columns", **several, metavar="GLOB", help="columns of the opinions in each table; all if absent"
    )
    group.add_argument("--names", **several, metavar="NAME", help="names of the experts; the file names if absent")
    group.add_argument("--classes", **several, metavar="NAME", help="classes in the order of the columns")
    group.add_argument("--labels", type=str, metavar="FILE", help="true classes, to score the experts and the fusion")
    group.add_argument(
        "--target", type=str, metavar="COLUMN", help="column or array of the labels, in --labels or FILE"
    )
    group = parser.add_argument_group("fusion")
    group.add_argument(
        "--prior", **shares, help="class shares that the experts were trained with: numbers, a file, or empirical"
    )
    group.add_argument("--target-prior", **shares, help="class shares of the new data: numbers, a file, or em")
    add = partial(options.add_option, group)
    add("kappa", Kappa, "dependence of the experts: gaussian (if fitted), copula or none", metavar="HOW")
    calibrations = "calibration of the experts, if fitted: auto (default), temperature, robust, bias or none"
    add("calibration", Calibration, calibrations, metavar="HOW")
    reliability = "reliability of the experts: auto or graded (both only if fitted), or none"
    add("reliability", Literal["auto", "graded", "none"], reliability, default="none", metavar="HOW")
    fitting = "fit on opinions that the experts were not trained on; give one of --fit, --fit-share and --folds"
    group = parser.add_argument_group("fitting", fitting)
    group.add_argument("--fit", **several, metavar="FILE", help="other opinions of the same experts")
    group.add_argument("--fit-labels", type=str, metavar="FILE", help="labels of --fit")
    add = partial(options.add_option, group)
    add("fit_share", Share, "share of the rows to fit on, drawn at random; the other rows are scored", metavar="S")
    folds = "number of folds; each row is fused by a model that was fitted on the other folds"
    add("folds", Annotated[int, Interval(2)], folds, metavar="K")
    add("seed", NonNegativeInt, "seed of the share and the folds", default=0)
    group = parser.add_argument_group("output")
    group.add_argument("--out", type=str, metavar="FILE", help="posteriors: .npy, .npz, .csv or .parquet")
    group.add_argument("--log", action="store_true", help="write log-posteriors")
    group.add_argument("--report", type=str, metavar="FILE", help="HTML page with reliability diagrams")


def run(chosen: Namespace, command: list[str]) -> None:
    """Read, fit if requested, fuse, write and score."""
    from consilience.data.files.posterior_writer import writing
    from consilience.estimators.fuse_files import fuse_files

    check(chosen)
    evidence = open_evidence(chosen, chosen.files, chosen.labels)
    if evidence.labels is None and chosen.report is not None:
        raise InputError("fuse: --report needs --labels, or --target in the file itself")
    if evidence.labels is None and chosen.out is None:
        raise InputError("fuse: there is no output: give --out for posteriors, --labels for scores, or both")
    names = class_names(chosen, evidence)
    unnamed = read_classes(chosen, evidence.opinions) is None
    if unnamed and (doubt := doubt_about_labels(evidence.place_of, names)):
        print(f"consilience: {doubt}; --classes sets another order", file=sys.stderr)
    if not chosen.probabilities:
        warn_of_probabilities(evidence)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        rule, remarks = make_rule(chosen, evidence)
    for message in {str(warning.message) for warning in warned if issubclass(warning.category, UserWarning)}:
        print(f"consilience: {message}", file=sys.stderr)
    target, remark = find_target(chosen, evidence, rule)
    out = None if chosen.out is None else Path(chosen.out)
    with nullcontext() if out is None else writing(out, names, chosen.log) as write:
        experts, fused, rows, empty = fuse_files(evidence, rule, target, write)
    remarks = [*remarks, *remark]
    if empty:
        remarks.append(f"{empty} of {rows} rows have no opinion at all: their posterior is the prior.")
    if evidence.labels is not None:
        remarks += scored_on(chosen, fused.samples, rows)
        from rich.console import Console

        from consilience.report.fuse_page import score_table

        Console().print(score_table(experts, fused))
    print("\n".join(remarks))
    if out is not None:
        print(f"\n{rows} {'log-posteriors' if chosen.log else 'posteriors'}: {out}")
    if chosen.report is not None:
        from consilience.core.files import write_atomically
        from consilience.report.fuse_page import render_fusion
        from consilience.report.wording import say_list

        title = f"Fusion of {say_list(evidence.opinions.names)}"
        page = render_fusion(experts, fused, remarks, title, shlex.join(command))
        print(f"report: {write_atomically(Path(chosen.report), page.encode('utf-8', 'replace'))}")


def check(chosen: Namespace) -> None:
    """Check how options combine, before any file is read."""
    from consilience.data.files.posterior_writer import ENDINGS

    fitting = [name for name in ("fit", "fit_share", "folds") if chosen[name] is not None]
    if len(fitting) > 1:
        raise InputError(f"fuse: choose one of {' and '.join('--' + name.replace('_', '-') for name in fitting)}")
    for option in ("kappa", "calibration", "reliability"):
        if chosen[option] not in (None, "none") and not fitting:
            raise InputError(f"fuse: --{option} {chosen[option]} is learned from labelled opinions: {_HOW_TO_FIT}")
    if chosen.rounded is not None and not chosen.probabilities:
        raise InputError(f"fuse: --rounded {chosen.rounded} must be given with --probabilities")
    labelled = chosen.labels is not None or chosen.target is not None
    if chosen.fit_labels is not None and chosen.fit is None:
        raise InputError("fuse: --fit-labels needs --fit, which is not given")
    if chosen.fit is not None and chosen.fit_labels is None and chosen.target is None:
        raise InputError("fuse: --fit needs --fit-labels, or --target where the labels are in the same file")
    for option in ("fit_share", "folds"):
        if chosen[option] is not None and not labelled:
            raise InputError(f"fuse: --{option.replace('_', '-')} needs --labels, or --target in the file itself")
    if chosen.prior == ["empirical"] and not labelled and not fitting:
        raise InputError("fuse: --prior empirical is counted from --labels, which are not given")
    if chosen.out is not None and Path(chosen.out).suffix.lower() not in ENDINGS:
        raise InputError(f"fuse: --out must end in {', '.join(ENDINGS)}, got {Path(chosen.out).name!r}")
    for path in chosen.fit or ():
        if any(Path(path).exists() and Path(file).exists() and Path(path).samefile(file) for file in chosen.files):
            raise InputError(
                f"fuse: --fit {path} is also fused: use --fit-share or --folds, which fit and score on different rows"
            )
    inputs = [*chosen.files, chosen.labels, *(chosen.fit or ()), chosen.fit_labels, *(chosen.prior or ())]
    inputs = [file for file in (*inputs, *(chosen.target_prior or ())) if isinstance(file, str)]
    for option in ("out", "report"):
        if chosen[option] is not None:
            options.check_out_file("fuse", option, Path(chosen[option]), inputs)
    if chosen.report is not None and not chosen.report.lower().endswith((".html", ".htm")):
        raise InputError(f"fuse: --report writes an HTML page, FILE.html, got {chosen.report!r}")


def warn_of_probabilities(evidence: Evidence) -> None:
    """Warn if logits look like probabilities: read as logits they would hardly separate the classes."""
    if suspects := evidence.look_like_probabilities():
        print(
            f"consilience: the rows of {', '.join(map(repr, suspects))} sum to one and are read as logits; if they "
            "are probabilities, give --probabilities",
            file=sys.stderr,
        )


def make_rule(chosen: Namespace, evidence: Evidence) -> tuple[Rule, list[str]]:
    """Return the fusion rule and its description."""
    from consilience.data.files.opinion_files import renamed
    from consilience.estimators.fuse_files import Theorem, fit

    opinions = evidence.opinions
    if chosen.fit is None and chosen.fit_share is None and chosen.folds is None:
        prior, description = read_prior(chosen, evidence)
        independent = "Fused by Bayes' theorem with κ = 1: uncalibrated experts, independent given the class"
        return Theorem(prior), [f"{independent}; {description}."]
    given = read_numbers("prior", chosen.prior, evidence, "empirical")
    settings: dict[str, Any] = {
        "kappa": chosen.kappa or "gaussian",
        "calibration": None if chosen.calibration == "none" else chosen.calibration or "auto",
        "prior": "empirical" if given is None else given,
        "reliability": None if chosen.reliability == "none" else chosen.reliability,
    }
    if chosen.fit is not None:
        learned = open_evidence(chosen, chosen.fit, chosen.fit_labels)
        learned = replace(learned, opinions=renamed(learned.opinions, opinions.names, opinions.classes))
        rule, where = fit(learned, **settings), f"on {', '.join(chosen.fit)}"
    elif chosen.folds is not None:
        rule, where = fit(evidence, folds=chosen.folds, **settings), f"in {chosen.folds} folds, each on the other folds"
    else:
        rule = fit(evidence, share=chosen.fit_share, **settings)
        where = f"on a random {100 * chosen.fit_share:g} % of the rows"
    chosen_settings = (
        f"κ {settings['kappa']}, calibration {settings['calibration'] or 'none'}, reliability {chosen.reliability}"
    )
    shares = "given" if given is not None else "from the labels of the fit"
    return rule, [f"Fitted {where}: {chosen_settings}; prior {shares}."]


def find_target(chosen: Namespace, evidence: Evidence, rule: Rule) -> tuple[np.ndarray | None, list[str]]:
    """Return the class shares of the new data, None for those of the prior, and a description."""
    from consilience.estimators.fuse_files import estimate_target

    if chosen.target_prior != ["em"]:
        target = read_numbers("target_prior", chosen.target_prior, evidence, "em")
        return target, [] if target is None else [f"Target prior given: {_shares(target)}."]
    target, rows = estimate_target(evidence, rule)
    return target, [f"Target prior by expectation maximisation from {rows} rows, without labels: {_shares(target)}."]


def scored_on(chosen: Namespace, scored: int, rows: int) -> list[str]:
    """Return a sentence about the rows that were scored."""
    if scored < rows:
        return [f"Experts and fusion scored on the {scored} of {rows} rows that were not used in the fit."]
    why = "each was fused by a model that was not fitted on it" if chosen.folds else "none was used in the fit"
    return [f"Scored on all {rows} rows: {why}."]


def _shares(shares: np.ndarray, limit: int = 20) -> str:
    listed = " ".join(f"{share:.3g}" for share in shares[:limit])
    return listed + (f" and {len(shares) - limit} more" if len(shares) > limit else "")
