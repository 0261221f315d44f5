"""Generate modalities from others with a saved latent model: arrays, and a picture beside the true values."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from consilience.cli import options
from consilience.core.errors import InputError, unknown_name
from consilience.core.file_names import file_name
from consilience.core.files import write_atomically
from consilience.core.settings import NonNegativeInt, PositiveInt

if TYPE_CHECKING:
    import numpy as np
    from jsonargparse import ArgumentParser, Namespace

    from consilience.core.samples import Samples
    from consilience.methods.latent.trained_latent_model import TrainedLatent
    from consilience.report.sample_pictures import Column

USAGE = "MODEL [--given NAME …] [--of NAME …] [options]"
EXAMPLES = """  consilience generate model --given top_left top_right --of bottom_left bottom_right --out generated
  consilience generate model --of top_left top_right --number 5"""
ARRAYS, PICTURE = "generated.npz", "generated.png"
MOST_ROWS = 40  # rows of the picture; more would take minutes to draw


def add_arguments(parser: ArgumentParser) -> None:
    """Add model, modalities, data and output folder."""
    parser.add_argument("model", type=str, help="folder with a model of method m2vae, or a saved MultimodalVAE")
    parser.add_argument(
        "--given", type=str, nargs="+", metavar="NAME", help="modalities to condition on; none if absent"
    )
    parser.add_argument(
        "--of", type=str, nargs="+", metavar="NAME", help="modalities to generate; all others if absent"
    )
    parser.add_argument(
        "--data",
        type=str,
        metavar="DATA",
        help="name of a data set (its test part) or a file; if absent, the training data set",
    )
    add = partial(options.add_option, parser)
    add("samples", PositiveInt, "draws per sample; if absent, the expected value", metavar="K")
    add("number", PositiveInt, "rows of the picture; samples to generate without --given", default=8)
    parser.add_argument("--out", type=str, default="generated", metavar="FOLDER", help="output folder")
    add("seed", NonNegativeInt, "seed of the draws", default=0)
    options.add_passed_encoders(parser)


def run(chosen: Namespace, command: list[str]) -> None:
    """Generate, and write the arrays and the picture."""
    from consilience.estimators import load
    from consilience.report.sample_pictures import Column, draw_samples

    folder = Path(chosen.out)
    options.check_out(folder)
    model = load(chosen.model, encoders=options.encoders(chosen))
    trained = latent_of(model, chosen.model)
    given = known_names(trained, chosen.given or [])
    of = known_names(trained, chosen.of or [name for name in trained.names if name not in given])
    if twice := [name for name in of if name in given]:
        raise InputError(f"generate: {', '.join(twice)} is both given and to be generated")
    rows = min(chosen.number, MOST_ROWS)
    if given:
        samples = read(model, trained, chosen.data)
        if lacking := [name for name in given if name not in samples.names]:
            raise InputError(f"generate: --given {' '.join(lacking)}, but {chosen.data} has no values of it")
        made = trained.generate(samples, of, given, draws=chosen.samples, seed=chosen.seed)
        columns = beside_true(trained, samples, made, given, rows, chosen.samples or 0)
    else:
        made = trained.sample(chosen.number, of, seed=chosen.seed)
        columns = [Column(name, trained.preparation.raw[name], values[:rows]) for name, values in made.items()]
    write_atomically(folder / ARRAYS, partial(write_arrays, made))
    write_atomically(folder / PICTURE, partial(draw_samples(columns).savefig, dpi=150))
    shown = f" (the first {rows})" if rows < chosen.number else ""
    print(f"arrays: {folder / ARRAYS}\npicture: {folder / PICTURE}{shown}")


def write_arrays(arrays: Mapping[str, np.ndarray], file: IO[bytes]) -> None:
    """Write an .npz file with the arrays by the names of their modalities, as far as these can be names of files."""
    import numpy as np

    with zipfile.ZipFile(file, "w") as archive:  # numpy.savez takes no array called "file"
        for name, values in arrays.items():
            with archive.open(f"{file_name(name)}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values.astype(str) if values.dtype == object else values)


def latent_of(model: Any, path: str) -> TrainedLatent:
    """Return the latent model of a loaded model."""
    from consilience.estimators import MultimodalVAE
    from consilience.methods.latent.latent_method import LatentFusion
    from consilience.methods.latent.trained_latent_model import TrainedLatent

    if isinstance(model, MultimodalVAE):
        return model.trained_
    method = getattr(getattr(model, "model_", None), "method", None)
    if isinstance(method, LatentFusion):
        return TrainedLatent(method.latent_model, model.model_.preparation)
    if hasattr(model, "imputer_"):
        return model.imputer_
    raise InputError(
        f"generate: the model in {path} has no decoders; train one with --method m2vae, or save a MultimodalVAE"
    )


def known_names(trained: TrainedLatent, names: list[str]) -> list[str]:
    """Check names of modalities, and return each once."""
    for name in names:
        if name not in trained.names:
            raise unknown_name("modality", name, trained.names)
    return list(dict.fromkeys(names))


def read(model: Any, trained: TrainedLatent, data: str | None) -> Samples:
    """Read the test part of a named data set, by default the one of training, or a file."""
    from consilience.data import load_data
    from consilience.data.named_sets import DATA_SETS

    recipe = getattr(getattr(model, "model_", None), "recipe", None) or getattr(model, "recipe_", None) or {}
    name = data or recipe.get("data")
    if name is not None and name in DATA_SETS:
        samples = load_data(name).test
    elif data is None:
        raise InputError("generate: give the data to condition on with --data, the name of a data set or a file")
    elif recipe:
        samples = model.read(data)
    else:
        samples = read_arrays(trained, Path(data))
    known = [name for name in samples.names if name in trained.names]
    if not known:
        raise InputError(f"generate: {name} has none of the model's modalities, {', '.join(trained.names)}")
    return samples.only(known).without_targets()


def read_arrays(trained: TrainedLatent, path: Path) -> Samples:
    """Read one array per modality from an .npz file."""
    from consilience.core.samples import Samples
    from consilience.data.files.arrays import read_npz

    if path.suffix != ".npz" or not path.exists():
        raise InputError(
            "generate: this model was not trained on a file or a named data set, so --data must be the name of a data "
            f"set or an .npz file with an array per modality, got {path}"
        )
    values = read_npz(path, only=trained.names)
    if not values:
        raise InputError(f"generate: {path} has none of the model's modalities, {', '.join(trained.names)}")
    return Samples.of(values, kinds={name: trained.preparation.raw[name].kind for name in values})


def beside_true(
    trained: TrainedLatent, samples: Samples, made: dict[str, Any], given: list[str], number: int, draws: int
) -> list[Column]:
    """Return the columns of the picture: what was given, then each true modality and what was generated."""
    from consilience.report.sample_pictures import Column

    rows = slice(min(number, len(samples)))

    def true(name: str, title: str) -> Column:
        return Column(title, samples.modalities[name], samples.read(name, rows), ~samples.present_in(name)[rows])

    columns = [true(name, name) for name in given if name in samples]
    for name, values in made.items():
        columns += [true(name, f"{name},\ntrue")] if name in samples else []
        each = values[:3] if draws else values[None]
        titles = [f"draw {draw + 1}" for draw in range(len(each))] if draws else ["generated"]
        columns += [
            Column(f"{name},\n{title}", trained.preparation.raw[name], drawn[rows])
            for title, drawn in zip(titles, each)
        ]
    return columns
