"""`mag`: a gate in a text model shifts each word's vector by what the other modalities show (MAG)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.errors import InputError, unknown_name
from consilience.core.samples import Modality
from consilience.core.settings import NonNegativeInt, PositiveFloat, Rate
from consilience.encoders import Encoded, Encoder, Pretrained, Transformer, masked_mean
from consilience.encoders.pretrained import without_empty_rows
from consilience.methods import PerModality, Spec, register
from consilience.methods.fusion.bitransformer import BertWords, is_bert, split_bert
from consilience.methods.fusion.parts import StepMethod, Steps, Words, as_parts


@register(
    "mag",
    paper="Rahman et al. 2020, Integrating Multimodal Information in Large Pretrained Transformers",
    equation="h = Σ_m ReLU(U_m [v_m; t]) ⊙ W_m v_m; t ← LayerNorm(t + min(β ‖t‖ / ‖h‖, 1) h)",
)
class Mag(StepMethod):
    """A text model whose words are shifted by what the other modalities show.

    At every word t, each other modality proposes a shift, gated by how well it fits the word. The sum h of the shifts
    is scaled so that it is at most β times as long as t. The rest of the model reads the shifted words and pools them.

        g_m = ReLU(U_m [v_m; t] + b_m)         h = Σ_{m∈S} g_m ⊙ (W_m v_m + d_m)
        t ← dropout(LayerNorm(t + α h)),   α = min(β ‖t‖ / ‖h‖, 1)         c = T(t_1, …, t_n)         z = P c

    v_m are the features of another text or sequence at the same step, for samples that have as many steps of it as
    words; any other modality is pooled and the same at every word. A sample without its host is read as one empty word,
    whose shift is not scaled.

    The model T is the host's encoder. Unless another is chosen it is a small `transformer`, trained from scratch. The
    paper's are pretrained, `encoders={"text": {"name": "bert", "freeze": False}}` or `{"name": "pretrained", "model":
    "xlnet/xlnet-base-cased", "freeze": False}`, and need a learning rate of about 1e-5. The gate can come after any
    layer of a `transformer` or a BERT, and before the layers of any other pretrained model; after any other encoder.

    Args:
        host: The modality whose parts are shifted. None: the first text, else the first sequence.
        layer: The gate comes after this many of the model's layers; 0 is right after the embeddings.
        beta: The longest shift allowed, in lengths of the vector that it shifts.
        dropout: Dropout rate after the gate.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        host: str | None = None,
        layer: NonNegativeInt = 0,
        beta: PositiveFloat = 1.0,
        dropout: Rate = 0.5,
    ):
        name = choose_host(spec.modalities, host)
        super().__init__(spec.preferring({name: "transformer"}))
        encoders: dict[str, Encoder] = dict(self.encoders.items())
        encoders[name], reader = split_host(encoders[name], spec.modalities[name])
        self.encoders = PerModality(encoders)
        if layer > reader.gateable:
            raise InputError(
                f"layer must be a whole number from 0 to {reader.gateable} with this encoder of {name!r}, got {layer!r}"
            )
        sides = {other: encoder.width for other, encoder in encoders.items() if other != name}
        timed = tuple(other for other in sides if spec.modalities[other].timed)
        width = encoders[name].width if layer == 0 else reader.width
        gate = AdaptationGate(width, sides, beta, dropout)
        self.fusion = GatedReader(name, reader, gate, layer, timed)
        self.head = nn.Linear(reader.width, spec.task.outputs)


class AdaptationGate(nn.Module):
    """Words `[batch, part, width]` shifted by the other modalities: the gate itself."""

    def __init__(self, width: int, sides: Mapping[str, int], beta: float, dropout: float):
        """sides: the width of each other modality's features."""
        super().__init__()
        self.beta = beta
        self.gates = PerModality({name: nn.Linear(side + width, width) for name, side in sides.items()})
        self.shifts = PerModality({name: nn.Linear(side, width) for name, side in sides.items()})
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, words: Tensor, sides: Mapping[str, Tensor], present: Mapping[str, Tensor], own: Tensor) -> Tensor:
        """Shift the words.

        Args:
            words: `[batch, part, width]`.
            sides: Name → features at every part, `[batch, part, width_m]`.
            present: Name → `[batch]`.
            own: `[batch]`, which samples have words; the shift of the others is not scaled.
        """
        total = torch.zeros_like(words)
        for name, gate in self.gates.items():
            fits = gate(torch.cat([sides[name].to(words.dtype), words], dim=2)).relu()
            total = total + present[name][:, None, None] * fits * self.shifts[name](sides[name])
        scale = torch.where(own[:, None, None], shift_scale(words, total, self.beta), 1.0)
        return self.dropout(self.norm(words + scale * total))


def shift_scale(words: Tensor, shift: Tensor, beta: float) -> Tensor:
    """min(β ‖t‖ / ‖h‖, 1) for words t and shifts h `[…, width]`: `[…, 1]`; 1 where there is no shift.

    >>> shift_scale(torch.tensor([[3.0, 4.0], [3.0, 4.0]]), torch.tensor([[0.0, 20.0], [1.0, 0.0]]), 1.0).tolist()
    [[0.25], [1.0]]
    """
    lengths = torch.linalg.vector_norm(shift, dim=-1, keepdim=True)
    allowed = beta * torch.linalg.vector_norm(words, dim=-1, keepdim=True)
    return torch.where(lengths > allowed, allowed / torch.where(lengths > 0, lengths, 1.0), 1.0)


class GatedReader(nn.Module):
    """The host's first vectors through its model, with the gate on the way: `[batch, width]`."""

    def __init__(self, host: str, reader: Reader, gate: AdaptationGate, layer: int, timed: tuple[str, ...]):
        """timed: the other modalities that have time steps."""
        super().__init__()
        self.host, self.reader, self.gate, self.layer, self.timed = host, reader, gate, layer, timed

    def forward(self, features: Mapping[str, Encoded], batch: Batch) -> Tensor:
        """Read the host; a sample without words is one empty word, which the others shift."""
        own = batch.present_in(self.host)
        words, mask = as_parts(features[self.host], own, None)
        sides = {name: beside(features[name], mask, name in self.timed) for name in features if name != self.host}
        present = {name: batch.present_in(name) for name in sides}
        real = without_empty_rows(mask)
        hidden = self.reader.embed(words)
        for place in range(len(self.reader.layers) + 1):
            if place == self.layer:
                hidden = self.gate(hidden, sides, present, own)
            if place < len(self.reader.layers):
                hidden = self.reader.advance(place, hidden, real)
        return self.reader.finish(hidden, real)


def beside(encoded: Encoded, mask: Tensor, timed: bool) -> Tensor:
    """A modality's features at each of the host's parts: `[batch, part, width]`; mask: the host's, `[batch, part]`.

    Step by step for samples with as many steps as the host has; otherwise the pooled features at every part. The
    padding does not count: it depends on the other samples of the batch.
    """
    parts = mask.shape[1]
    pooled = encoded.pooled[:, None].expand(-1, parts, -1)
    if not timed or encoded.sequence is None or encoded.mask is None:
        return pooled
    longer = max(0, parts - encoded.mask.shape[1])
    steps, real = functional.pad(encoded.sequence, (0, 0, 0, longer)), functional.pad(encoded.mask, (0, longer))
    # No step beyond the host's, by counts: in ONNX, "any" of no steps is True.
    alike = (real[:, :parts] == mask).all(1) & (real[:, :parts].sum(1) == real.sum(1))
    return torch.where(alike[:, None, None], steps[:, :parts], pooled)


class Reader(nn.Module):
    """The part of a host's encoder that reads its first vectors; this base class only pools them.

    layers: names of the layers after the embeddings. gateable: the last layer that the gate may come after. width: of
    the pooled output.
    """

    layers: tuple[str, ...] = ()
    gateable: int = 0

    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def embed(self, vectors: Tensor) -> Tensor:
        """Vectors of words or steps `[batch, part, width]` as the first layer reads them."""
        return vectors

    def advance(self, place: int, hidden: Tensor, mask: Tensor) -> Tensor:
        """One layer."""
        raise NotImplementedError

    def finish(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """All parts as one: `[batch, width]`."""
        return masked_mean(hidden, mask)


class LayeredReader(Reader):
    """Our transformer or a BERT without its word vectors."""

    def __init__(self, encoder: Encoder):
        super().__init__(encoder.width)
        self.encoder = encoder
        self.first, *layers = encoder.stages
        self.layers, self.gateable = tuple(layers), len(layers)

    def embed(self, vectors: Tensor) -> Tensor:
        """Positions added."""
        embed = self.encoder.stages[self.first]
        return embed(inputs_embeds=vectors) if isinstance(self.encoder, Pretrained) else embed(vectors)

    def advance(self, place: int, hidden: Tensor, mask: Tensor) -> Tensor:
        """One layer of attention."""
        return self.encoder.advance(self.layers[place], hidden, mask)

    def finish(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """As the encoder pools."""
        return self.encoder.finish(hidden, mask).pooled


class WholeReader(LayeredReader):
    """An XLNet, or any other model of transformers that takes vectors in place of words and runs as one."""

    def __init__(self, encoder: Encoder):
        Reader.__init__(self, encoder.width)
        self.encoder, self.layers = encoder, ("model",)

    def embed(self, vectors: Tensor) -> Tensor:
        """As they are: the model adds positions itself."""
        return vectors

    def advance(self, place: int, hidden: Tensor, mask: Tensor) -> Tensor:
        """All of the model."""
        return self.encoder.stages["model"](inputs_embeds=hidden, attention_mask=mask.long()).last_hidden_state


def split_host(encoder: Encoder, modality: Modality) -> tuple[Encoder, Reader]:
    """Split an encoder of words or steps into what makes their first vectors and what reads those.

    An encoder that cannot be split stays whole, and the gate comes after it.
    """
    if isinstance(encoder, Transformer):
        embed: Any = encoder.stages["embed"]
        content, embed.content = embed.content, nn.Identity()
        opening: Encoder = (Words if modality.kind == "tokens" else Steps)(modality, encoder.width)
        opening.stages[next(iter(opening.stages))] = content
        return opening, LayeredReader(encoder)
    if is_bert(encoder):
        _, words, _ = split_bert(encoder)
        return words, LayeredReader(encoder)
    if isinstance(encoder, Pretrained) and modality.kind == "tokens":
        body: Any = encoder.stages["model"]
        vectors = body.get_input_embeddings()
        body.set_input_embeddings(nn.Identity())
        return BertWords(vectors, vectors.embedding_dim), WholeReader(encoder)
    return encoder, Reader(encoder.width)


def choose_host(modalities: Mapping[str, Modality], host: str | None) -> str:
    """The modality to be shifted: the given one, or the first of tokens, or the first sequence."""
    if host is not None:
        if host not in modalities:
            raise unknown_name("modality", host, modalities, "It was given as host")
        if not modalities[host].timed:
            raise InputError(f"host must be tokens or a sequence, whose parts can be shifted: {host!r} is neither")
        return host
    timed = [name for name, modality in modalities.items() if modality.timed]
    return next((name for name in timed if modalities[name].kind == "tokens"), timed[0])
