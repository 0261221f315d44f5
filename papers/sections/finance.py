"""The section on constants of the pages on stocks: on which scale errors lie for each reading of the paper."""

import numpy as np

from consilience.comparison.comparison import read_finished
from consilience.core.errors import InputError
from consilience.data import load_data
from consilience.evaluation import mse
from consilience.report.document import Section, TextTable
from consilience.report.wording import NOTHING, Scale
from consilience.reproduction.protocol_sections import Addition

SECTORS = {"food": "F&B", "health": "HEALTH", "tech": "TECH"}
# Which data a table may be of: the words, what follows the sector in the group's name, the options of the set.
READINGS = (
    ("a constant: MultiBench's group, one target, 500 days", "", {"targets": "one", "window": 500}),
    ("a constant: MultiBench's group, all targets, 500 days", "", {"targets": "all", "window": 500}),
    ("a constant: appendix C's group, one target, 750 days", "-large", {"targets": "one", "window": 750}),
    ("a constant: appendix C's group, all targets, 750 days", "-large", {"targets": "all", "window": 750}),
)


def constants(protocol, comparisons, *, published):
    """Errors of the training mean on the test days of each reading; published: model → sector → the paper's error."""
    errors = {f"published, {model}": figures for model, figures in published.items()}
    for reading, suffix, options in READINGS:
        errors[reading] = {sector: constant_error(f"{sector}{suffix}", **options) for sector in SECTORS}
    errors["the best constant in hindsight, on what was compared here"] = {
        sector: variance_compared(comparison) for sector, comparison in comparisons.items()
    }
    scale = Scale()
    rows = ((of, *(scale.number(figures.get(sector)) for sector in SECTORS)) for of, figures in errors.items())
    table = TextTable("Mean squared error", ("of", *SECTORS.values()), tuple(rows))
    words = (
        "A constant, the mean of the training targets, scores about as much as the variance of the test targets: it "
        "shows on which scale errors lie, and models of volatility are rarely far below it. So it tells which stocks "
        f"and targets a table is of. {NOTHING}: the file has no prices of that group.",
    )
    return Addition([Section("constants", "What a constant scores", words, (table,))])


def constant_error(group, **options):
    """The mean squared error of the mean training target on the test days; None where prices are not there."""
    try:
        data = load_data("finance", group=group, **options)
    except InputError:  # a file that holds the compared groups only
        return None
    constant = data.y[data.split == "train"].mean(axis=0)
    test = data.y[data.split == "test"]
    return mse(test, np.broadcast_to(constant, test.shape))


def variance_compared(comparison):
    """The variance of the test targets, mean over targets, as kept with a comparison's results."""
    for _, result in read_finished(comparison.store, comparison.store.read_plan()):
        if not result.failed:
            y = result.arrays["y"]
            return float(y.reshape(len(y), -1).var(axis=0).mean())
    return None
