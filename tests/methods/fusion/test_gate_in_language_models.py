"""MAG in a BERT and an XLNet that read pieces of words: every piece is shifted by the step of its word."""

import numpy as np
import pytest
import torch

from consilience import methods
from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.encoders import own_transforms
from consilience.encoders.pretrained_body import load_body
from consilience.preparation import Preparation
from consilience.training import Model, Trainer, load_model
from tiny_models import tiny_bert, tiny_xlnet

TEXTS = ["the red thing", "don't go", "it's so good here", "x"]
WORDS = (3, 2, 4, 1)
MODELS = pytest.mark.parametrize("model", [tiny_bert, tiny_xlnet], ids=["bert", "xlnet"])
SOUND = {"name": "gru", "hidden": 5, "dropout": 0.0}


def make_samples(steps=WORDS, present=None):
    random = np.random.default_rng(0)
    values = {
        "text": np.array(TEXTS, dtype=object),
        "sound": [random.normal(size=(count, 3)) for count in steps],
        "sight": random.normal(size=(len(TEXTS), 2)),
    }
    return Samples.of(values, np.arange(len(TEXTS)) % 2, present=present)


def prepare(folder, samples, encoders):
    task = Task.of_labels(samples.y)
    return Preparation.fit(samples, task, own_transforms(samples.modalities, encoders))


def chosen(folder, **given):
    return {"text": {"name": "pretrained", "model": folder, "freeze": False, **given}, "sound": SOUND}


def build(folder, samples=None, **settings):
    samples = samples or make_samples()
    encoders = chosen(folder)
    preparation = prepare(folder, samples, encoders)
    torch.manual_seed(0)
    method = methods.build("mag", methods.Spec(preparation.modalities, preparation.task, encoders), settings).eval()
    return method, preparation.batch(samples), preparation


def watched(method, batch):
    """The prediction, and the inputs and the output of the gate."""
    seen = {}
    handle = method.fusion.gate.register_forward_hook(lambda _, given, output: seen.update(given=given, output=output))
    prediction = method(batch)
    handle.remove()
    return prediction, seen["given"], seen["output"]


def word_of_pieces(folder, text):
    """The word of each token as the library transformers counts them; None for special tokens."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)(text.split(), is_split_into_words=True).word_ids()


@MODELS
def test_each_piece_has_the_step_of_its_word_and_special_tokens_have_none(model, tmp_path):
    method, batch, _ = build(model(tmp_path, pieces=True))
    prediction, (_, sides, present, _), _ = watched(method, batch)
    steps = prediction.features["sound"].sequence
    counted = 0
    for row, text in enumerate(TEXTS):
        numbers = word_of_pieces(tmp_path, text)
        assert len(numbers) > WORDS[row] + 1  # some words have several pieces
        for place, word in enumerate(numbers):
            assert bool(present["sound"][row, place]) == (word is not None)
            if word is not None:
                torch.testing.assert_close(sides["sound"][row, place], steps[row, word])
                counted += 1
        assert not present["sound"][row, len(numbers) :].any()
    assert counted > sum(WORDS)
    torch.testing.assert_close(sides["sight"][:, 0], prediction.features["sight"].pooled)


@MODELS
def test_the_shift_of_a_word_comes_from_its_own_step_alone(model, tmp_path):
    """Another third step changes the pieces of the third word only, if the encoder has no memory."""
    folder = model(tmp_path, pieces=True)
    method, batch, _ = build(folder)
    linear = torch.nn.Linear(3, 5)
    method.encoders["sound"].forward = lambda x, lengths=None: _steps(linear(x), x, lengths)
    _, _, before = watched(method, batch)
    batch.values["sound"][2, 2] += 1
    _, _, after = watched(method, batch)
    moved = ((after - before).abs() > 1e-6).any(2)
    numbers = word_of_pieces(tmp_path, TEXTS[2])
    assert moved[2, : len(numbers)].tolist() == [word == 2 for word in numbers]
    assert not moved[[0, 1, 3]].any()


def _steps(hidden, x, lengths):
    from consilience.encoders import Encoded, length_mask, masked_mean

    mask = length_mask(lengths, x)
    return Encoded(masked_mean(hidden, mask), hidden, mask)


@MODELS
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_the_gate_after_any_layer(model, layer, tmp_path):
    """The library's own model, in which a hook applies the gate."""
    folder = model(tmp_path, pieces=True)
    method, batch, _ = build(folder, layer=layer)
    prediction, (_, sides, present, own), _ = watched(method, batch)
    body = load_body(folder).eval()

    def gate(hidden):
        return method.fusion.gate(hidden, sides, present, own)

    def hook(_, given, output):
        if model is tiny_bert:
            return gate(output)
        return (gate(output[0].transpose(0, 1)).transpose(0, 1), *output[1:])

    ids = batch["text"] % 2**32 - 1
    mask = torch.arange(ids.shape[1]) < batch.lengths["text"][:, None]
    vectors = body.get_input_embeddings()(ids.clamp(min=0))
    if layer:
        layers = body.encoder.layer if model is tiny_bert else body.layer
        layers[layer - 1].register_forward_hook(hook)
    elif model is tiny_bert:
        body.embeddings.register_forward_hook(lambda _, given, output: gate(output))
    else:
        vectors = gate(vectors)
    states = body(inputs_embeds=vectors, attention_mask=mask.long()).last_hidden_state
    expected = torch.stack([row[:length].mean(0) for row, length in zip(states, batch.lengths["text"])])
    torch.testing.assert_close(prediction.joint, expected, atol=1e-5, rtol=1e-4)
    with pytest.raises(InputError, match="layer must be a whole number from 0 to 2"):
        build(folder, layer=3)


@MODELS
def test_samples_that_are_not_word_by_word_are_refused(model, tmp_path):
    folder = model(tmp_path, pieces=True)
    samples = make_samples(steps=(3, 2, 7, 1))
    method, _, preparation = build(folder, samples)
    said = (
        "'sound' must have one step for each word of 'text'; in 1 of 4 samples it has not, such as sample 2 with 4 "
        "words and 7 steps"
    )
    for trained in (samples, make_samples()):
        with pytest.raises(InputError, match=said):
            Trainer(preparation, epochs=1, device="cpu").run(method, trained, samples)
    pooled, batch, _ = build(folder, samples, align="pooled")
    prediction, (_, sides, present, _), _ = watched(pooled, batch)
    expected = prediction.features["sound"].pooled[:, None].expand(-1, batch["text"].shape[1], -1)
    torch.testing.assert_close(sides["sound"], expected)
    assert present["sound"].all()
    Trainer(preparation, epochs=1, device="cpu").run(pooled, samples)


@MODELS
def test_samples_without_text_or_sound_are_not_refused(model, tmp_path):
    folder = model(tmp_path, pieces=True)
    present = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 1], [1, 1, 0]], dtype=bool)
    samples = make_samples(steps=(3, 5, 4, 1), present=present)
    method, batch, preparation = build(folder, samples)
    prediction, (_, sides, there, _), _ = watched(method, batch)
    assert there["sound"][1].all()  # one empty word, with the mean of the sound
    torch.testing.assert_close(sides["sound"][1, 0], prediction.features["sound"].pooled[1])
    assert not there["sound"][2].any()
    whole = method(batch).output
    for row in range(4):
        torch.testing.assert_close(
            method(batch.select(torch.tensor([row]))).output[0], whole[row], atol=1e-5, rtol=1e-4
        )
    Trainer(preparation, epochs=1, device="cpu").run(method, samples)


@MODELS
def test_words_beyond_the_last_step_of_a_damaged_sample_are_not_shifted(model, tmp_path):
    method, batch, _ = build(model(tmp_path, pieces=True))
    batch.lengths["sound"][2] = 2
    _, (_, _, present, _), _ = watched(method, batch)
    numbers = word_of_pieces(tmp_path, TEXTS[2])
    assert present["sound"][2, : len(numbers)].tolist() == [word is not None and word < 2 for word in numbers]


def test_an_encoder_that_loses_the_steps_is_an_error(tmp_path):
    folder = tiny_bert(tmp_path, pieces=True)
    samples = make_samples()
    encoders = {**chosen(folder), "sound": torch.nn.Sequential(Halve(), torch.nn.Linear(3, 4))}
    preparation = prepare(folder, samples, encoders)
    method = methods.build("mag", methods.Spec(preparation.modalities, preparation.task, encoders))
    with pytest.raises(InputError, match="the encoder of 'sound' makes 2 parts of 4 steps"):
        method(preparation.batch(samples))


class Halve(torch.nn.Module):
    def forward(self, x):
        return x[:, ::2]


@MODELS
def test_what_is_trained_and_saved_predicts_the_same(model, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    encoders = chosen(model(folder, pieces=True))
    samples = make_samples()
    trainer = Trainer(epochs=2, batch_size=2, device="cpu", lr={"text": 1e-4, "head": 1e-2}, freeze={"text": 1})
    fitted = Model.fit("mag", samples, trainer=trainer, encoders=encoders, settings={"layer": 1})
    fitted.save(tmp_path / "saved")
    for file in folder.iterdir():
        file.unlink()
    loaded, _ = load_model(tmp_path / "saved")
    torch.testing.assert_close(loaded.predict(samples).output, fitted.predict(samples).output)


def spoken(n=500):
    """Texts with one "the" among other words; what counts is the sign of the sound at that word."""
    random = np.random.default_rng(0)
    texts, sounds, y = [], [], []
    for _ in range(n):
        words = list(random.choice(["good", "play", "film", "b", "it's"], random.integers(3, 6)))
        place = random.integers(len(words))
        words[place] = "the"
        signs = random.choice([-1.0, 1.0], size=(len(words), 1))
        texts.append(" ".join(words))
        sounds.append(signs)
        y.append(int(signs[place, 0] > 0))
    return Samples.of({"text": np.array(texts, dtype=object), "sound": sounds}, np.array(y))


@pytest.mark.slow
@MODELS
def test_what_a_word_sounds_like_is_learned_only_with_its_own_step(model, tmp_path):
    samples = spoken()
    train, test = samples.select(np.arange(350)), samples.select(np.arange(350, 500))
    encoders = {**chosen(model(tmp_path, pieces=True)), "sound": torch.nn.Linear(1, 8)}
    right = {}
    for align in ("words", "pooled"):
        trainer = Trainer(epochs=25, batch_size=32, lr=3e-3, device="cpu", patience=None)
        settings = {"align": align, "dropout": 0.0}
        fitted = Model.fit("mag", train, settings=settings, encoders=encoders, trainer=trainer)
        right[align] = (fitted.predict(test).output.argmax(1).numpy() == test.y).mean()
    assert right["words"] > 0.95
    assert right["pooled"] < 0.8
