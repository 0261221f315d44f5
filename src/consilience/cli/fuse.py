"""Fuse the opinions of models that are trained already: files of logits or probabilities into one posterior."""

from __future__ import annotations

import shlex
import sys
import warnings
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.cli import options
from consilience.cli.fuse_arguments import (
    class_names,
    doubt_about_labels,
    open_evidence,
    read_classes,
    read_numbers,
    read_prior,
)
from consilience.core.errors import InputError, unknown_name

if TYPE_CHECKING:
    import numpy as np
    from jsonargparse import ArgumentParser, Namespace

    from consilience.estimators.fuse_files import Evidence, Rule

USAGE = "FILE [FILE …] [options]"
EXAMPLES = """  consilience fuse image.npy audio.npy --labels y.npy --out fused.npy
  consilience fuse image.csv audio.csv --probabilities --labels y.csv --prior 0.6 0.3 0.1 --out fused.csv
  consilience fuse all.parquet --expert image=img_* audio=aud_* --target label --folds 5 --report fused.html
  consilience fuse a.npy b.npy --fit val_a.npy val_b.npy --fit-labels val_y.npy --target-prior em --out fused.npy"""
KAPPAS, CALIBRATIONS = ("gaussian", "copula", "none"), ("temperature", "robust", "bias", "none")
_TEACHING = "give --fit FILES with --fit-labels FILE, --fit-share 0.5, or --folds 5"


def add_arguments(parser: ArgumentParser) -> None:
    """The opinions, the labels, how to fuse, and where to write."""
    several: dict[str, Any] = {"nargs": "+", "type": str}
    shares: dict[str, Any] = {"nargs": "+", "type": float | str, "metavar": "P"}
    parser.add_argument("files", **several, help="opinions: .npy, .npz, .csv, .tsv or .parquet, a row per sample")
    group = parser.add_argument_group("opinions")
    group.add_argument("--probabilities", action="store_true", help="they are probabilities, not logits")
    group.add_argument(
        "--rounded", type=int, metavar="D", help="to so many decimals: sums may be off by that, and 0 rules nothing out"
    )
    group.add_argument(
        "--expert", action="extend", **several, metavar="NAME=GLOB", help="where one file holds several experts"
    )
    group.add_argument("--columns", **several, metavar="GLOB", help="of the opinions in each table; all unless given")
    group.add_argument("--names", **several, metavar="NAME", help="of the experts; the files' names unless given")
    group.add_argument("--classes", **several, metavar="NAME", help="in the order of the columns")
    group.add_argument(
        "--labels", type=str, metavar="FILE", help="the true classes: then experts and fusion are scored"
    )
    group.add_argument("--target", type=str, metavar="COLUMN", help="the labels' column or array, in --labels or FILE")
    group = parser.add_argument_group("fusion")
    group.add_argument("--prior", **shares, help="class shares the experts learned from: numbers, a file, or empirical")
    group.add_argument("--target-prior", **shares, help="class shares where it is used: numbers, a file, or em")
    group.add_argument("--kappa", type=str, metavar="HOW", help="their dependence: gaussian if fitted, copula, or none")
    group.add_argument("--calibration", type=str, metavar="HOW", help=f"if fitted: {', '.join(CALIBRATIONS)}")
    group.add_argument("--reliability", type=str, default="none", metavar="HOW", help="auto, if fitted, or none")
    group = parser.add_argument_group("fitting", "on opinions that the experts were not trained on; one of")
    group.add_argument("--fit", **several, metavar="FILE", help="other opinions of the same experts")
    group.add_argument("--fit-labels", type=str, metavar="FILE", help="the labels of --fit")
    group.add_argument("--fit-share", type=float, metavar="S", help="a random share of the rows; the others are scored")
    group.add_argument("--folds", type=int, metavar="K", help="each row by a fusion fitted on the other folds")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of the share and the folds")
    group = parser.add_argument_group("output")
    group.add_argument("--out", type=str, metavar="FILE", help="posteriors: .npy, .npz, .csv or .parquet")
    group.add_argument("--log", action="store_true", help="write their logarithms")
    group.add_argument("--report", type=str, metavar="FILE", help="an HTML page with reliability diagrams")


def run(chosen: Namespace, command: list[str]) -> None:
    """Open, fit if asked to, fuse, write, score."""
    from consilience.data.files.posterior_writer import writing
    from consilience.estimators.fuse_files import fuse_files

    check(chosen)
    evidence = open_evidence(chosen, chosen.files, chosen.labels)
    if evidence.labels is None and chosen.report is not None:
        raise InputError("fuse: --report needs --labels, or --target in the file itself")
    if evidence.labels is None and chosen.out is None:
        raise InputError("fuse: nothing to do: give --out for the posteriors, --labels for the scores, or both")
    names = class_names(chosen, evidence)
    doubt = None
    if read_classes(chosen, evidence.opinions) is None:
        doubt = doubt_about_labels(evidence.place_of, names)
    if doubt is not None:
        print(f"consilience: {doubt}; --classes says otherwise", file=sys.stderr)
    if not chosen.probabilities:
        warn_of_probabilities(evidence)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        rule, remarks = make_rule(chosen, evidence)
    for one in {str(warning.message) for warning in warned if issubclass(warning.category, UserWarning)}:
        print(f"consilience: {one}", file=sys.stderr)
    target, told = find_target(chosen, evidence, rule)
    out = None if chosen.out is None else Path(chosen.out)
    with nullcontext() if out is None else writing(out, names, chosen.log) as write:
        experts, fused, rows, unheard = fuse_files(evidence, rule, target, write)
    remarks = [*remarks, *told]
    if unheard:
        remarks.append(f"{unheard} of {rows} rows have no opinion at all: there the prior answers.")
    if evidence.labels is not None:
        remarks += scored_on(chosen, fused.samples, rows)
        from rich.console import Console

        from consilience.report.fuse_page import score_table

        Console().print(score_table(experts, fused))
    print("\n".join(remarks))
    if out is not None:
        print(f"\n{rows} {'log-posteriors' if chosen.log else 'posteriors'}: {out}")
    if chosen.report is not None:
        from consilience.report.fuse_page import render_fusion
        from consilience.report.page import write_file
        from consilience.report.wording import say_list

        title = f"Fusion of {say_list(evidence.opinions.names)}"
        page = render_fusion(experts, fused, remarks, title, shlex.join(command))
        print(f"report: {write_file(Path(chosen.report), page.encode('utf-8', 'replace'))}")


def check(chosen: Namespace) -> None:
    """Refuse what cannot be, before any file is read."""
    from consilience.data.files.posterior_writer import ENDINGS

    teachers = [name for name in ("fit", "fit_share", "folds") if chosen[name] is not None]
    if len(teachers) > 1:
        raise InputError(f"fuse: choose one of {' and '.join('--' + name.replace('_', '-') for name in teachers)}")
    for option, known in (("kappa", KAPPAS), ("calibration", CALIBRATIONS), ("reliability", ("auto", "none"))):
        given = chosen[option]
        if given is not None and given not in known:
            raise unknown_name(option, given, known)
        if given not in (None, "none") and not teachers:
            raise InputError(f"fuse: --{option} {given} is learned from labelled opinions: {_TEACHING}")
    if chosen.rounded is not None and not (chosen.probabilities and 1 <= chosen.rounded <= 9):
        wanted = "a number of decimals from 1 to 9" if chosen.probabilities else "given with --probabilities"
        raise InputError(f"fuse: --rounded {chosen.rounded} must be {wanted}")
    if chosen.fit_share is not None and not 0 < chosen.fit_share < 1:
        raise InputError(f"fuse: --fit-share must lie between 0 and 1, got {chosen.fit_share:g}")
    if chosen.folds is not None and chosen.folds < 2:
        raise InputError(f"fuse: --folds must be at least 2, got {chosen.folds}")
    labelled = chosen.labels is not None or chosen.target is not None
    if chosen.fit_labels is not None and chosen.fit is None:
        raise InputError("fuse: --fit-labels belong to --fit, which is not given")
    if chosen.fit is not None and chosen.fit_labels is None and chosen.target is None:
        raise InputError("fuse: --fit needs --fit-labels, or --target where the labels are in the same file")
    for option in ("fit_share", "folds"):
        if chosen[option] is not None and not labelled:
            raise InputError(f"fuse: --{option.replace('_', '-')} needs --labels, or --target in the file itself")
    if chosen.prior == ["empirical"] and not labelled and not teachers:
        raise InputError("fuse: --prior empirical is counted from --labels, which are not given")
    if chosen.out is not None and Path(chosen.out).suffix.lower() not in ENDINGS:
        raise InputError(f"fuse: --out must end in {', '.join(ENDINGS)}, got {Path(chosen.out).name!r}")
    for path in chosen.fit or ():
        if any(Path(path).exists() and Path(one).exists() and Path(path).samefile(one) for one in chosen.files):
            raise InputError(
                f"fuse: --fit {path} is also what is fused: use --fit-share or --folds, which keep rows apart"
            )
    read = [*chosen.files, chosen.labels, *(chosen.fit or ()), chosen.fit_labels, *(chosen.prior or ())]
    read = [one for one in (*read, *(chosen.target_prior or ())) if isinstance(one, str)]
    for option in ("out", "report"):
        if chosen[option] is not None:
            options.check_out_file("fuse", option, Path(chosen[option]), read)
    if chosen.report is not None and not chosen.report.lower().endswith((".html", ".htm")):
        raise InputError(f"fuse: --report writes an HTML page, FILE.html, got {chosen.report!r}")


def warn_of_probabilities(evidence: Evidence) -> None:
    """Say so where logits look like probabilities: taken as logits they would hardly tell the classes apart."""
    if suspects := evidence.look_like_probabilities():
        print(
            f"consilience: the rows of {', '.join(map(repr, suspects))} sum to one and are taken as logits; if they "
            "are probabilities, give --probabilities",
            file=sys.stderr,
        )


def make_rule(chosen: Namespace, evidence: Evidence) -> tuple[Rule, list[str]]:
    """How to fuse, and that in words."""
    from consilience.data.files.opinion_files import renamed
    from consilience.estimators.fuse_files import Theorem, fit

    opinions = evidence.opinions
    if chosen.fit is None and chosen.fit_share is None and chosen.folds is None:
        prior, told = read_prior(chosen, evidence)
        independent = "Fused by the theorem with κ = 1: experts as they are, independent given the class"
        return Theorem(prior), [f"{independent}; {told}."]
    given = read_numbers("prior", chosen.prior, evidence, "empirical")
    settings: dict[str, Any] = {
        "kappa": chosen.kappa or "gaussian",
        "calibration": None if chosen.calibration == "none" else chosen.calibration or "temperature",
        "prior": "empirical" if given is None else given,
        "reliability": None if chosen.reliability == "none" else chosen.reliability,
    }
    if chosen.fit is not None:
        learned = open_evidence(chosen, chosen.fit, chosen.fit_labels)
        learned = replace(learned, opinions=renamed(learned.opinions, opinions.names, opinions.classes))
        rule, where = fit(learned, **settings), f"on {', '.join(chosen.fit)}"
    elif chosen.folds is not None:
        rule, where = fit(evidence, folds=chosen.folds, **settings), f"in {chosen.folds} folds, each row by the others"
    else:
        rule = fit(evidence, share=chosen.fit_share, **settings)
        where = f"on a random {100 * chosen.fit_share:g} % of the rows"
    said = f"κ {settings['kappa']}, calibration {settings['calibration'] or 'none'}, reliability {chosen.reliability}"
    shares = "given" if given is not None else "that of the labels fitted on"
    return rule, [f"Fitted {where}: {said}; prior {shares}."]


def find_target(chosen: Namespace, evidence: Evidence, rule: Rule) -> tuple[np.ndarray | None, list[str]]:
    """The class shares to decide under, None for those of the prior, and that in words."""
    from consilience.estimators.fuse_files import estimate_target

    if chosen.target_prior != ["em"]:
        target = read_numbers("target_prior", chosen.target_prior, evidence, "em")
        return target, [] if target is None else [f"Target prior given: {_shares(target)}."]
    target, rows = estimate_target(evidence, rule)
    return target, [f"Target prior by expectation maximisation from {rows} rows, without labels: {_shares(target)}."]


def scored_on(chosen: Namespace, scored: int, rows: int) -> list[str]:
    """On which rows the scores are."""
    if scored < rows:
        return [f"Scored on the {scored} rows of {rows} that had no part in the fit, experts and fusion alike."]
    why = "each by a fusion that was not fitted on it" if chosen.folds else "nothing was fitted on them"
    return [f"Scored on all {rows} rows: {why}."]


def _shares(shares: np.ndarray, limit: int = 20) -> str:
    listed = " ".join(f"{share:.3g}" for share in shares[:limit])
    return listed + (f" and {len(shares) - limit} more" if len(shares) > limit else "")
