"""AV-MNIST and its halves, from tiny files in the public formats; the real ones where CONSILIENCE_DATA names them."""

import gzip
import hashlib
import io
import os
import struct
import wave
import zipfile
import zlib

import numpy as np
import pytest
from scipy import signal, stats
from sklearn.decomposition import PCA

from consilience.core.errors import InputError, MissingDataError
from consilience.data import load_data
from consilience.data.sets.avmnist import hold_recordings, pair, reduce_images, shrink, some_pairs, with_noise
from consilience.data.sets.fsdd import HOP, SIDE, WINDOW, fitted, spectrograms

rng = np.random.default_rng(0)


def wav(samples, rate=8000):
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.asarray(samples, dtype="<i2").tobytes())
    return buffer.getvalue()


def idx(values):
    header = bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape)
    return gzip.compress(header + values.tobytes())


@pytest.fixture
def public(tmp_path):
    """MNIST with 80 + 20 images, FSDD with 8 recordings of each digit (5 of them test takes)."""
    (tmp_path / "mnist").mkdir()
    random = np.random.default_rng(1)
    for stem, n in (("train", 80), ("t10k", 20)):
        images = random.integers(0, 256, size=(n, 28, 28), dtype=np.uint8)
        (tmp_path / "mnist" / f"{stem}-images-idx3-ubyte.gz").write_bytes(idx(images))
        (tmp_path / "mnist" / f"{stem}-labels-idx1-ubyte.gz").write_bytes(idx((np.arange(n) % 10).astype(np.uint8)))
    (tmp_path / "fsdd").mkdir()
    with zipfile.ZipFile(tmp_path / "fsdd" / "recordings.zip", "w") as archive:
        for digit in range(10):
            for take in range(8):
                tone = 8000 * np.sin(2 * np.pi * (200 + 100 * digit) * np.arange(3000 + 100 * take) / 8000)
                archive.writestr(f"recordings/{digit}_anna_{take}.wav", wav(tone))
    return tmp_path


def test_spectrograms_are_scipys():
    waves = (3000 * rng.standard_normal((2, WINDOW + (SIDE - 1) * HOP))).astype(np.int16)
    _, _, expected = signal.spectrogram(
        waves.astype(float), nperseg=WINDOW, noverlap=WINDOW - HOP, window="hann", detrend=False, mode="psd", axis=1
    )
    power = expected[:, :SIDE]
    power[:, 0] /= 1  # one-sided densities double every bin but the first
    power[:, 1:] /= 2
    decibels = 10 * np.log10(np.maximum(power / power.max(axis=(1, 2), keepdims=True), 1e-8))
    got = spectrograms(waves)[:, ::-1].astype(float) * 80 / 255 - 80
    assert np.abs(got - decibels).max() < 80 / 255


def test_a_tone_is_a_line_at_its_frequency():
    tone = 9000 * np.sin(2 * np.pi * 1000 * np.arange(9000) / 8000)
    image = spectrograms(fitted(tone.astype(np.int16))[None])[0]
    assert (image.argmax(axis=0) == SIDE - 1 - 1000 * WINDOW // 8000).all()


def test_silence_is_black():
    assert not spectrograms(np.zeros((1, WINDOW + (SIDE - 1) * HOP), np.int16)).any()


@pytest.mark.parametrize("length", [1, 1148, 8026, 8027, 18262])
def test_recordings_are_cut_or_padded_around_their_middle(length):
    samples = np.arange(1, length + 1, dtype=np.int16)
    got = fitted(samples)
    assert len(got) == WINDOW + (SIDE - 1) * HOP
    if length < len(got):
        assert got[np.flatnonzero(got)].tolist() == samples.tolist()
        assert abs((got != 0).argmax() - (len(got) - length) / 2) <= 1


def test_images_are_what_scikit_learns_pca_leaves():
    images = (rng.random((60, 6, 5)) * np.linspace(20, 255, 30).reshape(6, 5)).astype(np.uint8)
    train = np.arange(60) < 40
    got, count = reduce_images(images, train, 4)
    flat = images.reshape(60, -1).astype(float)
    pca = PCA(4, svd_solver="full").fit(flat[train])
    expected = np.rint(pca.inverse_transform(pca.transform(flat))).clip(0, 255)
    assert count == 4
    assert np.abs(got.reshape(60, -1) - expected).max() == 0
    share = PCA(svd_solver="full").fit(flat[train]).explained_variance_ratio_.cumsum()
    assert reduce_images(images, train, None, 0.5)[1] == (share < 0.5).sum() + 1


def test_pairs_are_of_one_digit_one_part_and_even():
    digits, spoken = np.arange(95) % 10, np.arange(40) % 10
    recordings = np.flatnonzero(np.arange(40) < 30)
    rows = pair(digits, spoken, recordings, seed=3)
    assert (spoken[rows] == digits).all()
    assert np.isin(rows, recordings).all()
    used = np.bincount(rows, minlength=40)[recordings]
    assert used.max() - used.min() <= 1
    assert (pair(digits, spoken, recordings, seed=3) == rows).all()
    assert (pair(digits, spoken, recordings, seed=4) != rows).any()


def test_a_digit_nobody_says_is_an_error():
    with pytest.raises(InputError, match="no recording of digit 7"):
        pair(np.array([7]), np.array([1, 2]), np.arange(2), seed=0)


def digest(data):
    both = hashlib.sha256()
    for name in ("image", "audio"):
        both.update(np.ascontiguousarray(np.asarray(data.samples[name])).tobytes())
    return both.hexdigest()


def test_built_twice_it_is_the_same_to_the_byte(public):
    first, second = (load_data("av-mnist", data_dir=public, components=5) for _ in range(2))
    assert digest(first) == digest(second)
    assert digest(first) != digest(load_data("av-mnist", data_dir=public, components=4))
    assert digest(first) != digest(load_data("av-mnist", data_dir=public, components=5, seed=1))
    assert first.samples["image"].shape == (100, 1, 28, 28)
    assert first.samples["audio"].shape == (100, 1, 112, 112)
    assert len(first.test) == 20


def test_no_part_hears_what_another_hears(public):
    data = load_data("av-mnist", data_dir=public)
    heard = {part: set(data.part(part)["audio"].rows) for part in ("train", "validation", "test")}
    takes = {part: {row % 8 for row in rows} for part, rows in heard.items()}  # 8 of each digit, in order
    assert takes == {"train": {6, 7}, "validation": {5}, "test": set(range(5))}
    assert not data.drawn_validation
    assert (data.resplit(3).split == data.split).all()


def test_one_recording_in_seven_of_each_digit_is_for_validation():
    spoken = np.repeat([0, 1], [30, 12])
    words = hold_recordings(spoken, training=np.arange(42) % 3 > 0)
    for digit, held in ((0, 3), (1, 2)):  # of 20 and of 8
        assert (words[(spoken == digit)] == "validation").sum() == held
    assert (words[::3] == "train").all()


def test_fewer_pairs_are_some_of_all_with_the_same_shares(public):
    whole, some = (load_data("av-mnist", data_dir=public, n=n) for n in (None, 100))
    assert digest(whole) == digest(some)
    digits = np.arange(7000) % 10
    parts = np.array(["train", "validation", "test"])[np.arange(7000) % 7 // 5 + (np.arange(7000) % 7 == 6)]
    rows = some_pairs(digits, parts, 705, seed=1)
    assert len(np.unique(rows)) == 705
    assert (np.diff(rows) > 0).all()
    for part in np.unique(parts):
        for digit in range(10):
            group = (parts == part) & (digits == digit)
            assert abs(group[rows].sum() - group.sum() * 705 / 7000) < 1
    assert (some_pairs(digits, parts, 705, seed=1) == rows).all()
    assert (some_pairs(digits, parts, 705, seed=2) != rows).any()
    with pytest.raises(InputError, match="n must be a whole number ≥ 100 and ≤ 100, got 101"):
        load_data("av-mnist", data_dir=public, n=101)


def test_smaller_spectrograms_are_means_over_blocks(public):
    whole, small = (load_data("av-mnist", data_dir=public, side=side).samples["audio"] for side in (112, 28))
    blocks = np.asarray(whole)[3, 0].reshape(28, 4, 28, 4).astype(float)
    assert np.abs(np.asarray(small)[3, 0] - blocks.mean(axis=(1, 3))).max() <= 0.5
    one = np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4)
    assert shrink(one, 2)[0, 0].tolist() == [[2, 4], [10, 12]]  # 2.5 and 4.5 to the even
    with pytest.raises(InputError, match="side=30 must divide 112"):
        load_data("av-mnist", data_dir=public, side=30)


def test_noise_changes_the_audio_alone(public):
    plain, noisy = (load_data("av-mnist", data_dir=public, noise=noise) for noise in (0, 20))
    assert (plain.samples["image"] == noisy.samples["image"]).all()
    audible = np.asarray(plain.samples["audio"]).astype(int)
    middle = (audible > 80) & (audible < 175)  # where nothing is clipped
    assert abs((np.asarray(noisy.samples["audio"]) - audible)[middle].std() - 20) < 1


def test_noise_is_normal_and_every_pair_has_its_own():
    grey = np.full((1500, 1, 8, 8), 128, dtype=np.uint8)
    noise = with_noise(grey, 30.0, seed=3).astype(int) - 128
    unrounded = noise.ravel() + np.random.default_rng(0).uniform(-0.5, 0.5, noise.size)
    assert stats.kstest(unrounded, "norm", (0, 30)).pvalue > 0.01
    assert abs(np.corrcoef(noise[:750].ravel(), noise[750:].ravel())[0, 1]) < 0.02
    assert not (noise[0] == noise[1024]).all()  # drawn in pieces of 1024 rows
    assert zlib.crc32(with_noise(grey, 30.0, seed=3).tobytes()) == 620040440  # on every machine


def test_dependence_shares_a_style_and_changes_neither_modality_by_itself(public):
    sets = {dial: load_data("av-mnist", data_dir=public, components=5, dependence=dial) for dial in (0.0, 0.5, 1.0)}
    assert digest(sets[0.0]) == digest(load_data("av-mnist", data_dir=public, components=5))
    for data in sets.values():
        assert (data.samples["image"] == sets[0.0].samples["image"]).all()
        ink = np.asarray(data.samples["image"]).reshape(len(data), -1).mean(axis=1)
        loudness = np.asarray(data.samples["audio"]).reshape(len(data), -1).mean(axis=1)
        assert np.allclose(data.extra["style"]["image"], ink)
        assert np.allclose(data.extra["style"]["audio"], loudness)
        for part in ("train", "validation", "test"):
            here = data.split == part
            rows = [np.sort(each.samples["audio"].rows[here]) for each in (data, sets[0.0])]
            assert (rows[0] == rows[1]).all()
    full = sets[1.0]
    for digit in range(10):
        here = (full.split == "test") & (full.y == digit)
        order = np.argsort(full.extra["style"]["image"][here])
        assert (np.diff(full.extra["style"]["audio"][here][order]) >= 0).all()
    with pytest.raises(InputError, match="dependence must be a number ≥ 0 and ≤ 1"):
        load_data("av-mnist", data_dir=public, dependence=1.5)


def test_what_is_missing_is_said(public):
    (public / "fsdd" / "recordings.zip").unlink()
    with pytest.raises(MissingDataError, match=r"Free Spoken Digit.*CC BY-SA 4.0.*search the web for: .* download"):
        load_data("av-mnist", data_dir=public)


def test_a_broken_archive_and_a_foreign_file_are_said(public):
    path = public / "fsdd" / "recordings.zip"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"recordings.zip is truncated"):
        load_data("fsdd", data_dir=public)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello.wav", wav(np.zeros(10)))
    with pytest.raises(InputError, match=r"DIGIT_SPEAKER_TAKE.wav, got hello.wav"):
        load_data("fsdd", data_dir=public)


@pytest.mark.slow
@pytest.mark.skipif(
    not os.environ.get("CONSILIENCE_DATA"), reason="needs MNIST and FSDD below the folder CONSILIENCE_DATA names"
)
def test_the_real_one_has_the_bytes_it_had():
    data = load_data("av-mnist", components=3)
    image = hashlib.sha256(np.ascontiguousarray(data.samples["image"]).tobytes()).hexdigest()
    rows = np.ascontiguousarray(data.samples.values["audio"].rows)
    audio = hashlib.sha256(
        np.ascontiguousarray(data.samples.values["audio"].base).tobytes() + rows.tobytes()
    ).hexdigest()
    assert (image[:16], audio[:16]) == ("fecba9287e6981f4", "c42f09c44ffdf27c")
