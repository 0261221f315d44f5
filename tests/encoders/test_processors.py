"""The words that a pretrained model's tokens are pieces of, against the library transformers' own numbering."""

import numpy as np
import pytest
import torch

from consilience.core.samples import Samples
from consilience.encoders.encoder import token_mask
from consilience.encoders.processors import Tokeniser, count_words, make_processor, token_ids, token_words
from consilience.preparation.transforms import load_transform
from tiny_models import tiny_bert, tiny_xlnet

TEXTS = ["the red thing", "don't  go", " ' a 'b' ", "it's so good that nobody else would ever say so", "x", ""]


@pytest.fixture(params=[tiny_bert, tiny_xlnet], ids=["bert", "xlnet"])
def folder(request, tmp_path):
    return request.param(tmp_path, pieces=True)


def processor(folder):
    return make_processor(Samples.of({"text": [*TEXTS[:3], "y"]}, [0, 1, 0, 1]), "text", folder)


def test_words_are_those_that_white_space_separates(folder):
    from transformers import AutoTokenizer

    tokeniser = AutoTokenizer.from_pretrained(folder)
    texts = [" ".join(text.split()) for text in TEXTS if text]
    x, lengths = processor(folder)(np.array(texts, dtype=object), None)
    for row, length, text in zip(x, lengths, texts):
        expected = tokeniser(text.split(), is_split_into_words=True, truncation=True)
        assert (token_ids(row[:length]) - 1).tolist() == expected["input_ids"], text
        words = [-1 if word is None else word for word in expected.word_ids()]
        assert token_words(row[:length]).tolist() == words, text
        assert len(set(words) - {-1}) <= count_words(text)


def test_further_spaces_make_no_words(folder):
    texts = ["don't go", "don't   go", " don't go  ", "don't\ngo"]
    x, lengths = processor(folder)(np.array(texts, dtype=object), None)
    for row, length in zip(x, lengths):
        words = [int(word) for word in token_words(row[:length]) if word >= 0]
        assert words == sorted(words)
        assert words.count(0) >= 5
        assert words.count(1) >= 2


def test_padding_and_special_tokens_are_of_no_word(folder):
    x, lengths = processor(folder)(np.array(TEXTS, dtype=object), None)
    assert (x[~token_mask(x, torch.from_numpy(lengths))] == 0).all()
    assert (token_words(x[-1]) == -1).all()
    special = (token_ids(x) == 2 + 1) | (token_ids(x) == 3 + 1)
    assert special.any(1).all()
    assert (token_words(x)[special] == -1).all()


def test_a_tokeniser_saved_before_there_were_words_has_none(folder):
    new = processor(folder)
    _, entry = new.state()
    before = {name: value for name, value in entry.items() if name != "words"}
    old = load_transform(new.output, {"transform": "tokeniser", **before}, {}, 0)
    assert isinstance(old, Tokeniser)
    texts = np.array(TEXTS[:3], dtype=object)
    (ids, _), (both, _) = old(texts, None), new(texts, None)
    assert torch.equal(ids, token_ids(both))
    assert (token_words(ids) == -1).all()
