"""The page of the experiment: errors, likelihoods and coherence by subset size, and which differences are sure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from consilience.comparison.experiments.m2vae_digits.cells import FEW_DRAWS, Cell, Protocol
from consilience.comparison.statistics import compare_to_reference, too_few_seeds
from consilience.comparison.store import Result
from consilience.report.account import Account, Section, TextTable

REFERENCE = "m2vae"
_MEASURES = {
    "error": ("Imputation error: root mean square over pixels, in their own units (less is better)", False),
    "conditional": ("Conditional log-likelihood of the parts that are not given, in nats (more is better)", True),
    "coherent": ("Coherence: per cent that a classifier takes for the right digit, given and generated together", True),
}


def give_account(
    protocol: Protocol,
    results: Mapping[str, Result],
    *,
    title: str,
    paper: str = "",
    notes: Sequence[str] = (),
    command: str = "",
) -> Account:
    """What all cells say, in words and tables."""
    tables = [table_of(protocol, results, measure) for measure in _MEASURES]
    caution = too_few_seeds(protocol.seeds, len(protocol.variants) - 1)
    judge = np.mean([results[cell.key].about["classifier"] for cell in protocol.cells()])
    words = (
        f"Mean ± standard deviation over {protocol.seeds} seeds, each with a split of its own. An arrow marks a "
        f"difference to {REFERENCE} that is significant at 5 % (paired bootstrap over seeds and test samples, Holm "
        "over the variants): ↑ better, ↓ worse." + (f" {caution}" if caution else ""),
        f"The classifier that judges coherence is right on {100 * judge:.1f} % of the true digits.",
    )
    sections = (
        Section("subsets", "By the number of parts given", words, tuple(tables)),
        Section("whole", "Of whole digits", (), (whole_table(protocol, results),)),
        Section("method", "How it was measured", (*notes, _how(protocol))),
    )
    return Account(title, answer(protocol, results), sections, command, paper)


def values_of(protocol: Protocol, results: Mapping[str, Result], name: str, measure: str) -> dict[int, np.ndarray]:
    """Seed → each test sample's figure `[size, n]`; errors are squared."""
    stored = "squared_error" if measure == "error" else measure
    return {seed: results[Cell.of(protocol, name, seed).key].arrays[stored] for seed in range(protocol.seeds)}


def summary(protocol: Protocol, results: Mapping[str, Result], name: str, measure: str) -> np.ndarray:
    """`[seed, size]`: the root of the mean squared error, the mean log-likelihood, or the share in per cent."""
    means = np.array([values.mean(axis=1) for values in values_of(protocol, results, name, measure).values()])
    return np.sqrt(means) if measure == "error" else 100 * means if measure == "coherent" else means


def table_of(protocol: Protocol, results: Mapping[str, Result], measure: str) -> TextTable:
    """One measure, a row for each variant and a column for each number of parts given."""
    caption, more_is_better = _MEASURES[measure]
    sign = 1.0 if more_is_better else -1.0
    index = {seed: results[Cell.of(protocol, REFERENCE, seed).key].arrays["index"] for seed in range(protocol.seeds)}
    arrows: dict[tuple[str, int], str] = {}
    for place in range(len(protocol.sizes)):
        scores = {
            name: {seed: sign * one[place] for seed, one in values_of(protocol, results, name, measure).items()}
            for name in protocol.variants
        }
        for row in compare_to_reference(scores, REFERENCE, samples=index):
            if row["significant"]:
                arrows[row["method"], place] = " ↑" if row["difference"] > 0 else " ↓"
    rows = []
    for name in protocol.variants:
        found = summary(protocol, results, name, measure)
        digits = 2 if measure == "error" else 1
        cells = [f"{one.mean():.{digits}f} ± {_spread(one):.{digits}f}" for one in found.T]
        rows.append((name, *(cell + arrows.get((name, place), "") for place, cell in enumerate(cells))))
    return TextTable(caption, ("", *(f"{size} given" for size in protocol.sizes)), tuple(rows), marked=(0,))


def whole_table(protocol: Protocol, results: Mapping[str, Result]) -> TextTable:
    """Joint log-likelihood, what a linear classifier reads from the latent, and how far the estimates carry."""
    rows = []
    for name in protocol.variants:
        mine = [results[Cell.of(protocol, name, seed).key] for seed in range(protocol.seeds)]
        joint = np.array([one.arrays["joint"].mean() for one in mine])
        about = {key: np.array([one.about[key] for one in mine]) for key in mine[0].about}
        rows.append(
            (
                name,
                f"{joint.mean():.1f} ± {_spread(joint):.1f}",
                f"{100 * about['probe'].mean():.1f} ± {100 * _spread(about['probe']):.1f}",
                f"{about['effective_samples'].mean():.0f}",
                f"{100 * about['few_draws'].mean():.0f}",
                f"{about['epochs'].mean():.0f}",
                f"{about['seconds'].mean():.0f}",
            )
        )
    header = (
        "",
        "log p(x), nats",
        "linear probe, %",
        f"effective draws of {protocol.draws}",
        f"under {FEW_DRAWS} effective, %",
        "epochs",
        "seconds",
    )
    return TextTable("Likelihood of whole digits, and what the latent knows of their class", header, tuple(rows))


def answer(protocol: Protocol, results: Mapping[str, Result]) -> tuple[str, ...]:
    """Who is best at what, by the mean over seeds and subset sizes."""
    said = []
    for measure, (caption, more_is_better) in _MEASURES.items():
        means = {name: summary(protocol, results, name, measure).mean() for name in protocol.variants}
        ranked = sorted(means, key=lambda name: -means[name] if more_is_better else means[name])
        place = ranked.index(REFERENCE) + 1
        said.append(
            f"{caption.partition(':')[0].partition(' of the')[0]}: best is {ranked[0]} ({means[ranked[0]]:.2f}), then "
            f"{ranked[1]} ({means[ranked[1]]:.2f}); {REFERENCE} is number {place} of {len(ranked)} "
            f"({means[REFERENCE]:.2f})."
        )
    return tuple(said)


def _how(protocol: Protocol) -> str:
    return (
        f"Latent of {protocol.latent} dimensions, Gaussian likelihoods with one learned scale a part, Adam with "
        f"learning rate {protocol.lr:g}, batches of {protocol.batch_size}, at most {protocol.epochs} epochs, stopped "
        f"after {protocol.patience} without a better bound on validation data. Likelihoods by importance sampling with "
        f"{protocol.draws} draws from refined proposals, in the units of the pixels. What is generated is the "
        "decoders' mean at the posterior's mean; every figure is the mean over all subsets of its size."
    )


def _spread(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else float("nan")
