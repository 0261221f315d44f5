"""Samples of several requests as one batch, whichever modalities each of them has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from consilience.core.samples import Samples


def join_samples(parts: Sequence[Samples]) -> Samples:
    """Return all samples one after another.

    A modality that a part does not have is missing there. Sequences and tokens are padded to the longest.

    Args:
        parts: Samples of the same model: a modality has the same kind, and but for its length the same shape, in all.

    Example:
        >>> a = Samples.of({"vibration": [[1.0, 2.0]], "note": ["good"]})
        >>> b = Samples.of({"vibration": [[3.0, 4.0]]})
        >>> join_samples([a, b]).present.tolist()
        [[True, True], [True, False]]
    """
    if len(parts) == 1:
        return parts[0]
    modalities = {name: each for part in parts for name, each in part.modalities.items()}
    total = sum(len(part) for part in parts)
    values, lengths = {}, {}
    present = np.zeros((total, len(modalities)), dtype=bool)
    for column, (name, modality) in enumerate(modalities.items()):
        own = [part.read(name) if name in part else None for part in parts]
        known = [each for each in own if each is not None]
        shape = tuple(np.max([each.shape[1:] for each in known], axis=0)) if modality.shape else ()
        text = modality.kind == "text"
        joined = np.full((total, *shape), "" if text else 0, dtype=object if text else np.result_type(*known))
        length = np.zeros(total, dtype=np.int64)
        first = 0
        for part, some in zip(parts, own):
            rows = slice(first, first + len(part))
            if some is not None:
                joined[(rows, *(slice(size) for size in some.shape[1:]))] = some
                present[rows, column] = part.present_in(name)
                if name in part.lengths:
                    length[rows] = part.lengths[name]
            first += len(part)
        values[name] = joined
        if modality.timed:
            lengths[name] = length
    shapes = {name: tuple(map(int, value.shape[1:])) for name, value in values.items()}
    described = {
        name: type(each)(name, each.kind, shapes[name], each.vocabulary, each.words)
        for name, each in modalities.items()
    }
    return Samples(described, values, present, lengths, None, None, np.arange(total))
