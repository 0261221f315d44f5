"""Which model was published, how it was trained, and how sure the choice is, in sentences."""

from __future__ import annotations

from itertools import count

from consilience.comparison.chosen_method import Choice, Published
from consilience.comparison.results import Findings
from consilience.comparison.significance import reachable
from consilience.report.wording import Scale, one_line, say_list, say_metric, say_number

_LIKELY, _SHARE_TO_NAME = 0.95, 0.05  # shares of resamples in which a method comes first


def say_published(findings: Findings, choice: Choice) -> str:
    """Return which model `best/` holds and what it was trained on."""
    published = choice.published
    if published is None:
        return f"`best/` holds no model yet; the same call of `compare` trains `{one_line(choice.method)}` for it."
    folder, method = f"`{one_line(published.folder)}/`", f"`{one_line(published.method)}`"
    if published.refitted:
        trained = (
            f"{method}, trained once more on all {say_number(published.rows, 'sample')} of the train and validation "
            f"parts with seed {published.seed}{_say_steps(published)}"
        )
    else:
        trained = (
            f"{method} as trained with seed {published.seed}, its median one on validation, on "
            f"{say_number(published.rows, 'training sample')}"
        )
    metric = findings.metric
    if metric in published.values:
        scale = Scale.of(metric)
        amount = f"{scale.number(published.values[metric])}{scale.unit}"
        tested = say_number(published.tested, "test sample")
        trained += f"; its {say_metric(metric)} on the {tested}, which it has not seen, is {amount}"
    if published.method != choice.method:
        trained += f". It is not the method chosen now: the same call of `compare` trains `{one_line(choice.method)}`"
    elif choice.reason:
        trained += f". It was not refitted: {one_line(choice.reason)}"
    return f"{folder} holds {trained}."


def _say_steps(published: Published) -> str:
    """For how long, run by run: only some end after a number of steps that early stopping found in the comparison."""
    by_steps = [run for run, end in zip(published.steps, published.stopped_by) if end == "steps"]
    if not published.stopped_by and len(published.steps) == 1:  # a model of an earlier version, which does not say
        by_steps = list(published.steps)
    steps = [count for run in by_steps for count in run]
    if not steps:
        return ", its parts stopped by held-out samples of their own" if "held-out" in published.stopped_by else ""
    if len(steps) == 1:
        words = f" for {say_number(steps[0], 'step')}, as many as early stopping found"
    else:
        words = f" for as many steps as early stopping found ({min(steps)} to {max(steps)} in {len(steps)} runs)"
    others = published.stopped_by.count("held-out")
    return words + (f", {say_number(others, 'other run')} stopped by held-out samples" if others else "")


def say_sure(choice: Choice, seeds_at_once: int = 1) -> str:
    """Return how sure the choice is, in one sentence, and by what it was made, in another."""
    if len(choice.scores) < 2:
        return "No other method was compared."
    score = Scale.of(choice.metric)
    basis = (
        f"It was chosen by its {say_metric(choice.metric)} on validation samples, clean and corrupted "
        f"({score.number(choice.score)}{score.unit}, mean over {say_number(choice.seeds, 'seed')})."
    )
    return f"{say_certainty(choice, seeds_at_once)} {basis}"


def say_certainty(choice: Choice, seeds_at_once: int = 1) -> str:
    """Return a verdict with its reasons: how often the method comes first, and from which others it differs."""
    what = "seeds and rows" if choice.by_rows else "seeds"
    first = f"`{one_line(choice.method)}` comes first in {_say_share(choice.share)} of resamples of {what}"
    if not choice.rivals:
        return f"As certain as these data allow: {first}, and every other method is significantly worse."
    likely = choice.share >= _LIKELY
    verdict = "Likely, but not proven" if likely else "Not certain"
    follows = "" if likely else _say_close(choice)
    return f"{verdict}: {first}{follows}, {'but' if likely else 'and'} {_say_untold(choice, seeds_at_once)}."


def _say_close(choice: Choice) -> str:
    """Which other methods come first in the rest of the resamples."""
    order = sorted(choice.shares, key=lambda name: -choice.shares[name])
    others = [name for name in order if name != choice.method and choice.shares[name] >= _SHARE_TO_NAME]
    listed = say_list(f"`{one_line(name)}` in {_say_share(choice.shares[name])}" for name in others)
    return f", {listed}" if others else ""


def _say_share(share: float) -> str:
    """A share in whole per cent; only all of them are 100 %.

    >>> _say_share(0.874), _say_share(0.9999), _say_share(1.0)
    ('87 %', 'more than 99 %', '100 %')
    """
    return "more than 99 %" if 0.995 <= share < 1 else f"{100 * share:.0f} %"


def _say_untold(choice: Choice, seeds_at_once: int) -> str:
    """Why it is not proven: too few seeds for any test, or rivals from which it does not differ significantly."""
    comparisons = len(choice.scores) - 1
    if not reachable(choice.seeds, comparisons):
        more = count(choice.seeds + 1)
        enough = next(seeds for seeds in more if seeds % seeds_at_once == 0 and reachable(seeds, comparisons))
        few = f"{say_number(choice.seeds, 'seed')} {'is' if choice.seeds == 1 else 'are'} too few"
        return f"{few} for any significance; `--seeds {enough}` in the same folder would do"
    rivals = [f"`{one_line(method)}`" for method in choice.rivals]
    if len(rivals) == comparisons and len(rivals) > 3:
        return "its lead over no other method is significant"
    return f"its lead over {say_list(rivals)} is not significant"
