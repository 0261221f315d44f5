import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from consilience.core.errors import InputError, UnsupportedError
from toy_batches import VECTORS
from toy_sequences import MIXED, TIMED, build, check_loop, check_padding_and_company, timed_batch

SMALL = {"ef-lstm": {"hidden": 6}, "ef-transformer": {"width": 6, "heads": 2, "layers": 1}}
SEQUENCES = {name: TIMED[name] for name in ("sound", "motion")}
READ = {name: modality for name, modality in MIXED.items() if modality.kind != "image"}
every_method = pytest.mark.parametrize("name", SMALL)


def test_ef_lstm_against_torch_on_packed_sequences():
    method, batch = build("ef-lstm", SEQUENCES, hidden=6, layers=2), timed_batch(SEQUENCES)
    reference = nn.LSTM(5, 6, num_layers=2, batch_first=True)
    for number, layer in enumerate(method.fusion.reader.stages.values()):
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(reference, f"{kind}_l{number}").data = getattr(layer.forwards, f"{kind}_l0").data
    together, lengths = torch.zeros(4, 6, 5), torch.stack(list(batch.lengths.values())).amax(0)
    for row in range(4):
        together[row, : batch.lengths["sound"][row], :3] = batch["sound"][row, : batch.lengths["sound"][row]]
        together[row, : batch.lengths["motion"][row], 3:] = batch["motion"][row, : batch.lengths["motion"][row]]
    packed = pack_padded_sequence(together, lengths, batch_first=True, enforce_sorted=False)
    last = reference(packed)[1][0][-1]
    torch.testing.assert_close(method(batch).joint, last)
    torch.testing.assert_close(method(batch).output, method.head(last))


def test_ef_transformer_reads_the_stack():
    alone = {"sound": TIMED["sound"]}
    method, batch = build("ef-transformer", alone, width=6, heads=2, layers=1), timed_batch(alone)
    expected = method.fusion.reader(batch["sound"], batch.lengths["sound"]).pooled
    torch.testing.assert_close(method(batch).joint, expected)


@every_method
def test_samples_are_read_alone_and_without_their_padding(name):
    check_padding_and_company(build(name, READ, **SMALL[name]), READ)


@every_method
def test_a_loop_feeds_back_into_the_steps(name):
    check_loop(name, READ, **SMALL[name])


@every_method
def test_numbers_are_not_encoded_unless_asked(name):
    method = build(name, READ, {"motion": {"name": "gru", "hidden": 7}}, **SMALL[name])
    assert {name: encoder.width for name, encoder in method.encoders.items()} == {
        "sound": 3,
        "motion": 7,
        "title": 6,
        "still": 4,
    }
    assert not list(method.encoders["sound"].parameters())


@every_method
def test_something_must_have_steps(name):
    with pytest.raises(UnsupportedError, match="it reads time steps: one of image, audio must be a sequence"):
        build(name, VECTORS)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("ef-lstm", {"hidden": 0}, "hidden must be a whole number ≥ 1, got 0"),
        ("ef-lstm", {"layers": 1.5}, "layers must be a whole number ≥ 1, got 1.5"),
        ("ef-transformer", {"width": 7, "heads": 2}, "width must be a multiple of heads, got width 7 and 2 heads"),
        ("ef-transformer", {"dropout": 1}, "dropout must be a number"),
    ],
)
def test_bad_settings_are_named(name, settings, words):
    with pytest.raises(InputError, match=words):
        build(name, SEQUENCES, **settings)
