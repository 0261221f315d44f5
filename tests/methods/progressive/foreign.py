"""Models of other people's, small, each with inputs and the submodules a loop is put around.

A module of its own, so that spawned processes can import it.
"""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from consilience.methods.progressive.progressive import progressive


class Plain(nn.Module):
    """Two branches."""

    def __init__(self):
        super().__init__()
        self.sound = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8))
        self.sight = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 8))
        self.join, self.head = nn.Linear(16, 6), nn.Linear(6, 2)

    def forward(self, sound, sight):
        return self.head(self.join(torch.cat([self.sound(sound), self.sight(sight)], dim=1)).relu())


class WithResNet(nn.Module):
    """A ResNet beside numbers; what is fused is an output object."""

    def __init__(self):
        from transformers import ResNetConfig, ResNetModel

        super().__init__()
        config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic", num_channels=3)
        self.resnet = ResNetModel(config)
        self.numbers, self.join, self.head = nn.Linear(4, 12), Joined(24, 6), nn.Linear(6, 2)

    def forward(self, image, numbers):
        seen = self.resnet(image).pooler_output.flatten(1)
        return self.head(self.join(seen, self.numbers(numbers))["fused"])


class Joined(nn.Module):
    """Two vectors → a mapping with the fused one."""

    def __init__(self, inputs, width):
        super().__init__()
        self.mix = nn.Linear(inputs, width)

    def forward(self, one, two):
        return {"fused": self.mix(torch.cat([one, two], dim=1)).tanh()}


class WithBert(nn.Module):
    """A BERT beside numbers."""

    def __init__(self):
        from transformers import BertConfig, BertModel

        super().__init__()
        config = BertConfig(
            vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24
        )
        self.bert = BertModel(config, add_pooling_layer=False)
        self.numbers, self.join, self.head = nn.Linear(4, 8), nn.Linear(24, 6), nn.Linear(6, 2)

    def forward(self, ids, numbers, attention_mask=None):
        words = self.bert(input_ids=ids, attention_mask=attention_mask).last_hidden_state[:, 0]
        return self.head(self.join(torch.cat([words, self.numbers(numbers)], dim=1)).relu())


class Packed(nn.Module):
    """An LSTM on packed sequences beside numbers, and a time-first GRU."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 5, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(2, 4)
        self.join, self.head = nn.Linear(14, 6), nn.Linear(6, 2)

    def forward(self, steps, lengths, beats):
        packed = pack_padded_sequence(steps, lengths, batch_first=True, enforce_sorted=False)
        _, (state, _) = self.lstm(packed)
        _, rhythm = self.gru(beats)  # [time, batch, feature]
        return self.head(self.join(torch.cat([*state, rhythm[0]], dim=1)).relu())


class Keywords(nn.Module):
    """Keyword inputs, outside and inside."""

    def __init__(self):
        super().__init__()
        self.sound, self.sight = Named(4), Named(6)
        self.join, self.head = nn.Linear(16, 6), nn.Linear(6, 2)

    def forward(self, *, sound, sight):
        both = torch.cat([self.sound(gain=2.0, values=sound), self.sight(gain=1.0, values=sight)], dim=1)
        return self.head(self.join(input=both).relu())


class Named(nn.Module):
    """A layer called by keywords."""

    def __init__(self, inputs):
        super().__init__()
        self.layer = nn.Linear(inputs, 8)

    def forward(self, *, gain, values):
        return self.layer(values).relu() * gain


CASES = {
    "plain": (Plain, {"sound": "sound", "sight": "sight"}),
    "resnet": (WithResNet, {"image": "resnet.embedder", "numbers": "numbers"}),
    "bert": (WithBert, {"text": "bert.embeddings.word_embeddings", "numbers": "numbers"}),
    "packed": (Packed, {"steps": "lstm", "beats": "gru"}),
    "keywords": (Keywords, {"sound": "sound", "sight": "sight"}),
}


def inputs_of(case, n=5):
    """Inputs of one of the models, the same every time."""
    made = torch.Generator().manual_seed(7)

    def draw(*shape):
        return torch.randn(*shape, generator=made)

    if case == "plain":
        return draw(n, 4), draw(n, 1, 6, 6)
    if case == "resnet":
        return draw(n, 3, 16, 16), draw(n, 4)
    if case == "bert":
        return torch.randint(1, 20, (n, 7), generator=made), draw(n, 4)
    if case == "packed":
        return draw(n, 6, 3), torch.randint(1, 7, (n,), generator=made), draw(8, n, 2)
    return {"sound": draw(n, 4), "sight": draw(n, 6)}


def call(model, inputs):
    """A model on inputs, by place or by name."""
    return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


def made(case, **options):
    """(base, looped copy of it, inputs), all in evaluation mode."""
    torch.manual_seed(3)
    make, encoders = CASES[case]
    base, looped = make().eval(), make().eval()
    looped.load_state_dict(base.state_dict())
    inputs = inputs_of(case)
    return base, progressive(looped, encoders=encoders, fusion="join", example=inputs, **options), inputs


def stir(loop, size=0.3):
    """Give links weights other than zeros, recurrent columns included."""
    torch.manual_seed(11)
    with torch.no_grad():
        for parameter in loop.parameters():
            if not parameter.any() or (parameter == 0).float().mean() > 0.2:
                parameter += size * torch.randn_like(parameter)
        for parameter in loop.link_parameters():
            parameter.copy_(size * torch.randn_like(parameter))
    return loop


def two_processes(rank, folder):
    """One of two processes: a step of training on its half of the batch, under DDP."""
    os.environ.update(MASTER_ADDR="127.0.0.1", OMP_NUM_THREADS="1")
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    _, loop, inputs = made("keywords")
    model = nn.parallel.DistributedDataParallel(stir(loop).train())
    half = {name: value[2 * rank : 2 * rank + 2] for name, value in inputs.items()}
    model(**half).square().mean().backward()
    if rank == 0:
        torch.save({name: one.grad for name, one in loop.named_parameters()}, f"{folder}/gradients.pt")
    torch.distributed.destroy_process_group()
    os._exit(0)  # a thread of the group that still holds a tensor may abort an interpreter that is taken apart
