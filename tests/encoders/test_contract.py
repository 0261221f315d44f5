"""One contract over every encoder and every kind it reads."""

import copy

import pytest
import torch
from torch import Tensor, nn

from consilience.core.samples import Modality
from consilience.encoders import Encoded, Encoder, Frozen, Pretrained, build_encoder, default_encoder, encoder_names
from consilience.encoders.choice import ENCODERS

MODALITIES = {
    "vector": Modality("v", "vector", (7,)),
    "image": Modality("i", "image", (2, 12, 9)),
    "sequence": Modality("s", "sequence", (6, 5)),
    "tokens": Modality("t", "tokens", (6,), vocabulary=11),
}
# Those made from a pretrained model are tested with tiny ones, in test_pretrained and test_frozen; trees have no
# features, and are tested with their expert.
NAMES = [
    name
    for name in encoder_names()
    if not issubclass(ENCODERS[name], Pretrained | Frozen) and ENCODERS[name].gives_features
]
VARIANTS = [{"name": name} for name in NAMES] + [
    {"name": "mlp", "hidden": [9], "normalise": False},
    {"name": "mlp", "hidden": [9, 8, 7], "dropout": 0.5},
    {"name": "conv", "stages": 1, "channels": 3},
    {"name": "gru", "hidden": 5, "layers": 2, "bidirectional": True},
    {"name": "lstm", "hidden": 5, "layers": 2, "bidirectional": True, "dropout": 0.4},
    {"name": "transformer", "width": 9, "heads": 3, "layers": 3, "dropout": 0.3},
    {"name": "bag", "width": 5},
]
# Its features are the input: it has no stages, no weights and no dropout.
WITHOUT_WEIGHTS = ("linear",)
CASES = [
    pytest.param(kind, variant, id=f"{kind}-" + "-".join(str(value) for value in variant.values()))
    for variant in VARIANTS
    for kind in ENCODERS[variant["name"]].reads
]
learned_cases = [case for case in CASES if case.values[1]["name"] not in WITHOUT_WEIGHTS]
every_case = pytest.mark.parametrize(("kind", "variant"), CASES)
learned_case = pytest.mark.parametrize(("kind", "variant"), learned_cases)
timed_case = pytest.mark.parametrize(
    ("kind", "variant"), [case for case in CASES if case.values[0] in ("sequence", "tokens")]
)


def make(kind: str, variant: dict, seed: int = 0) -> Encoder:
    torch.manual_seed(seed)
    return build_encoder(MODALITIES[kind], variant)


def draw(kind: str, batch: int = 4, seed: int = 1) -> tuple[Tensor, Tensor | None]:
    """Values without padding ids, and lengths 6, 1, 4, 2, … where the kind has them."""
    generator = torch.Generator().manual_seed(seed)
    modality = MODALITIES[kind]
    lengths = torch.tensor([6, 1, 4, 2])[torch.arange(batch) % 4] if kind in ("sequence", "tokens") else None
    if kind == "tokens":
        return torch.randint(1, 11, (batch, 6), generator=generator), lengths
    return torch.randn(batch, *modality.shape, generator=generator), lengths


def assert_same(one: Encoded, other: Encoded, **tolerance: float) -> None:
    torch.testing.assert_close(one.pooled, other.pooled, **tolerance)
    assert (one.sequence is None) == (other.sequence is None)
    if one.sequence is not None:
        torch.testing.assert_close(one.sequence, other.sequence, **tolerance)
        assert torch.equal(one.mask, other.mask)


def test_every_encoder_is_in_the_table():
    assert {variant["name"] for variant in VARIANTS} == set(NAMES)


@every_case
def test_shapes_and_width(kind, variant):
    encoder, (x, lengths) = make(kind, variant), draw(kind)
    encoded = encoder(x, lengths)
    assert encoded.pooled.shape == (4, encoder.width)
    assert encoded.pooled.isfinite().all()
    assert isinstance(encoder.stages, nn.ModuleDict)
    assert len(encoder.stages) >= (variant["name"] not in WITHOUT_WEIGHTS)
    if encoded.sequence is not None:
        assert encoded.sequence.shape == (*encoded.mask.shape, encoder.width)
        assert encoded.mask.dtype == torch.bool
    if lengths is not None and variant["name"] != "mlp":
        assert encoded.mask.sum(1).tolist() == lengths.tolist()


@every_case
def test_stage_by_stage_is_forward(kind, variant):
    encoder, (x, lengths) = make(kind, variant).eval(), draw(kind)
    hidden, mask = encoder.start(x, lengths)
    for stage in encoder.stages:
        hidden = encoder.advance(stage, hidden, mask)
        assert len(hidden) == len(x)
    assert_same(encoder.finish(hidden, mask), encoder(x, lengths), rtol=0, atol=0)


@timed_case
def test_padding_is_never_read(kind, variant):
    encoder, (x, lengths) = make(kind, variant).eval(), draw(kind)
    beyond = torch.arange(6) >= lengths[:, None]
    other = x.clone()
    other[beyond] = 3 if kind == "tokens" else float("nan")
    assert not torch.equal(other, x)
    assert_same(encoder(other, lengths), encoder(x, lengths), rtol=0, atol=0)
    encoder(other, lengths).pooled.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in encoder.parameters())


@timed_case
def test_more_or_less_padding_changes_nothing(kind, variant):
    encoder, (x, lengths) = make(kind, variant).eval(), draw(kind)
    short, lengths = x[:, :4], lengths.clamp(max=4)
    long = encoder(x, lengths)
    cut = encoder(short, lengths)
    torch.testing.assert_close(cut.pooled, long.pooled)
    if cut.sequence is not None:
        torch.testing.assert_close(cut.sequence, long.sequence[:, :4])


@timed_case
def test_length_zero_is_finite_in_value_and_gradient(kind, variant):
    encoder, (x, _) = make(kind, variant), draw(kind)
    lengths = torch.tensor([0, 6, 0, 2])
    empty = encoder.eval()(x, lengths).pooled
    assert torch.equal(empty[0], empty[2])
    encoded = encoder.train()(x, lengths)
    assert encoded.pooled.isfinite().all()
    encoded.pooled.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in encoder.parameters())


@timed_case
def test_no_lengths_means_all_steps_are_real(kind, variant):
    encoder, (x, _) = make(kind, variant).eval(), draw(kind)
    assert_same(encoder(x), encoder(x, torch.full((4,), 6)))


@learned_case
def test_every_parameter_gets_a_gradient(kind, variant):
    encoder, (x, lengths) = make(kind, variant), draw(kind, batch=8)
    encoder(x, lengths).pooled.square().sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@every_case
def test_one_sample_in_training_mode(kind, variant):
    encoder, (x, lengths) = make(kind, variant).train(), draw(kind, batch=1)
    assert encoder(x, lengths).pooled.isfinite().all()


@every_case
def test_samples_do_not_see_each_other_in_eval(kind, variant):
    encoder, (x, lengths) = make(kind, variant).eval(), draw(kind)
    together = encoder(x, lengths).pooled
    for row in range(4):
        alone = encoder(x[row : row + 1], None if lengths is None else lengths[row : row + 1]).pooled
        torch.testing.assert_close(alone[0], together[row])


@every_case
def test_eval_is_deterministic_and_training_draws_dropout(kind, variant):
    encoder, (x, lengths) = make(kind, variant).eval(), draw(kind)
    assert_same(encoder(x, lengths), encoder(x, lengths), rtol=0, atol=0)
    if variant["name"] not in ("conv", *WITHOUT_WEIGHTS):
        encoder.train()
        assert not torch.equal(encoder(x, lengths).pooled, encoder(x, lengths).pooled)


@learned_case
def test_bf16_autocast_stays_near_float32(kind, variant):
    encoder, (x, lengths) = make(kind, variant).eval(), draw(kind)
    exact = encoder(x, lengths).pooled
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = encoder(x, lengths).pooled
        rough.float().square().sum().backward()
    torch.testing.assert_close(rough.float(), exact, rtol=0.05, atol=0.05)
    assert all(parameter.grad.isfinite().all() for parameter in encoder.parameters())


@every_case
def test_float64(kind, variant):
    encoder, (x, lengths) = make(kind, variant).eval(), draw(kind)
    single = encoder(x, lengths).pooled
    double = encoder.double()(x if kind == "tokens" else x.double(), lengths).pooled
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), single, rtol=1e-4, atol=1e-5)


@learned_case
def test_state_dict_and_deepcopy_carry_everything(kind, variant):
    encoder, (x, lengths) = make(kind, variant), draw(kind)
    encoder(x, lengths)  # moves batch statistics
    encoder.eval()
    other = make(kind, variant, seed=9).eval()
    assert not torch.equal(other(x, lengths).pooled, encoder(x, lengths).pooled)
    other.load_state_dict(encoder.state_dict())
    assert_same(other(x, lengths), encoder(x, lengths), rtol=0, atol=0)
    assert_same(copy.deepcopy(encoder)(x, lengths), encoder(x, lengths), rtol=0, atol=0)


class Pooled(nn.Module):
    def __init__(self, encoder: Encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        return self.encoder(x, lengths).pooled


@every_case
@pytest.mark.filterwarnings("ignore:The tensor attributes")  # torch's own recurrent networks
def test_exports(kind, variant):
    encoder, (x, lengths) = make(kind, variant).eval(), draw(kind)
    exported = torch.export.export(Pooled(encoder), (x, lengths)).module()
    torch.testing.assert_close(exported(x, lengths), encoder(x, lengths).pooled)


@pytest.mark.parametrize("kind", list(MODALITIES))
def test_default_learns_a_simple_rule(kind):
    """Class 1 holds a pattern, class 0 does not: a few steps separate them on samples not trained on."""
    torch.manual_seed(0)
    encoder = build_encoder(MODALITIES[kind])
    assert encoder.name == default_encoder(MODALITIES[kind])
    head = nn.Linear(encoder.width, 2)

    def sample(seed: int) -> tuple[Tensor, Tensor | None, Tensor]:
        x, lengths = draw(kind, batch=128, seed=seed)
        y = torch.arange(128) // 4 % 2
        if kind == "tokens":
            x[:, 0] = torch.where(y == 1, 10, 9)
        elif kind == "image":
            x[:, :, 3:6, 3:6] += 2.0 * y.view(-1, 1, 1, 1)
        else:
            x += 2.0 * y.view(-1, *[1] * (x.ndim - 1))
        return x, lengths, y

    x, lengths, y = sample(1)
    optimiser = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.01)
    for _ in range(40):
        optimiser.zero_grad()
        nn.functional.cross_entropy(head(encoder(x, lengths).pooled), y).backward()
        optimiser.step()
    x, lengths, y = sample(2)
    encoder.eval()
    assert (head(encoder(x, lengths).pooled).argmax(1) == y).float().mean() > 0.9
