"""AV-MNIST with new pairs and new noise in every epoch, for many models at once: no model can memorise a pair.

Images and recordings are those of `av-mnist`, kept once on the device. Which recording goes with which image is drawn
anew for every epoch, by the functions of the data set and with its dial of dependence; so is the noise of the sound.
Validation and test pairs are drawn once for each seed, among images and recordings that no training pair has.
"""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch

from consilience.core.modalities import Modality
from consilience.core.targets import Task
from consilience.data import load_data
from consilience.data.sets.avmnist import pair
from consilience.data.sets.shared_nuisances import share_style
from consilience.training.stacked_data import Trials

NAMES = ("image", "audio")
# Part → number in the seeds of its pairs.
_STREAMS = {"train": 1, "validation": 2, "test": 3}


def arrays_of(build):
    """What is drawn from: arrays by name. build: options of `av-mnist`, or `arrays`, the file that `keep` wrote."""
    if "arrays" in build:
        with np.load(build["arrays"]) as file:
            return {name: file[name] for name in file.files}
    data = load_data("av-mnist", **build)
    audio, style = data.samples["audio"], data.extra["style"]
    digit, part, loudness = (np.zeros(len(audio.base), dtype=kind) for kind in (np.int64, "<U10", np.float64))
    for known, values in ((digit, data.y), (part, data.split), (loudness, style["audio"])):
        known[audio.rows] = values
    return {
        "image": np.asarray(data.samples["image"]),
        "digit": np.asarray(data.y),
        "part": np.asarray(data.split).astype("<U10"),
        "ink": style["image"],
        "audio": np.asarray(audio.base),
        "spoken": digit,
        "part_of_recording": part,
        "loudness": loudness,
    }


def keep(path, build):
    """Write the arrays to a file, for a machine without the files of the data set."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays_of(build))


@dataclass(frozen=True, eq=False)
class FreshPairs:
    """Images, recordings and their pairs, standardised by the training images and the training recordings.

    Args:
        arrays: What `arrays_of` returns.
        noise: Standard deviation, in bytes, of the noise of the sound.
        epoch_pairs: Pairs of an epoch.
        device: Where everything is.
    """

    arrays: dict
    noise: float
    epoch_pairs: int
    device: str

    @property
    def modalities(self):
        return {name: Modality(name, "image", self.arrays[name].shape[1:]) for name in NAMES}

    @property
    def task(self):
        return Task.of_labels(self.arrays["digit"])

    @property
    def augmenter(self):
        """Adds new noise to the sound of a batch."""
        return _Noise(self)

    def validation(self, asked):
        """Validation pairs of each model. asked: for each a dependence and a seed."""
        return self._fixed("validation", asked)

    def test(self, asked):
        """Test pairs of each model. asked: for each a dependence and a seed."""
        return self._fixed("test", asked)

    def train(self, asked):
        """Training pairs of each model in the first epoch. asked: for each a dependence and a seed."""
        values = {name: self.bank[name][None].expand(len(asked), *[-1] * self.bank[name].ndim) for name in NAMES}
        empty = torch.zeros(len(asked), self.epoch_pairs, dtype=torch.long, device=self.device)
        whole = Trials(values, empty, dict.fromkeys(NAMES, empty))
        return self._renewed(0, asked, whole)

    def renewing(self, asked):
        """What `train_side_by_side` calls before every epoch."""
        return lambda epoch, going, train: self._renewed(epoch, [asked[trial] for trial in going], train)

    def noisy(self, values, generator):
        """Standardised sound of bytes without noise, with noise that is clipped as bytes are."""
        mean, spread = self.scale["audio"]
        drawn = torch.randn(values.shape, device=self.device, generator=generator)
        return (((values * spread + mean) + self.noise * drawn).round().clamp(0, 255) - mean) / spread

    @property
    def scale(self):
        """Modality → mean and standard deviation of its training pixels."""
        return _once(self, "scale", self._measure_scale)

    @property
    def bank(self):
        """Modality → all its standardised values, without noise: `[row, 1, height, width]`."""
        return _once(self, "bank", self._make_bank)

    def _measure_scale(self):
        parts = {"image": self.arrays["part"], "audio": self.arrays["part_of_recording"]}
        known = {name: self.arrays[name][parts[name] == "train"].astype(np.float64) for name in NAMES}
        return {name: (float(values.mean()), float(values.std())) for name, values in known.items()}

    def _make_bank(self):
        return {
            name: (torch.from_numpy(self.arrays[name]).to(self.device).float() - self.scale[name][0])
            / self.scale[name][1]
            for name in NAMES
        }

    def _renewed(self, epoch, asked, train):
        drawn = [self.pairs("train", dependence, seed, epoch) for dependence, seed in asked]
        images, recordings = (torch.from_numpy(np.stack(rows)).to(self.device) for rows in zip(*drawn))
        labels = torch.from_numpy(self.arrays["digit"]).to(self.device)
        return replace(train, y=labels[images], places={"image": images, "audio": recordings})

    def _fixed(self, part, asked):
        """Pairs that stay, with their noise; models that ask for the same share memory where they all do."""
        chosen = {one: self._fixed_one(part, *one) for one in dict.fromkeys(asked)}
        trials = [chosen[one] for one in asked]
        values = {name: torch.stack([each[0][name] for each in trials]) for name in NAMES}
        return Trials(values, torch.stack([each[1] for each in trials]))

    def _fixed_one(self, part, dependence, seed):
        images, recordings = (torch.from_numpy(rows).to(self.device) for rows in self.pairs(part, dependence, seed))
        generator = torch.Generator(self.device).manual_seed(10 * seed + _STREAMS[part])
        values = {"image": self.bank["image"][images]}
        values["audio"] = self.noisy(self.bank["audio"][recordings], generator)
        return values, torch.from_numpy(self.arrays["digit"]).to(self.device)[images]

    def pairs(self, part, dependence, seed, epoch=0):
        """Rows of images and of recordings: of a part all images, in training as many as an epoch has pairs."""
        return _once(self, ("pairs", part, dependence, seed, epoch), lambda: self._pair(part, dependence, seed, epoch))

    def _pair(self, part, dependence, seed, epoch):
        arrays, stream = self.arrays, int(np.random.SeedSequence([seed, epoch, _STREAMS[part]]).generate_state(1)[0])
        images = np.flatnonzero(arrays["part"] == part)
        if part == "train":
            order = np.random.default_rng([seed, epoch]).permutation(images)
            images = np.sort(order[: self.epoch_pairs])
        recordings = np.flatnonzero(arrays["part_of_recording"] == part)
        digits = arrays["digit"][images]
        rows = pair(digits, arrays["spoken"], recordings, stream)
        rows = share_style(rows, digits, arrays["ink"][images], arrays["loudness"], dependence, stream)
        return images, rows


class _Noise:
    """In the place of `StackedAugmenter`: noise on the sound of a batch, drawn on the device."""

    def __init__(self, pairs):
        self.pairs = pairs

    def only(self, trials):
        return self

    def apply(self, noise, batch, rows, train):
        values = dict(batch.values)
        values["audio"] = self.pairs.noisy(values["audio"], None)
        return replace(batch, values=values)


@cache
def _memory(pairs):
    return {}


def _once(pairs, what, make):
    """What a function gives, kept for as long as the process lives."""
    known = _memory(pairs)
    if what not in known:
        known[what] = make()
    return known[what]
