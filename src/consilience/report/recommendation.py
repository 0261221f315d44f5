"""What to deploy, why, how sure that is, what each modality is worth and what to watch: a report's first lines."""

from __future__ import annotations

from dataclasses import dataclass

from consilience.comparison.chosen_method import Choice
from consilience.comparison.modality_contributions import contributions_over_seeds
from consilience.comparison.results import Block, Cell, Condition, Findings
from consilience.comparison.summary import summarise
from consilience.report.choice_words import say_choice, say_published
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


def _recommend(findings: Findings, choice: Choice, block: Block) -> Recommendation:
    points = [
        ("How sure", _say_sure(choice)),
        ("Each modality", _say_worth(findings, choice)),
        ("Losing one", " ".join(cost_sentences(findings, choice.set))),
        ("Watch", _say_worst(findings, choice, block)),
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


def _say_sure(choice: Choice) -> str:
    if len(choice.scores) < 2:
        return "No other method was compared."
    certain = "Not certain: others may be as good." if choice.rivals else "As certain as these data allow."
    return f"{certain} {say_choice(choice)}"


def _say_worth(findings: Findings, choice: Choice) -> str:
    """What each modality contributes to the chosen method, from the most to the least."""
    for block in contributions_over_seeds(findings):
        row = next((row for row in block.rows if row.method == choice.method), None)
        if block.set != choice.set or row is None or len(block.modalities) < 2:
            continue
        scale = Scale.of(block.metric, [std for each in block.rows for std in each.stds])
        order = sorted(range(len(block.modalities)), key=lambda place: -row.mean.values[place])
        listed = say_list(
            f"{one_line(block.modalities[place])} {scale.signed(row.mean.values[place])}" for place in order
        )
        points = " points" if scale.unit else ""
        lowers = ", where positive lowers the error" if block.metric == "mse" else ""
        none = scale.number(-row.mean.none if block.metric == "mse" else row.mean.none) + scale.unit
        metric, method = say_metric(block.metric), one_line(choice.method)
        return f"To the {metric} of `{method}`, {none} with no modality, contribute: {listed}{points}{lowers}."
    return ""


def _say_worst(findings: Findings, choice: Choice, block: Block) -> str:
    """The condition that costs the chosen method most, and modalities that it trusts more when they are wrong."""
    scale, worst = Scale.of_block(block), worst_condition(findings, block, choice.method)
    clean = next((cell for condition, cell in _cells(block, choice.method) if condition.clean), None)
    sentences = []
    if worst is not None and clean is not None:
        condition, cell = worst
        lost = scale.number(abs(clean.mean - cell.mean))
        points = " points" if scale.unit else ""
        seeds = f"; {scale.number(cell.worst)}{scale.unit} with the worst of {say_number(cell.seeds, 'seed')}"
        better = cell.mean >= clean.mean if findings.larger_is_better else cell.mean <= clean.mean
        if better:
            sentences.append("No tested corruption makes it worse than on clean data.")
        else:
            sentences.append(
                f"{capital(one_line(condition.words))} costs it most: {lost}{points} of {say_metric(findings.metric)}"
                f"{seeds if cell.seeds > 1 else ''}."
            )
    mark = f"{choice.method} on {choice.set} trusts "
    sentences += [f"It trusts {note.removeprefix(mark)}" for note in findings.notes if note.startswith(mark)]
    return " ".join(sentences)
