"""`mag`: a gate in a text model shifts each word's vector by what the other modalities show (MAG)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.errors import InputError, unknown_name
from consilience.core.samples import Modality, Samples
from consilience.core.settings import NonNegativeInt, PositiveFloat, Rate
from consilience.encoders import Encoded, Encoder, Pretrained, Transformer, masked_mean
from consilience.encoders.pretrained import without_empty_rows
from consilience.encoders.processors import count_words, token_words
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

    A pretrained model reads pieces of words between special tokens. There a sequence must have one step for each word
    of the text, as white space separates words, and training samples that have not are refused. Every piece of a word
    is shifted by the word's step; [CLS], [SEP] and words beyond the last step of a damaged sample are not shifted by
    sequences. Another text is pooled.

    The model T is the host's encoder. Unless another is chosen it is a small `transformer`, trained from scratch. The
    paper's are pretrained, `encoders={"text": {"name": "bert", "freeze": False}}` or `{"name": "pretrained", "model":
    "xlnet/xlnet-base-cased", "freeze": False}`, and need a learning rate of about 1e-5, `lr={"text": 1e-5, "rest":
    1e-3}`. The gate can come after any layer of a `transformer`, a BERT or an XLNet, and before the layers of any other
    pretrained model; after any other encoder.

    Args:
        host: The modality whose parts are shifted. None: the first text, else the first sequence.
        layer: The gate comes after this many of the model's layers; 0 is right after the embeddings.
        beta: The longest shift allowed, in lengths of the vector that it shifts.
        dropout: Dropout rate after the gate.
        align: Whether words are shifted by their own steps of a sequence ("words"), or all by the mean of its steps
            ("pooled"), for sequences that have not one step for each word.
    """

    fusion: GatedReader

    def __init__(
        self,
        spec: Spec,
        *,
        host: str | None = None,
        layer: NonNegativeInt = 0,
        beta: PositiveFloat = 1.0,
        dropout: Rate = 0.5,
        align: Literal["words", "pooled"] = "words",
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
        kinds = {other: spec.modalities[other].kind for other in sides if align == "words"}
        # Of a text beside a pretrained model, the pieces are not those of the host.
        by_step = ("sequence",) if reader.pieces else ("sequence", "tokens")
        timed = tuple(other for other, kind in kinds.items() if kind in by_step)
        width = encoders[name].width if layer == 0 else reader.width
        gate = AdaptationGate(width, sides, beta, dropout)
        self.fusion = GatedReader(name, reader, gate, layer, timed)
        self.head = nn.Linear(reader.width, spec.task.outputs)

    def check_samples(self, samples: Samples) -> None:
        """Raise an error for a sample whose sequence has not one step for each word that a pretrained model reads."""
        host = self.fusion.host
        if not self.fusion.reader.pieces or samples.modalities[host].kind != "text":
            return
        for name in self.fusion.timed:
            both = np.flatnonzero(samples.present_in(host) & samples.present_in(name))
            words = np.array([count_words(text) for text in samples[host][both]], dtype=np.int64)
            steps = samples.lengths[name][both] if name in samples.lengths else samples.modalities[name].shape[0]
            if len(wrong := np.flatnonzero(words != steps)):
                first = int(wrong[0])
                raise InputError(
                    f"mag: {name!r} must have one step for each word of {host!r}; in {len(wrong)} of {len(both)} "
                    f"samples it has not, such as sample {both[first]} with {words[first]} words and "
                    f"{np.broadcast_to(steps, words.shape)[first]} steps. Give it word by word, or set "
                    "align='pooled' to use its mean at every word"
                )


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
            present: Name → at which parts it shifts, `[batch, part]` or `[batch, 1]`.
            own: `[batch]`, which samples have words; the shift of the others is not scaled.
        """
        total = torch.zeros_like(words)
        for name, gate in self.gates.items():
            fits = gate(torch.cat([sides[name].to(words.dtype), words], dim=2)).relu()
            total = total + present[name][:, :, None] * fits * self.shifts[name](sides[name])
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
        number = token_words(batch[self.host])[:, : mask.shape[1]] if self.reader.pieces else None
        sides: dict[str, Tensor] = {}
        present: dict[str, Tensor] = {}
        for name, encoded in features.items():
            if name == self.host:
                continue
            there = batch.present_in(name)[:, None]
            if number is not None and name in self.timed:
                steps = batch[name].shape[1]
                sides[name], at_word = beside_words(encoded, number, steps, name)
                present[name] = there & at_word
            else:
                sides[name], present[name] = beside(encoded, mask, name in self.timed), there
        return self.reader.read(
            words, without_empty_rows(mask), lambda hidden: self.gate(hidden, sides, present, own), self.layer
        )


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


def beside_words(encoded: Encoded, number: Tensor, steps: int, name: str) -> tuple[Tensor, Tensor]:
    """A sequence's features at the word that each of the host's parts is a piece of, and at which parts it has any.

    Args:
        encoded: The sequence's features.
        number: The number of each part's word `[batch, part]`, −1 for none. A sample without any, such as one without
            its host, is given the pooled features at every part.
        steps: Number of time steps of the sequence.
        name: Its name, for messages.

    Returns:
        Features `[batch, part, width]`, and booleans `[batch, part]`.
    """
    no_words = (number < 0).all(1, keepdim=True)
    pooled = encoded.pooled[:, None].expand(-1, number.shape[1], -1)
    if encoded.sequence is None or encoded.mask is None or encoded.sequence.shape[1] not in (1, steps):
        parts = "no parts" if encoded.sequence is None else f"{encoded.sequence.shape[1]} parts"
        raise InputError(
            f"mag: the encoder of {name!r} makes {parts} of {steps} steps: choose one that keeps the steps, such as "
            "gru or transformer, or set align='pooled'"
        )
    count = encoded.sequence.shape[1]  # 1 where no sample of the batch has the sequence
    place = number.clamp(0, count - 1)
    found = encoded.sequence.gather(1, place[..., None].expand(-1, -1, encoded.sequence.shape[2]))
    there = encoded.mask.gather(1, place) & (number >= 0) & (number < count)
    return torch.where(no_words[..., None], pooled, found), there | no_words


class Reader(nn.Module):
    """The part of a host's encoder that reads its first vectors; this base class only pools them.

    layers: names of the layers after the embeddings. gateable: the last layer that the gate may come after. pieces:
    whether the parts are pieces of words, with their numbers in the host's ids. width: of the pooled output.
    """

    layers: tuple[str, ...] = ()
    gateable: int = 0
    pieces: bool = False

    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def read(self, words: Tensor, mask: Tensor, gate: Callable[[Tensor], Tensor], layer: int) -> Tensor:
        """Vectors of words or steps `[batch, part, width]`, with the gate after so many layers: `[batch, width]`."""
        hidden = self.embed(words)
        for place in range(len(self.layers) + 1):
            if place == layer:
                hidden = gate(hidden)
            if place < len(self.layers):
                hidden = self.advance(place, hidden, mask)
        return self.finish(hidden, mask)

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
        self.encoder, self.pieces = encoder, isinstance(encoder, Pretrained)
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
    """A model of transformers that takes vectors in place of words and runs as one."""

    def __init__(self, encoder: Encoder):
        Reader.__init__(self, encoder.width)
        self.encoder, self.layers, self.pieces = encoder, ("model",), True

    def embed(self, vectors: Tensor) -> Tensor:
        """As they are: the model adds positions itself."""
        return vectors

    def advance(self, place: int, hidden: Tensor, mask: Tensor) -> Tensor:
        """All of the model."""
        return self.encoder.stages["model"](inputs_embeds=hidden, attention_mask=mask.long()).last_hidden_state


class XlnetReader(WholeReader):
    """An XLNet without its word vectors, layer by layer as `XLNetModel.forward` computes them without memory."""

    def __init__(self, encoder: Encoder):
        super().__init__(encoder)
        self.gateable = len(self.body.layer)

    @property
    def body(self) -> Any:
        """The model."""
        return self.encoder.stages["model"]

    def read(self, words: Tensor, mask: Tensor, gate: Callable[[Tensor], Tensor], layer: int) -> Tensor:
        """Read the words, with the gate after so many layers."""
        body, parts = self.body, words.shape[1]
        hidden = body.dropout((words if layer else gate(words)).transpose(0, 1))  # XLNet has the parts first
        positions = body.relative_positional_encoding(parts, parts, bsz=words.shape[0], device=words.device)
        positions = body.dropout(positions.to(hidden.dtype))
        padding = (~mask).T[None, :, :, None].to(hidden.dtype)  # [1, part, batch, 1]
        # A part that is padding still attends to itself.
        others = 1 - torch.eye(parts, dtype=hidden.dtype, device=words.device)
        for number, each in enumerate(body.layer, start=1):
            hidden = each(
                hidden,
                None,
                attn_mask_h=padding * others[:, :, None, None],
                attn_mask_g=None,
                r=positions,
                seg_mat=None,
            )[0]
            if number == layer:
                hidden = gate(hidden.transpose(0, 1)).transpose(0, 1)
        return self.finish(body.dropout(hidden).transpose(0, 1), mask)


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
        steps = getattr(body.config, "model_type", None) == "xlnet" and body.attn_type == "bi"
        return BertWords(vectors, vectors.embedding_dim), (XlnetReader if steps else WholeReader)(encoder)
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
