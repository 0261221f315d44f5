"""What to deploy, why, how sure that is, what each modality is worth and what to watch: a report's first lines."""

from __future__ import annotations

from dataclasses import dataclass

from consilience.comparison.chosen_method import Choice
from consilience.comparison.modality_contributions import contributions_over_seeds
from consilience.comparison.quick_default import seeds_at_once
from consilience.comparison.results import Block, Cell, Condition, Findings
from consilience.comparison.significance import too_few_seeds
from consilience.comparison.summary import summarise
from consilience.report.choice_words import say_published, say_sure
from consilience.report.confusion_section import say_rarely_found
from consilience.report.cost_section import cost_sentences
from consilience.report.wording import Scale, capital, one_line, say_list, say_metric, say_number


@dataclass(frozen=True)
class Recommendation:
    """What to do on one set.

    Attributes:
        set: The set.
        deploy: What to deploy, and which file it is.
        why: Why that method.
        points: Headings and sentences: how sure, what modalities are worth, what to watch, and the file.
    """

    set: str
    deploy: str
    why: str
    points: tuple[tuple[str, str], ...]

    @property
    def sentences(self) -> list[str]:
        """All of it in sentences, for a console."""
        return [self.deploy, self.why, *(text for _, text in self.points)]


def recommend(findings: Findings) -> list[Recommendation]:
    """Return what to deploy on each set where a method was chosen; methods stand in backticks."""
    blocks = {block.set: block for block in summarise(findings)}
    return [_recommend(findings, choice, blocks[name]) for name, choice in findings.choices.items() if name in blocks]


def notes_beside(findings: Findings) -> list[str]:
    """Return the notes that the recommendations do not say already."""
    if not findings.choices:
        return findings.notes
    others, at_once = len(findings.methods) - 1, seeds_at_once(findings.sets)
    few = too_few_seeds(len(findings.seeds), others, at_once=at_once) if others else None
    said = tuple(f"{choice.method} on {choice.set} trusts " for choice in findings.choices.values())
    return [note for note in findings.notes if note != few and not note.startswith(said)]


def _recommend(findings: Findings, choice: Choice, block: Block) -> Recommendation:
    points = [
        ("How sure", say_sure(choice, seeds_at_once(findings.sets))),
        # What a modality is worth is what losing it costs; results of earlier versions have contributions alone.
        ("Each modality", _say_cost(findings, choice) or _say_worth(findings, choice)),
        ("Watch", _say_what_to_watch(findings, choice, block)),
        ("The file", say_published(findings, choice)),
    ]
    return Recommendation(
        block.set,
        _say_deploy(findings, choice),
        _say_why(findings, choice, block),
        tuple((name, text) for name, text in points if text),
    )


def _say_deploy(findings: Findings, choice: Choice) -> str:
    where = f" on {one_line(choice.set)}" if len(findings.sets) > 1 else ""
    first = f"Deploy `{one_line(choice.method)}`{where}"
    published = choice.published
    if published is None:
        return f"{first}; `best/` holds no model yet."
    if published.method != choice.method:
        return f"{first}; `{one_line(published.folder)}/` still holds `{one_line(published.method)}`."
    return f"{first}: the trained model is `{one_line(published.folder)}/`."


def _say_why(findings: Findings, choice: Choice, block: Block) -> str:
    """Its place among the methods, and its results on test samples, clean and in the worst condition."""
    results = say_results(findings, block, choice.method)
    if len(choice.scores) < 2:
        return f"It is the only method with results; on test samples {results}." if results else ""
    if len(_clean_and_worst(findings, block, choice.method)) > 1:
        results += ", the hardest condition tested"
    first = f"Of {len(choice.scores)} methods it predicts validation samples best, clean and corrupted together"
    others = [method for method in choice.scores if method != choice.method]
    second = _say_same(findings, block, others[0], choice.method)
    follows = f" (`{one_line(others[0])}`, which comes second: {second})" if second else ""
    return f"{first}; on test samples {results}{follows}." if results else f"{first}."


def say_results(findings: Findings, block: Block, method: str) -> str:
    """Return a method's result on clean test samples and under its worst condition, in words."""
    scale, measured = Scale.of_block(block), _clean_and_worst(findings, block, method)
    if not measured:
        return ""
    amounts = (f"{scale.number(cell.mean)}{scale.unit} {_where(condition)}" for condition, cell in measured)
    return f"its {say_metric(findings.metric)} is " + " and ".join(amounts)


def _say_same(findings: Findings, block: Block, method: str, chosen: str) -> str:
    """The results of a method under the conditions that are named for the chosen one, numbers alone."""
    scale, cells = Scale.of_block(block), dict(_cells(block, method))
    named = [condition for condition, _ in _clean_and_worst(findings, block, chosen)]
    return " and ".join(f"{scale.number(cells[each].mean)}{scale.unit}" for each in named if each in cells)


def _clean_and_worst(findings: Findings, block: Block, method: str) -> list[tuple[Condition, Cell]]:
    clean = [pair for pair in _cells(block, method) if pair[0].clean][:1]
    worst = worst_condition(findings, block, method)
    return clean if worst is None else [*clean, worst]


def _where(condition: Condition) -> str:
    return "when clean" if condition.clean else f"under {one_line(condition.words)}"


def worst_condition(findings: Findings, block: Block, method: str) -> tuple[Condition, Cell] | None:
    """Return the corrupted condition under which a method's mean result is worst; None if none was measured."""
    corrupted = [pair for pair in _cells(block, method) if not pair[0].clean]
    if not corrupted:
        return None
    pick = min if findings.larger_is_better else max
    return pick(corrupted, key=lambda pair: pair[1].mean)


def _cells(block: Block, method: str) -> list[tuple[Condition, Cell]]:
    row = next((row for row in block.rows if row.method == method), None)
    if row is None:
        return []
    return [(condition, cell) for condition, cell in zip(block.conditions, row.cells) if cell is not None]


def _say_cost(findings: Findings, choice: Choice) -> str:
    """Which modality costs most if it is lost, without the set, which the first sentence names."""
    sentences = cost_sentences(findings, choice.set)[:1]
    return capital(sentences[0].removeprefix(f"On {one_line(choice.set)}, ")) if sentences else ""


def _say_worth(findings: Findings, choice: Choice) -> str:
    """What each modality contributes to the chosen method, from the most to the least."""
    for block in contributions_over_seeds(findings):
        row = next((row for row in block.rows if row.method == choice.method), None)
        if block.set != choice.set or row is None or len(block.modalities) < 2:
            continue
        scale = Scale.of(block.metric, [std for each in block.rows for std in each.stds])
        order = sorted(range(len(block.modalities)), key=lambda place: -row.mean.values[place])
        error = block.error
        none = scale.number(-row.mean.none if error else row.mean.none) + scale.unit
        verb, points = "lowers it by" if error else "adds", " points" if scale.unit else ""
        listed = say_list(
            f"{one_line(block.modalities[place])} {verb if number == 0 else ''} {scale.number(row.mean.values[place])}"
            for number, place in enumerate(order)
        )
        return f"With no modality its {say_metric(block.metric)} is {none}; {' '.join(listed.split())}{points}."
    return ""


def _say_what_to_watch(findings: Findings, choice: Choice, block: Block) -> str:
    """Classes that it rarely finds, its worst seed, and modalities that it trusts more when they are wrong."""
    scale, measured = Scale.of_block(block), _clean_and_worst(findings, block, choice.method)
    sentences = [say_rarely_found(findings, choice.set)]
    if len(measured) > 1:
        (_, clean), (_, worst) = measured
        if worst.mean >= clean.mean if findings.larger_is_better else worst.mean <= clean.mean:
            sentences.append("No tested corruption makes it worse than on clean data.")
        elif worst.seeds > 1:
            amounts = say_list(f"{scale.number(cell.worst)}{scale.unit} {_where(where)}" for where, cell in measured)
            sentences.append(
                f"With the worst of {say_number(worst.seeds, 'seed')} its {say_metric(findings.metric)} is {amounts}."
            )
    mark = f"{choice.method} on {choice.set} trusts "
    sentences += [f"It trusts {note.removeprefix(mark)}" for note in findings.notes if note.startswith(mark)]
    return " ".join(sentence for sentence in sentences if sentence)
