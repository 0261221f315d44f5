import numpy as np
import pytest
import torch
from torch.nn import functional

from consilience.core.errors import InputError, MissingDataError, SavedModelError
from consilience.core.samples import Modality, Samples
from consilience.encoders import BagOfWords, build_encoder
from consilience.encoders.bag_of_words import read_vectors
from consilience.training import Model, Trainer, load_model

TITLE = Modality("title", "tokens", (4,), vocabulary=9)
GLOVE = "the 0.1 0.2 0.3\nRed 1 2 3\nred 4 5 6\nLondon -1 -2 -3\n, 0 0 1\nred 9 9 9\n"


def test_against_a_mean_by_hand():
    torch.manual_seed(0)
    encoder = BagOfWords(TITLE, width=6).eval()
    ids, lengths = torch.tensor([[3, 5, 3, 0], [7, 8, 2, 1], [0, 4, 0, 6]]), torch.tensor([3, 2, 4])
    vectors = encoder.stages["embed"].weight
    means = torch.stack(
        [(2 * vectors[3] + vectors[5]) / 3, (vectors[7] + vectors[8]) / 2, (vectors[4] + vectors[6]) / 2]
    )
    linear, norm = encoder.block[0], encoder.block[1]
    expected = functional.layer_norm(linear(means), [6], norm.weight, norm.bias).relu()
    encoded = encoder(ids, lengths)
    torch.testing.assert_close(encoded.pooled, expected)
    assert torch.equal(encoded.sequence[1, :2], vectors[[7, 8]])
    assert not encoded.sequence[~encoded.mask].any()


def test_order_is_ignored():
    encoder = BagOfWords(TITLE).eval()
    torch.testing.assert_close(encoder(torch.tensor([[3, 5, 7]])).pooled, encoder(torch.tensor([[7, 3, 5]])).pooled)


def test_the_padding_vector_stays_zero_in_training():
    encoder = BagOfWords(TITLE)
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        encoder(torch.tensor([[3, 5, 0, 0]])).pooled.square().sum().backward()
        optimiser.step()
    assert not encoder.stages["embed"].weight[0].any()


@pytest.fixture
def glove(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text(GLOVE, encoding="utf-8")
    return path


def test_only_the_wanted_words_are_read(glove):
    vectors, found = read_vectors(glove, ["red", "blue", "london", ","])
    assert found.tolist() == [True, False, True, True]
    # As written before another case, and the first of two.
    np.testing.assert_allclose(vectors, [[4, 5, 6], [0, 0, 0], [-1, -2, -3], [0, 0, 1]])


def test_word2vec_counts_first(tmp_path, glove):
    path = tmp_path / "word2vec.txt"
    path.write_text("6 3\n" + GLOVE, encoding="utf-8")
    for one, other in zip(read_vectors(path, ["red", "6"]), read_vectors(glove, ["red", "6"])):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "holds no word vectors"),
        ("the 1 2\nred 1 x\n", "line 2: the vector of 'red' is not made of numbers"),
        ("the 1 2\nred 1 2 3\n", "line 2: the vector of 'red' has 3 numbers, not 2"),
        ("the 1 2\nred 1 nan\n", "finite"),
    ],
)
def test_broken_files(tmp_path, content, words):
    path = tmp_path / "broken.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=words):
        read_vectors(path, ["red"])


def test_no_file(tmp_path):
    with pytest.raises(MissingDataError, match="no file of word vectors at"):
        read_vectors(tmp_path / "none.txt", [])


def test_a_bag_begins_with_them(glove):
    title = Modality("title", "tokens", (4,), vocabulary=5, words=("red", "blue", "the"))
    encoder = build_encoder(title, {"name": "bag", "vectors": str(glove), "width": 8, "freeze": True})
    embed, fit = encoder.stages["embed"]
    weight = embed.weight.detach().numpy()
    np.testing.assert_allclose(weight[[0, 2, 4]], [[0, 0, 0], [4, 5, 6], [0.1, 0.2, 0.3]], rtol=1e-6)
    np.testing.assert_allclose(weight[1], weight[[2, 4]].mean(axis=0), rtol=1e-6)
    encoded = encoder.eval()(torch.tensor([[2, 4, 1, 0]]), torch.tensor([3]))
    torch.testing.assert_close(encoded.sequence[0, :3], fit(embed.weight[[2, 4, 1]]))
    assert not encoded.sequence[0, 3].any()
    assert [name for name, parameter in encoder.named_parameters() if not parameter.requires_grad] == [
        "stages.embed.0.weight"
    ]
    as_wide = build_encoder(title, {"name": "bag", "vectors": str(glove), "width": 3})
    assert isinstance(as_wide.stages["embed"], torch.nn.Embedding)


def test_what_a_bag_refuses(glove):
    ids = Modality("title", "tokens", (4,), vocabulary=5)
    with pytest.raises(InputError, match=r"title \(tokens 4\) holds token ids: give the text itself"):
        build_encoder(ids, f"bag:{glove}")
    with pytest.raises(InputError, match="freeze=True needs vectors"):
        BagOfWords(ids, freeze=True)
    with pytest.raises(InputError, match="freeze must be True or False, got 1"):
        BagOfWords(ids, freeze=1)


def test_a_saved_model_needs_no_file(glove, tmp_path):
    data = Samples.of({"title": ["the red", "London , red", "blue the", "blue"] * 4}, [0, 1, 0, 1] * 4)
    encoders = {"title": f"bag:{glove}"}
    model = Model.fit("late", data, encoders=encoders, trainer=Trainer(epochs=1, device="cpu"))
    saved = model.save(tmp_path / "model")
    glove.unlink()
    again, _ = load_model(saved)
    assert torch.equal(again.predict(data, device="cpu").output, model.predict(data, device="cpu").output)
    with pytest.raises(SavedModelError, match=r"names .*glove.txt'.*if you trust it, set encoders="):
        Model.fit("late", data, encoders=again.encoders, trainer=Trainer(epochs=1, device="cpu"))
    with pytest.raises(MissingDataError):  # another fit would begin with the file
        Model.fit("late", data, encoders=encoders, trainer=Trainer(epochs=1, device="cpu"))


def test_the_file_is_read_again_if_it_is_passed(glove, tmp_path):
    data = Samples.of({"title": ["the red", "London , red", "blue the", "blue"] * 4}, [0, 1, 0, 1] * 4)
    encoders = {"title": f"bag:{glove}"}
    trainer = Trainer(epochs=1, device="cpu")
    model = Model.fit("late", data, encoders=encoders, trainer=trainer)
    again, _ = load_model(model.save(tmp_path / "model"), encoders)
    assert torch.equal(again.predict(data, device="cpu").output, model.predict(data, device="cpu").output)
    refitted = Model.fit("late", data, encoders=again.encoders, trainer=trainer)
    assert torch.equal(refitted.predict(data, device="cpu").output, model.predict(data, device="cpu").output)
