"""What a latent model learns from, one file each: named terms for every sample, of which their sum is minimised."""

from consilience.methods.latent.objectives.objective import (
    Objective,
    build_objective,
    objective_names,
    register_objective,
)

from consilience.methods.latent.objectives import (  # isort: skip  (they register themselves)
    jmvae,
    joint,
    m2vae,
    mmvae,
    mopoe,
    mvae,
    mvtcae,
    vae,
)

__all__ = [
    "Objective",
    "build_objective",
    "jmvae",
    "joint",
    "m2vae",
    "mmvae",
    "mopoe",
    "mvae",
    "mvtcae",
    "objective_names",
    "register_objective",
    "vae",
]
