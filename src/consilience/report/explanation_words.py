"""Explanations in words and as tables of text: of one sample, and in the mean over samples."""

from __future__ import annotations

from typing import Any

from consilience.evaluation.contributions import MeanContributions
from consilience.evaluation.explained_sample import ExplainedSample, ModalityPart, Value
from consilience.report.text_table import TextTable
from consilience.report.wording import NOTHING, capital, one_line, say_list, say_number

# Experts are said to contradict each other above this total variation distance.
CONTRADICTION = 0.5
# How many pairs of a relation are named in a sentence.
_MOST_PAIRS = 3
# A modality is said to be probably broken below this ρ.
BROKEN = 0.5
_METRICS: dict[Value, str] = {"accuracy": "accuracy", "nll": "log-likelihood", "mse": "negative squared error"}


def say_value(value: Value, of: Any = None) -> str:
    """What is explained, as a noun.

    >>> say_value("probability", "cat"), say_value("nll")
    ('the probability of cat', 'the log-likelihood')
    """
    if value in ("probability", "log-probability"):
        return f"the {value}" + (f" of {one_line(of)}" if of is not None else " of the predicted class")
    return "the prediction" if value == "output" else f"the {_METRICS[value]}"


def number(value: float) -> str:
    """A number with three decimals, or three digits if it is large.

    >>> number(0.12345), number(-1234.5), number(-0.00001)
    ('0.123', '−1.23e+03', '0.000')
    """
    text = f"{value:.3f}" if abs(value) < 100 else f"{value:.3g}"
    return "0.000" if text == "-0.000" else text.replace("-", "−")


def signed(value: float, error: float = 0.0) -> str:
    """A contribution with its sign, and its interval if it was sampled.

    >>> signed(0.25), signed(-0.1, 0.02)
    ('+0.250', '−0.100 ± 0.020')
    """
    text = number(value)
    sign = "+" if value > 0 and text != "0.000" else ""
    return sign + text + (f" ± {number(error)}" if error else "")


def say_sample(sample: ExplainedSample) -> list[str]:
    """Return the explanation of a sample in short sentences."""
    there = [part for part in sample.parts if part.present]
    missing = [one_line(part.name) for part in sample.parts if not part.present]
    sentences = [_say_decision(sample)]
    if not there:
        return [*sentences, "The sample has no modality, so the prediction does not depend on it.", *_say_set(sample)]
    what = say_value(sample.value, sample.of if sample.classification else None)
    sentences.append(
        f"With no modality, {what} would be {number(sample.none)}; with all that are present it is "
        f"{number(sample.all)}."
    )
    sentences += _say_contributions(there, what)
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        sentences.append(f"{say_list(missing)} {verb} missing and contribute{'s' * (len(missing) == 1)} nothing.")
    sentences += _say_without(sample, there)
    sentences += _say_opinions(sample, there)
    sentences += [
        f"{one_line(part.name)} is probably broken: ρ = {part.reliability:.2f}."
        for part in there
        if part.reliability is not None and part.reliability < BROKEN
    ]
    sentences += _say_pairs(sample)
    if not sample.exact:
        sentences.append("Contributions are estimated from random orders of the modalities; ± gives the 95 % interval.")
    return [*sentences, *_say_set(sample)]


def sample_table(sample: ExplainedSample) -> TextTable:
    """Return one line for each modality: contribution, opinion, trust, ρ, and the decision without it.

    Numbers in brackets are probabilities of the label before them.
    """
    columns: dict[str, list[str]] = {
        "modality": [one_line(part.name) for part in sample.parts],
        "contribution": [signed(part.contribution, part.error) if part.present else "missing" for part in sample.parts],
        "expert says": [_opinion(part) for part in sample.parts],
        "trust": [_share(part.trust) for part in sample.parts],
        "ρ": [_share(part.reliability) for part in sample.parts],
        "without it": [_without(part) for part in sample.parts],
    }
    kept = {
        name: cells
        for name, cells in columns.items()
        if name not in ("expert says", "trust", "ρ") or any(cell != NOTHING for cell in cells)
    }
    return TextTable(f"Row {sample.row}: each modality", tuple(kept), tuple(zip(*kept.values())))


def say_mean(mean: MeanContributions, value: Value) -> list[str]:
    """Return mean contributions in short sentences."""
    what, samples = say_value(value).replace("the ", "the mean ", 1), say_number(mean.samples, "sample")
    order = sorted(range(len(mean.values)), key=lambda place: -mean.values[place])
    listed = say_list(f"{one_line(mean.modalities[place])} {signed(mean.values[place])}" for place in order)
    sentences = [
        f"Over {samples}, {what} is {number(mean.none)} with no modality and {number(mean.all)} with all that are "
        "present.",
        f"Mean contributions: {listed}.",
    ]
    return sentences + say_relations(mean)


def say_relations(mean: MeanContributions) -> list[str]:
    """Return a sentence for each relation that pairs of modalities have in the mean."""
    if mean.relations is None:
        return []
    found: dict[str, list[str]] = {}
    pairs = [(i, j) for j in range(len(mean.modalities)) for i in range(j)]
    for i, j in sorted(pairs, key=lambda pair: -abs(mean.interactions[pair])):  # type: ignore[index]
        pair = f"{one_line(mean.modalities[i])} and {one_line(mean.modalities[j])}"
        found.setdefault(mean.relations[i, j].item(), []).append(pair)
    return _say_groups(found)


def mean_table(mean: MeanContributions) -> TextTable:
    """Return one line for each modality: mean contribution with its interval, and its interaction with each other."""
    header = ["modality", "contribution"]
    rows = [
        [one_line(name), f"{signed(mean.values[place])} ± {_interval(mean.errors[place])}"]
        for place, name in enumerate(mean.modalities)
    ]
    if mean.interactions is not None:
        header += [f"with {one_line(name)}" for name in mean.modalities]
        for i, row in enumerate(rows):
            row += [NOTHING if i == j else signed(mean.interactions[i, j]) for j in range(len(mean.modalities))]
    caption = "Means ± 95 % interval" if mean.interactions is None else "Means ± 95 % interval, and interactions"
    return TextTable(caption, tuple(header), tuple(map(tuple, rows)))


def _interval(error: float) -> str:
    return number(error) if error < float("inf") else NOTHING


def _say_decision(sample: ExplainedSample) -> str:
    if not sample.classification:
        numbers = sample.decision if isinstance(sample.decision, list) else [sample.decision]
        return f"Row {sample.row}: the prediction is {say_list(number(each) for each in numbers)}."
    assert sample.probability is not None
    return f"Row {sample.row}: the decision is {one_line(sample.decision)}, with probability {sample.probability:.3f}."


def _say_contributions(there: list[ModalityPart], what: str) -> list[str]:
    """Who raises the value and who lowers it, each from the largest to the smallest."""
    sentences = []
    for verb, sign in (("raises", 1), ("lowers", -1)):
        parts = [part for part in there if number(abs(part.contribution)) != "0.000" and sign * part.contribution > 0]
        parts.sort(key=lambda part: -abs(part.contribution))
        if parts:
            listed = [f"{one_line(part.name)} ({signed(part.contribution, part.error)})" for part in parts]
            said = verb if len(parts) == 1 else verb.removesuffix("s")
            sentences.append(f"{say_list(listed)} {said} {what}.")
    unmoved = [one_line(part.name) for part in there if number(abs(part.contribution)) == "0.000"]
    if unmoved:
        sentences.append(f"{say_list(unmoved)} {'does' if len(unmoved) == 1 else 'do'} not change it.")
    return sentences


def _say_without(sample: ExplainedSample, there: list[ModalityPart]) -> list[str]:
    if len(there) == 1 or not sample.classification:
        return []
    changed = [part for part in there if part.without != sample.decision]
    if not changed:
        return [f"The decision would still be {one_line(sample.decision)} without any one of the modalities."]
    return [f"Without {one_line(part.name)} the decision would be {one_line(part.without)}." for part in changed]


def _say_opinions(sample: ExplainedSample, there: list[ModalityPart]) -> list[str]:
    if not sample.classification or any(part.opinion is None for part in there):
        return []
    sentences = []
    agree = [one_line(part.name) for part in there if part.opinion == sample.decision]
    others = [
        f"that of {one_line(part.name)} says {one_line(part.opinion)} ({part.confidence:.2f})"
        for part in there
        if part.opinion != sample.decision
    ]
    decision = one_line(sample.decision)
    if not others:
        sentences.append(f"Every expert says {decision}." if len(there) > 1 else f"Its expert says {decision}.")
    elif agree:
        expert = "expert" if len(agree) == 1 else "experts"
        says = "says" if len(agree) == 1 else "say"
        sentences.append(f"The {expert} of {say_list(agree)} {says} {decision}; {say_list(others)}.")
    else:
        sentences.append(f"No expert says {decision}: {say_list(others)}.")
    if sample.excluded:
        sentences.append("The experts together exclude every class.")
    elif sample.conflict is not None and sample.conflict > CONTRADICTION:
        sentences.append(f"The experts contradict each other: conflict {sample.conflict:.2f} of 1.")
    return sentences


def _say_pairs(sample: ExplainedSample) -> list[str]:
    found: dict[str, list[str]] = {}
    for pair in sorted(sample.pairs or (), key=lambda pair: -abs(pair.interaction)):
        found.setdefault(pair.relation, []).append(f"{one_line(pair.first)} and {one_line(pair.second)}")
    return _say_groups(found)


def _say_groups(found: dict[str, list[str]]) -> list[str]:
    """A sentence for each relation; one for all pairs if they have the same."""
    meaning = {
        "redundant": "together they add less than apart",
        "complementary": "together they add more than apart",
        "conflicting": "one lowers what the other raises",
    }
    total = sum(map(len, found.values()))
    sentences = []
    for relation, words in meaning.items():
        pairs = found.get(relation, [])
        if not pairs:
            continue
        if len(pairs) == total > 1:
            sentences.append(f"All pairs of modalities are {relation}: {words}.")
            continue
        listed = "; ".join(pairs[:_MOST_PAIRS])
        if len(pairs) > _MOST_PAIRS:
            listed += f"; and {say_number(len(pairs) - _MOST_PAIRS, 'other pair')}"
        sentences.append(f"{capital(relation)} ({words}): {listed}.")
    return sentences


def _say_set(sample: ExplainedSample) -> list[str]:
    if sample.prediction_set is None:
        return [f"There is no conformal set: {one_line(sample.set_absence)}"] if sample.set_absence else []
    if not sample.classification:
        ends = " to ".join(number(end) for end in sample.prediction_set)
        return [f"The conformal interval with coverage {sample.coverage:g} is {ends}."]
    members = ", ".join(one_line(label) for label in sample.prediction_set)
    return [f"The conformal set with coverage {sample.coverage:g} is {f'{{{members}}}' if members else 'empty'}."]


def _opinion(part: ModalityPart) -> str:
    if part.opinion is None:
        return NOTHING
    if part.confidence is None:
        return number(part.opinion)
    return f"{one_line(part.opinion)} ({part.confidence:.2f})"


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def _without(part: ModalityPart) -> str:
    if not part.present or part.without_value is None:
        return NOTHING
    if part.without_probability is None:
        return number(part.without_value)
    return f"{one_line(part.without)} ({part.without_probability:.2f})"
