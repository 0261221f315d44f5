"""Frozen features: each sample passes through a pretrained model once, and only what follows is trained.

The model is part of the preparation, not of the method: methods see a vector. Corruption acts on raw samples, so that
corrupted samples are encoded again and robustness is measured on the whole chain.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from consilience.core.errors import InputError, SavedModelError, unknown_name
from consilience.core.row_cache import cache_folder
from consilience.core.samples import Kind, Modality, Samples
from consilience.core.seeding import seeded
from consilience.core.settings import PositiveInt, Rate
from consilience.corruption import Statistics
from consilience.encoders.choice import register_encoder
from consilience.encoders.feature_cache import DiskCache, MemoryCache, row_keys
from consilience.encoders.foreign_files import passed_settings
from consilience.encoders.mlp import Mlp
from consilience.encoders.pretrained import Pooling, Pretrained
from consilience.encoders.processors import make_processor
from consilience.preparation.transforms import Transform, load_transform, register_transform, without_padding

# Rows encoded at once, and rows in one file of the cache.
BATCH, PIECE = 32, 1024


@register_encoder("frozen")
class Frozen(Mlp):
    """An mlp on the features of a frozen pretrained model of text, images or sound; each sample is encoded only once.

    Methods that read parts of a modality get a single part here; for them choose `pretrained`. A saved model holds the
    mlp, and of the pretrained model only its name and a checksum of its weights: pass the encoder again to `load`.

    Args:
        modality: The vector of the model's features.
        model: A name on the Hugging Face hub, or a folder.
        pooling: "mean" of the model's parts, or the "first" of them.
        cache: A folder where features are kept for the next fit. None: that of the environment variable
            CONSILIENCE_CACHE, or else only memory.
        hidden, dropout, normalise: Of the mlp.
    """

    reads = ("vector",)
    argument = "model"
    files = ("model", "cache")
    prepares = True

    def __init__(
        self,
        modality: Modality,
        *,
        model: str,
        pooling: Pooling = "mean",
        cache: str | None = None,
        hidden: PositiveInt | Sequence[PositiveInt] = (128, 64),
        dropout: Rate = 0.1,
        normalise: bool = True,
    ):
        super().__init__(modality, hidden=hidden, dropout=dropout, normalise=normalise)
        self.settings = {"model": model, "pooling": pooling, "cache": cache}

    @classmethod
    def sees(cls, modality: Modality, settings: Mapping[str, Any]) -> Modality:
        """A vector of the model's features."""
        model, pooling, _ = _settings(settings)
        encoder, _ = _body(model, Pretrained.sees(modality, {}).kind, pooling)
        return Modality(modality.name, "vector", (encoder.width,))

    @classmethod
    def prepare(cls, samples: Samples, name: str, settings: Mapping[str, Any]) -> Transform:
        """The model itself."""
        model, pooling, cache = _settings(settings)
        return FrozenFeatures(make_processor(samples, name, model), model, pooling, cache)


class FrozenFeatures:
    """Raw values → the features of a frozen pretrained model `[rows, width]`, from a cache where possible."""

    name: ClassVar[str] = "frozen"

    def __init__(
        self, processor: Transform, model: str, pooling: Pooling, cache: str | None, checksum: str | None = None
    ):
        """processor: turns raw values into the model's input. checksum: of the weights of a saved model."""
        self.processor, self.model, self.pooling, self.cache = processor, model, pooling, cache
        encoder, loaded = _body(model, processor.output.kind, pooling)
        self.checksum = loaded if checksum is None else checksum
        self._check(loaded)
        self.output = Modality(processor.output.name, "vector", (encoder.width,))
        self._store: DiskCache | MemoryCache | None = None

    def _check(self, loaded: str) -> None:
        """Raise an error if the weights are not those of training."""
        if loaded != self.checksum:
            raise SavedModelError(
                f"modality {self.processor.output.name!r} was trained on features of {self.model!r}, whose weights "
                "have changed"
            )

    @torch.no_grad()
    def __call__(
        self, values: np.ndarray, lengths: np.ndarray | None, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, np.ndarray | None]:
        """Features `[rows, width]`; rows with the same content are encoded once."""
        keys = row_keys(values, lengths)
        if self._store is None:
            folder, width = cache_folder(self.cache), self.output.shape[0]
            self._store = MemoryCache(width) if folder is None else DiskCache(folder / self._identity(), width)
        features, cached = self._store.find(keys)
        first: dict[bytes, int] = {}
        for position in np.flatnonzero(~cached):
            first.setdefault(keys[position], int(position))
        new = np.fromiter(first.values(), dtype=np.int64, count=len(first))
        for start in range(0, len(new), PIECE):
            piece = new[start : start + PIECE]
            features[piece] = self._encode(values[piece], None if lengths is None else lengths[piece])
            self._store.keep([keys[position] for position in piece], features[piece])
        for position in np.flatnonzero(~cached):
            features[position] = features[first[keys[position]]]
        return torch.from_numpy(features).to(dtype), None

    def _encode(self, values: np.ndarray, lengths: np.ndarray | None) -> np.ndarray:
        encoder, loaded = _body(self.model, self.processor.output.kind, self.pooling)
        self._check(loaded)  # it may have been loaded again since
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        encoder.to(device).eval()
        parts = []
        for start in range(0, len(values), BATCH):
            rows = slice(start, start + BATCH)
            x, steps = self.processor(values[rows], None if lengths is None else lengths[rows])
            length = None if steps is None else torch.from_numpy(steps).to(device)
            parts.append(encoder(x.to(device), length).pooled.float().cpu().numpy())
        return np.concatenate(parts)

    def _identity(self) -> str:
        """Hash what features depend on beside the rows: the model's weights, the pooling and the processor."""
        processor = sorted(self.processor.state()[1].items())
        return hashlib.sha256(repr((self.checksum, self.pooling, processor)).encode()).hexdigest()[:24]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_store": None}

    def statistics(self) -> Statistics:
        """Statistics of the raw values, in which a corruption's level is measured."""
        return self.processor.statistics()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The processor's state, and the model's name and checksum."""
        tensors, plain = self.processor.state()
        output = self.processor.output
        inner = {"transform": self.processor.name, "kind": output.kind, "shape": list(output.shape), **plain}
        described = {"model": self.model, "pooling": self.pooling, "cache": self.cache, "checksum": self.checksum}
        return tensors, {"inner": inner, **described}


@register_transform("frozen")
def _load_frozen(output: Modality, entry: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Transform:
    """The saved model names no file that is read: the pretrained model and the cache are those passed to `load`."""
    passed = passed_settings(output.name)
    if not passed or not passed.get("model"):
        raise SavedModelError(
            f"modality {output.name!r} was trained on features of the pretrained model {entry['model']!r}, which is "
            "not saved with it. If you trust that folder or name, pass it again: "
            f"load(path, encoders={{{output.name!r}: {'frozen:' + str(entry['model'])!r}}}); on the command line, "
            f"--encoder {output.name}=frozen:FOLDER"
        )
    inner = entry["inner"]
    if inner["transform"] not in ("tokeniser", "raw"):
        raise SavedModelError(f"modality {output.name!r} was saved with an unknown processor {inner['transform']!r}")
    seen = Modality(output.name, inner["kind"], tuple(inner["shape"]))
    processor = load_transform(seen, inner, {f"0.{name}": value for name, value in tensors.items()}, 0)
    return FrozenFeatures(processor, passed["model"], entry["pooling"], passed.get("cache"), str(entry["checksum"]))


def features(
    samples: Samples, models: Mapping[str, str | Mapping[str, Any]], cache: str | Path | None = None
) -> Samples:
    """Encode some modalities of samples by pretrained models, into vectors for any method and any tool.

    Encode training and test samples together; or choose the encoder `frozen`, which learns the scale of images from
    training samples alone.

    Args:
        samples: The samples.
        models: Modality → model, or → a mapping of `frozen`'s settings.
        cache: A folder where features are kept.

    Returns:
        The same samples with these modalities as vectors.
    """
    modalities, values, lengths = dict(samples.modalities), dict(samples.values), dict(samples.lengths)
    for name, chosen in models.items():
        if name not in samples:
            raise unknown_name("modality", name, samples.names)
        settings = {"model": chosen} if isinstance(chosen, str) else dict(chosen)
        transform = Frozen.prepare(samples, name, {"cache": None if cache is None else str(cache), **settings})
        present, encoded = samples.present_in(name), np.zeros((len(samples), *transform.output.shape), dtype=np.float32)
        for start in range(0, len(samples), PIECE):
            rows = np.flatnonzero(present[start : start + PIECE]) + start
            row_lengths = samples.lengths[name][rows] if name in samples.lengths else None
            raw = samples.read(name, rows)
            raw = raw if row_lengths is None else without_padding(raw, row_lengths)
            encoded[rows] = transform(raw, row_lengths)[0].numpy()
        modalities[name], values[name] = transform.output, encoded
        lengths.pop(name, None)
    kept = (samples.y, samples.weight, samples.index, samples.group, samples.time)
    return Samples(modalities, values, samples.present, lengths, *kept)


def _settings(settings: Mapping[str, Any]) -> tuple[str, Pooling, str | None]:
    if not settings.get("model"):
        raise InputError("encoder 'frozen' needs model: a name on the Hugging Face hub, or a folder")
    return settings["model"], settings.get("pooling", "mean"), settings.get("cache")


@lru_cache(maxsize=4)
def _body(model: str, kind: Kind, pooling: Pooling) -> tuple[Pretrained, str]:
    """A frozen model and a checksum of its processor and weights, loaded once in a process."""
    with seeded(0):  # weights that a checkpoint lacks are drawn with a fixed seed
        encoder = Pretrained(Modality(model, kind, ()), model=model, pooling=pooling).eval()
    digest = hashlib.sha256(json.dumps(encoder.processor, sort_keys=True).encode())
    for name, value in encoder.state_dict().items():
        digest.update(name.encode())
        digest.update(value.contiguous().numpy().data)
    return encoder, digest.hexdigest()
