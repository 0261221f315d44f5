"""In which order the members of `auto` are trained, and what becomes of them when time is short or Ctrl-C comes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from consilience.methods.opinions.unimodal import FOR_EXPERTS
from consilience.training import Trainer
from consilience.training.lockstep import CrossFit
from consilience.training.loggers import announce
from consilience.training.time_limit import said_before

logger = logging.getLogger("consilience")
# What a member sees that sees all modalities, and the name of one that is its modality's only one.
ALL, EXPERT = "all", "expert"


@dataclass(frozen=True)
class Task:
    """The cross-fitting of one member.

    Attributes:
        modality: What the member sees, or `ALL`.
        name: Of the member.
        train: Cross-fits it with a trainer; None after an interruption.
        first: Whether it is trained however short the time is: without it a modality would have no member.
        seconds: About how long it takes; None: its training can end at any step.
    """

    modality: str
    name: str
    train: Callable[[Trainer], CrossFit | None]
    first: bool = False
    seconds: float | None = None

    @property
    def title(self) -> str:
        """The member in words."""
        what = "logistic regression" if self.name == "linear" else self.name
        return f"the {what} over all modalities" if self.modality == ALL else f"the {what} of {self.modality!r}"


@dataclass
class Outcome:
    """What was trained.

    Attributes:
        fitted: (modality, member) → its cross-fitting.
        left_out: Members that there was no time for, or that Ctrl-C came before or during.
        interrupted: Whether Ctrl-C ended the training.
        stopped: The member that was being trained then.
    """

    fitted: dict[tuple[str, str], CrossFit] = field(default_factory=dict)
    left_out: list[Task] = field(default_factory=list)
    interrupted: bool = False
    stopped: Task | None = None

    def of(self, modality: str) -> dict[str, CrossFit]:
        """Return member → its cross-fitting, of one modality."""
        return {name: found for (own, name), found in self.fitted.items() if own == modality}


def in_order_of_worth(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks as they are trained: what each modality cannot do without, then the quick ones, then networks.

    Linear models and trees take a small share of the time and are most of what a pool gains; of the networks, the one
    over all modalities comes first (docs/defaults.md).
    """
    return sorted(tasks, key=lambda task: (not task.first, task.seconds is None, task.modality != ALL))


def train_members(tasks: Sequence[Task], trainer: Trainer) -> Outcome:
    """Cross-fit members one after the other, within the trainer's time.

    With a time limit, a share of it is kept for what is learned from their opinions. A member that is not the first of
    its modality is left out if it would take longer than is left, and networks share what is left equally.

    Args:
        tasks: In order.
        trainer: How to train, and when to end.
    """
    outcome, deadline = Outcome(), None if trainer.deadline is None else trainer.deadline.start()
    kept = 0.0 if deadline is None else deadline.left() * (1 - FOR_EXPERTS)
    for number, task in enumerate(tasks):
        if trainer.interrupted:
            outcome.left_out.append(task)
            continue
        within = trainer
        if deadline is not None:
            left = deadline.left() - kept
            if not task.first and left <= (task.seconds or 0):
                outcome.left_out.append(task)
                continue
            waiting = sum(other.seconds is None for other in tasks[number:])
            if task.seconds is None and deadline.left() > 0:
                within = trainer.part(max(left, 0) / waiting / deadline.left())
        began = time.perf_counter()
        found = task.train(within)
        if found is None:
            outcome.left_out.append(task)
            outcome.stopped = task
            continue
        outcome.fitted[task.modality, task.name] = found
        if trainer.verbose:
            over = "" if deadline is None else f", {max(deadline.left(), 0):.0f} s left"
            loss = "" if found.loss != found.loss else f" held-out loss {found.loss:.4f},"
            took = time.perf_counter() - began
            announce(f"{task.title}:{loss} {took:.1f} s; {number + 1} of {len(tasks)} members{over}", trainer.verbose)
    outcome.interrupted = trainer.interrupted
    return outcome


def say_left_out(name: str, outcome: Outcome, untrained: Sequence[str], seconds: float | None) -> None:
    """Write a warning to the log about the members that the model lacks; nothing if it has all.

    Args:
        name: The method.
        outcome: What was trained.
        untrained: Modalities without any trained member.
        seconds: The time limit, if there is one; a trainer may have a deadline of its own instead.
    """
    if not outcome.left_out or (not outcome.interrupted and said_before(f"{name} left members out")):
        return
    lacking = ", ".join(task.title for task in outcome.left_out)
    text = f"{name}: {lacking} {'is' if len(outcome.left_out) == 1 else 'are'} left out"
    if outcome.interrupted:
        text += ", since training was interrupted"
    else:
        within = "" if seconds is None else f" within {seconds:g} s"
        text += f": there was no time{within}. Give a longer time_limit for the whole model"
    if untrained:
        text += f". Nothing was learned from {', '.join(map(repr, untrained))}: its expert knows the class shares alone"
    logger.warning("%s", text)
