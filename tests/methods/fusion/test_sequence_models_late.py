import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from consilience.core.errors import InputError, UnsupportedError
from consilience.encoders import BagOfWords, Conv, Lstm, Mlp, Transformer
from toy_batches import VECTORS
from toy_sequences import MIXED, TIMED, build, check_loop, check_padding_and_company, timed_batch

SMALL = {"lf-lstm": {"hidden": 6, "joint": 8}, "lf-transformer": {"width": 6, "heads": 2, "layers": 1, "joint": 8}}
SEQUENCES = {name: TIMED[name] for name in ("sound", "motion")}
every_method = pytest.mark.parametrize("name", SMALL)


def test_lf_lstm_against_torch_on_packed_sequences():
    method, batch = build("lf-lstm", SEQUENCES, hidden=6), timed_batch(SEQUENCES)
    last = []
    for name, modality in SEQUENCES.items():
        reference = nn.LSTM(modality.shape[1], 6, batch_first=True)
        reference.load_state_dict(method.encoders[name].stages["layer1"].forwards.state_dict())
        packed = pack_padded_sequence(batch[name], batch.lengths[name], batch_first=True, enforce_sorted=False)
        last.append(reference(packed)[1][0][0])
    torch.testing.assert_close(method(batch).joint, method.fusion.mix(torch.cat(last, dim=1)))


@pytest.mark.parametrize(("name", "kind"), [("lf-lstm", Lstm), ("lf-transformer", Transformer)])
def test_what_has_steps_is_read_by_the_network_and_the_rest_as_usual(name, kind):
    method = build(name, MIXED, {"title": "bag"}, **SMALL[name])
    kinds = {"sound": kind, "motion": kind, "title": BagOfWords, "still": Mlp, "image": Conv}
    assert {name: type(encoder) for name, encoder in method.encoders.items()} == kinds
    assert method.encoders["sound"].width == 6


@every_method
def test_samples_are_read_alone_and_without_their_padding(name):
    check_padding_and_company(build(name, MIXED, **SMALL[name]), MIXED)


@every_method
def test_a_loop_feeds_back_into_the_encoders(name):
    check_loop(name, MIXED, **SMALL[name])


@every_method
def test_something_must_have_steps(name):
    with pytest.raises(UnsupportedError, match="it reads time steps"):
        build(name, VECTORS)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("lf-lstm", {"hidden": 0}, "hidden must be a whole number ≥ 1, got 0"),
        ("lf-lstm", {"joint": 1}, "joint must be a whole number ≥ 2, got 1"),
        ("lf-transformer", {"width": 7, "heads": 2}, "width must be a multiple of heads, got width 7 and 2 heads"),
    ],
)
def test_bad_settings_are_named(name, settings, words):
    with pytest.raises(InputError, match=words):
        build(name, SEQUENCES, **settings)
