"""Every method on handwritten digits seen as four quadrants, under five ways for a quadrant to go wrong."""

from consilience.comparison.experiments.experiment import Experiment, Part, register_experiment

register_experiment(
    Experiment(
        name="digits-robustness",
        title="Digits in four quadrants: which method survives a broken quadrant?",
        parts={
            "digits": Part(
                {
                    "data": "digits",
                    "corruption": ["gaussian", "salt-and-pepper", "stuck", "swapped", "missing"],
                    "levels": (0, 1, 2, 5, 10),
                    "seeds": 20,
                },
                {"corruption": ["gaussian", "missing"], "levels": (0, 5, 10), "seeds": 2, "training": {"epochs": 20}},
            )
        },
        notes=(
            "There is no published table for this set; it is small enough to run anywhere and real enough to rank "
            "methods by how they take noise, rails, swaps and gaps.",
        ),
    )
)
