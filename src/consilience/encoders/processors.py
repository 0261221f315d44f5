"""The input of pretrained models: text in their own tokens, pixels and waveforms at their own scale."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from consilience.core.errors import ConsilienceError, InputError, UnsupportedError
from consilience.core.samples import Modality, Samples
from consilience.corruption import Statistics
from consilience.encoders.foreign_files import check_passed
from consilience.preparation.transforms import Standardise, Transform, read_moments, register_transform

# The most tokens of a text, where a tokeniser does not state how many its model can read.
MAX_TOKENS = 512
# The largest value of an image (8 bits) or a waveform (16 bits), if it is not 1.
_FULL_SCALE = {"image": 255.0, "sequence": 32768.0, "vector": 32768.0}


_WORDS = re.compile(r"\S+")
# A token's id and the number of its word in one integer: the id has the lower 32 bits.
_WORD = 2**32


def with_words(ids: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Token ids with the number of the word that each belongs to, from 0; −1 for a token of no word.

    >>> packed = with_words(np.array([7, 9]), np.array([-1, 3]))
    >>> token_ids(torch.from_numpy(packed)).tolist(), token_words(torch.from_numpy(packed)).tolist()
    ([7, 9], [-1, 3])
    """
    return ids + (words + 1) * _WORD


def token_ids(x: Tensor) -> Tensor:
    """The ids of a tokeniser's output, without the numbers of words."""
    return x % _WORD


def token_words(x: Tensor) -> Tensor:
    """The number of the word that each token of a tokeniser's output belongs to; −1 where it is of none, or padding."""
    return x.div(_WORD, rounding_mode="floor") - 1


class Tokeniser:
    """Text → a pretrained model's own token ids plus 1, since 0 is padding here; cut to what the model can read.

    Each id comes with the number of the word that the token is a piece of, see `token_words`. Words are what white
    space separates; special tokens such as [CLS] are pieces of none.
    """

    name: ClassVar[str] = "tokeniser"

    def __init__(self, output: Modality, described: str, longest: int, words: bool = True):
        """described: the tokeniser as JSON of the library `tokenizers`. longest: the most tokens of a text.

        words: whether ids come with numbers of words, as they did not before version 0.2.
        """
        self._described, self.longest, self.words = described, longest, words
        with _tokenising(output):
            self._tokeniser = _from_json(described)
            self._tokeniser.no_padding()
            self._tokeniser.enable_truncation(longest)
            known = self._tokeniser.get_vocab_size()
        self.output = replace(output, kind="tokens", vocabulary=known + 1)

    def __call__(
        self, values: np.ndarray, lengths: np.ndarray | None, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, np.ndarray | None]:
        """Ids `[rows, time]` with the model's special tokens, and their lengths."""
        with _tokenising(self.output):
            encodings = self._tokeniser.encode_batch(values.tolist())
        lengths = np.array([max(1, len(encoding)) for encoding in encodings], dtype=np.int64)
        ids = np.zeros((len(encodings), int(lengths.max(initial=1))), dtype=np.int64)
        for row, text, encoding in zip(ids, values.tolist(), encodings):
            found = np.array(encoding.ids, dtype=np.int64) + 1
            row[: len(found)] = with_words(found, words_of_tokens(text, encoding)) if self.words else found
        return torch.from_numpy(ids), lengths

    def statistics(self) -> Statistics:
        """Empty: token ids are not quantities."""
        return Statistics()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The tokeniser itself, so that a saved model needs no other file."""
        return {}, {"tokeniser": self._described, "longest": self.longest, "words": self.words}

    def __getstate__(self) -> dict[str, Any]:
        return {"output": self.output, "described": self._described, "longest": self.longest, "words": self.words}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def count_words(text: str) -> int:
    """The number of words of a text, which white space separates.

    >>> count_words(" it's so good ")
    3
    """
    return sum(1 for _ in _WORDS.finditer(text))


def words_of_tokens(text: str, encoding: Any) -> np.ndarray:
    """The number of the word that each token lies in `[token]`, −1 for special tokens.

    Args:
        text: The text; its words are what white space separates.
        encoding: Its tokens, as the library `tokenizers` returns them.
    """
    ends = np.array([word.end() for word in _WORDS.finditer(text)], dtype=np.int64)
    places = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    # By its last character: the first one of a piece may be the space before its word, and so may all of it.
    last = np.maximum(places[:, 1] - 1, places[:, 0])
    words = np.searchsorted(ends, last, side="right")
    words[words == len(ends)] = -1  # spaces after the last word
    return np.where(np.array(encoding.special_tokens_mask, dtype=bool), -1, words)


class RawScale(Standardise):
    """Numbers at a pretrained model's own scale: pixels from 0 to 1, waveforms from −1 to 1; nothing is standardised.

    unit: the value that becomes 1: 1 for values at that scale already, 255 for 8-bit pixels, 32 768 for 16-bit sound.
    """

    name: ClassVar[str] = "raw"

    def __init__(self, output: Modality, mean: Tensor, std: Tensor, low: Tensor, high: Tensor, unit: float):
        super().__init__(output, mean, std, low, high)
        self.unit = float(unit)
        self._set_units(torch.zeros_like(mean), torch.full_like(mean, self.unit))

    @classmethod
    def of(cls, samples: Samples, name: str) -> RawScale:
        """Learn spread and range from samples, and the unit from the range."""
        learned = Standardise.fit(samples, name, samples.weight)
        unit = full_scale(learned.output, float(learned.low.min()), float(learned.high.max()), samples[name].dtype)
        return cls(learned.output, learned.mean, learned.std, learned.low, learned.high, unit)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Moments, range and unit."""
        return super().state()[0], {"unit": self.unit}


def full_scale(modality: Modality, low: float, high: float, dtype: np.dtype) -> float:
    """The value that becomes 1 at a model's own scale, from the range and type of the training data.

    >>> full_scale(Modality("photo", "image", (3, 8, 8)), 0, 251, np.dtype("uint8"))
    255.0
    """
    full = _FULL_SCALE[modality.kind]
    least = 0.0 if modality.kind == "image" else -1.0
    whole = dtype.kind in "iu"
    if not whole and least <= low and high <= 1:
        return 1.0
    if not least * full <= low or not high <= full:
        raise InputError(
            f"a pretrained encoder reads modality {modality.name!r} at its own scale: values must lie in "
            f"[{least:g}, 1] or [{least * full:g}, {full:g}], and in training they range from {low:g} to {high:g}"
        )
    return full


@register_transform("tokeniser")
def _load_tokeniser(output: Modality, entry: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Transform:
    return Tokeniser(output, entry["tokeniser"], entry["longest"], bool(entry.get("words", False)))


@register_transform("raw")
def _load_raw(output: Modality, entry: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Transform:
    return RawScale(output, **read_moments(output, tensors), unit=entry["unit"])


def make_processor(samples: Samples, name: str, model: str) -> Transform:
    """The transform of a modality of these samples into a pretrained model's input."""
    modality = samples.modalities[name]
    if modality.kind == "tokens":
        raise UnsupportedError(
            f"a pretrained encoder has a tokeniser of its own, and modality {modality.describe()} holds token ids "
            "already: give the text itself"
        )
    if modality.kind != "text":
        return RawScale.of(samples, name)
    if not samples.present_in(name).any():
        raise InputError(f"modality {name!r} is missing in every training sample: drop it, or check the split")
    return Tokeniser(replace(modality, kind="tokens", shape=(1,)), *read_tokeniser(model)[:2])


@lru_cache(maxsize=8)
def read_tokeniser(model: str) -> tuple[str, int, int | None]:
    """A model's tokeniser as JSON, the most tokens it can read, and the id of its start token or None."""
    tokeniser = load_pretrained("AutoTokenizer", model)
    if not getattr(tokeniser, "is_fast", False):
        raise UnsupportedError(
            f"the tokeniser of {model!r} is not one of the library tokenizers; no other kind can be saved with a model"
        )
    longest = tokeniser.model_max_length
    first = tokeniser.cls_token_id
    return tokeniser.backend_tokenizer.to_str(), int(longest) if longest < 10**6 else MAX_TOKENS, first


def read_processor(model: str) -> dict[str, Any]:
    """A model's processor configuration: the size, mean, std and so on of the images or sound it reads."""
    check_passed("pretrained model", model)
    cached_file = import_transformers().utils.cached_file
    for name in ("preprocessor_config.json", "processor_config.json"):
        try:
            path = cached_file(model, name, _raise_exceptions_for_missing_entries=False)
            content = {} if path is None else json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError:  # not in the folder or on the hub
            continue
        except ValueError as error:
            raise InputError(f"{name} of {model!r} is damaged: {error}") from error
        if content:
            return dict(content.get("image_processor") or content.get("feature_extractor") or content)
    raise InputError(
        f"model {model!r} has no processor configuration, which states the size and scale of its input: put its "
        "preprocessor_config.json into its folder"
    )


def import_transformers() -> Any:
    """Import the library transformers, or raise an error that says how to install it."""
    try:
        import transformers
    except ImportError:
        raise UnsupportedError(
            "pretrained encoders need the library transformers: pip install 'consilience[pretrained]'"
        ) from None
    return transformers


def load_pretrained(kind: str, model: str, **options: Any) -> Any:
    """Load a model, configuration or tokeniser by hub name or folder, or raise an error that says why not.

    Code that comes with a model is never run.
    """
    transformers = import_transformers()
    if not isinstance(model, str) or not model:
        raise InputError(f"model must be a name on the Hugging Face hub or a folder, got {model!r}")
    check_passed("pretrained model", model)
    try:
        with _quietly(transformers.utils.logging):
            return getattr(transformers, kind).from_pretrained(model, trust_remote_code=False, **options)
    except Exception as error:  # of any of the libraries that take part, for a folder with any content
        reason = str(error).strip().partition("\n")[0]
        if "custom code" in reason:
            where = "it needs code of its own, which is never run"
        elif not Path(model).is_dir():
            where = "no such folder, and not found on the hub"
        else:
            where = "it is not in that folder, or is damaged"
        raise InputError(
            f"the {kind.removeprefix('Auto').lower()} of {model!r} could not be loaded: {where} "
            f"({type(error).__name__}: {reason})"
        ) from error


@contextmanager
def _quietly(log: Any) -> Iterator[None]:
    """Disable the progress bar that transformers shows for every model."""
    shown = log.is_progress_bar_enabled()
    log.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            log.enable_progress_bar()


def _from_json(described: str) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        import_transformers()  # raises an error that says how to install both
        raise
    return Tokenizer.from_str(described)


@contextmanager
def _tokenising(modality: Modality) -> Iterator[None]:
    """Turn what the library tokenizers raises into one of our errors; a panic of Rust is no Exception."""
    try:
        yield
    except ConsilienceError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise InputError(
            f"the pretrained model's tokeniser of modality {modality.name!r} failed: {type(error).__name__}: {error}"
        ) from error
