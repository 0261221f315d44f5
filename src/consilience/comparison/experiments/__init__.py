"""The named experiments, one file each. A file dropped in here is found by itself."""

import importlib
import pkgutil

from consilience.comparison.experiments.experiment import (
    Reproducible,
    Reproduction,
    experiments,
    find_experiment,
    register_experiment,
)

for _module in pkgutil.iter_modules(__path__, __name__ + "."):
    importlib.import_module(_module.name)

__all__ = [
    "Reproducible",
    "Reproduction",
    "experiments",
    "find_experiment",
    "register_experiment",
]
