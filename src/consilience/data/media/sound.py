"""Recordings → log-mel spectrograms or waveforms: wav by scipy, FLAC and Ogg by soundfile (the extra `media`)."""

from __future__ import annotations

import io
import os
import struct
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import IO, Any, ClassVar, NamedTuple

import numpy as np

from consilience.core.errors import InputError
from consilience.core.modalities import Kind
from consilience.data.media.extras import MissingPackageError, import_extra
from consilience.data.media.settings import Family, SoundSettings, check_sample_size
from consilience.data.media.spectrograms import log_mel, mel_bands

WAV_ENDINGS = (".wav",)
SOUND_ENDINGS = (*WAV_ENDINGS, ".flac", ".ogg")
_MOST_SAMPLES = 2**28  # of all channels: an hour and a half in CD quality; a gigabyte as floats
_LONGEST_SECONDS = 10.0  # if the length is not given


class _Layout(NamedTuple):
    """What the header of a recording says."""

    rate: int
    samples: int

    @property
    def seconds(self) -> float:
        return self.samples / self.rate


@dataclass(frozen=True)
class SoundDecoder:
    """Decodes recordings with settings that are all decided: `seconds` is a number.

    An image is a spectrogram `[1, band, window]`; a sequence is one `[window, band]`, or a waveform `[sample, 1]`.
    """

    settings: SoundSettings
    kind: Kind
    family: ClassVar[Family] = "sound"

    @classmethod
    def learn(cls, name: str, kind: Kind | None, settings: SoundSettings, files: Sequence[str]) -> SoundDecoder:
        """Take the length from the longest file if it is not given; unreadable ones are skipped."""
        lengths = {file: layout.seconds for file in files if (layout := _try_layout(file)) is not None}
        if settings.seconds is None:
            longest = max(lengths.values(), default=1.0) or 1.0
            settings = replace(settings, seconds=min(longest, _LONGEST_SECONDS))
        kept = settings.seconds or 0.0
        longer = sum(seconds > kept + 0.5 / settings.rate for seconds in lengths.values())
        if longer:
            warnings.warn(
                f"modality {name!r}: {longer} of {len(files)} recordings are longer than {kept:g} s; only "
                f"their middle is read. media={{{name!r}: {{'seconds': …}}}} (--media {name}.seconds=…) changes this",
                stacklevel=2,
            )
        kind = kind or ("image" if settings.form == "mel" else "sequence")
        return cls.restore(name, kind, settings)

    @classmethod
    def restore(cls, name: str, kind: Kind, settings: SoundSettings, shape: Sequence[int] = ()) -> SoundDecoder:
        """The decoder of a saved model."""
        if kind not in ("image", "sequence") or (kind == "image" and settings.form == "wave"):
            form = "a waveform" if settings.form == "wave" else "sound"
            allowed = "sequence" if settings.form == "wave" else "image or sequence"
            raise InputError(f"modality {name!r}: {form} is of kind {allowed}, not {kind}")
        if settings.seconds is None:
            raise ValueError("the length of recordings is not decided")
        made = cls(settings, kind)
        check_sample_size(name, made.shape)
        check_sample_size(name, (made._windows, made._window))  # what one spectrogram takes on the way
        if settings.form == "mel":
            try:
                _ = made._triangles
            except InputError as error:
                raise InputError(f"modality {name!r}: {error}") from error
        return made

    @property
    def timed(self) -> bool:
        """Whether each recording has a length of its own."""
        return self.kind == "sequence"

    @property
    def dtype(self) -> np.dtype:
        """Of the values."""
        return np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample."""
        if self.settings.form == "wave":
            return (self._samples, 1)
        return (1, self.settings.bands, self._windows) if self.kind == "image" else (self._windows, self.settings.bands)

    def to_json(self) -> dict[str, Any]:
        """The settings."""
        return asdict(self.settings)

    def __call__(self, content: bytes, name: str) -> tuple[np.ndarray, int]:
        """Decode the content of a file; return it with its length in time steps."""
        wave = self._fitted(*read_sound(content, name))
        if not np.isfinite(wave).all():
            raise InputError("it holds NaN or infinity")
        padded = np.zeros(self._samples, dtype=np.float32)
        padded[: len(wave)] = wave
        if self.settings.form == "wave":
            return padded[:, None], len(wave)
        padded = np.pad(padded, (0, self._window + (self._windows - 1) * self._hop - len(padded)))
        bands = log_mel(padded, self._window, self._hop, self._triangles)
        if self.kind == "image":
            return bands.T[None], 0
        return bands, self._count_windows(len(wave))

    def _fitted(self, wave: np.ndarray, rate: int) -> np.ndarray:
        """The middle of a recording in the chosen length and rate."""
        from scipy.signal import resample_poly

        assert self.settings.seconds is not None
        longest = int(np.ceil(self.settings.seconds * rate))
        surplus = max(0, len(wave) - longest)
        wave = wave[surplus // 2 : surplus // 2 + longest]
        if rate != self.settings.rate:
            # Of rates without a common divisor, the filter would be as long as both are large.
            ratio = Fraction(self.settings.rate, rate).limit_denominator(1000) or Fraction(1, 1000)
            wave = resample_poly(wave, ratio.numerator, ratio.denominator)
        return wave[: self._samples].astype(np.float32)

    @property
    def _samples(self) -> int:
        assert self.settings.seconds is not None
        return max(1, round(self.settings.seconds * self.settings.rate))

    @property
    def _window(self) -> int:
        return max(2, round(self.settings.window * self.settings.rate))

    @property
    def _hop(self) -> int:
        return max(1, round(self.settings.hop * self.settings.rate))

    @property
    def _windows(self) -> int:
        return self._count_windows(self._samples)

    def _count_windows(self, samples: int) -> int:
        """Windows that cover so many samples, the last of them with silence at its end."""
        return 1 + max(0, -(-(samples - self._window) // self._hop))

    @cached_property
    def _triangles(self) -> np.ndarray:
        return mel_bands(self.settings.bands, self._window, self.settings.rate)


def read_sound(content: bytes, name: str) -> tuple[np.ndarray, int]:
    """The mean of the channels of a recording, `[time]` from −1 to 1 in float32, and its rate."""
    layout = _layout(io.BytesIO(content), name, len(content))
    if os.path.splitext(name)[1].lower() in WAV_ENDINGS:
        wave = _to_unit(_wav_samples(content))
    else:
        wave = _soundfile().read(io.BytesIO(content), dtype="float32")[0]
    if len(wave) != layout.samples:
        raise InputError(f"it holds {len(wave)} samples, its header says {layout.samples}")
    return (wave if wave.ndim == 1 else wave.mean(axis=1)), layout.rate


def read_wav(content: bytes, name: str) -> tuple[np.ndarray, int]:
    """The samples of a wav file as it holds them, `[time]` or `[time, channel]`, and its rate."""
    rate = _layout(io.BytesIO(content), name, len(content)).rate  # the header is checked before memory is taken
    with warnings.catch_warnings():  # of chunks that are skipped, such as a title
        warnings.simplefilter("ignore")
        return _wav_samples(content), rate


def _wav_samples(content: bytes) -> np.ndarray:
    from scipy.io import wavfile

    return wavfile.read(io.BytesIO(content))[1]


def _to_unit(wave: np.ndarray) -> np.ndarray:
    """Samples as wav files hold them, from −1 to 1: bytes lie around 128, other whole numbers around 0."""
    if wave.dtype.kind == "f":
        return wave.astype(np.float32)
    if wave.dtype.kind == "u":
        return (wave.astype(np.float32) - 128) / 128
    return (wave / 2.0 ** (8 * wave.dtype.itemsize - 1)).astype(np.float32)


def _try_layout(path: str) -> _Layout | None:
    """What the header says; None if the file cannot be read."""
    try:
        with open(path, "rb") as file:
            return _layout(file, path, os.stat(path).st_size)
    except MissingPackageError:
        raise
    except Exception:  # it is named when it is decoded
        return None


def _layout(file: IO[bytes], name: str, size: int) -> _Layout:
    """What the header says, checked before memory is taken for the samples."""
    if os.path.splitext(name)[1].lower() in WAV_ENDINGS:
        rate, channels, samples = _wav_header(file, size)
    else:
        info = _soundfile().info(file)
        rate, channels, samples = info.samplerate, info.channels, info.frames
    if not 100 <= rate <= 768_000 or channels < 1:
        raise InputError(f"it has {channels} channels of {rate} samples a second: 100 to 768000 are read")
    if samples * channels > _MOST_SAMPLES:
        raise InputError(f"it has {samples * channels} samples, more than {_MOST_SAMPLES}: cut it")
    if not samples:
        raise InputError("it holds no samples")
    return _Layout(rate, samples)


def _wav_header(file: IO[bytes], size: int) -> tuple[int, int, int]:
    """Rate, channels and samples of a channel of a wav file that holds all that its header promises."""
    riff, _, form = struct.unpack("<4sI4s", file.read(12))
    if riff not in (b"RIFF", b"RIFX") or form != b"WAVE":
        raise InputError("it does not start as a wav file")
    order = ">" if riff == b"RIFX" else "<"
    rate = channels = block = 0
    while len(header := file.read(8)) == 8:
        chunk, length = struct.unpack(f"{order}4sI", header)
        end = file.tell() + length + length % 2
        if chunk == b"fmt ":
            _, channels, rate, _, block, bits = struct.unpack(f"{order}HHIIHH", file.read(16))
            if block != channels * -(-bits // 8):
                raise InputError(f"its header says {block} bytes for {channels} channels of {bits} bits")
        elif chunk == b"data":
            if length > size - file.tell():
                raise InputError(f"its header promises {length} bytes of samples, {size - file.tell()} are there")
            return rate, channels, length // block if block else 0
        file.seek(end)
    raise InputError("it ends before its samples")


def _soundfile() -> Any:
    return import_extra("soundfile", "media", "FLAC and Ogg files")
