"""Sound against scipy, soundfile and the mel filters of transformers."""

import io

import numpy as np
import pytest
from scipy.io import wavfile
from scipy.signal import ShortTimeFFT

from consilience.core.errors import InputError
from consilience.data.media import sound
from consilience.data.media.settings import SoundSettings
from consilience.data.media.sound import SoundDecoder, read_sound
from consilience.data.media.spectrograms import log_mel, mel_bands, power_spectra

rng = np.random.default_rng(0)
RATE = 8000
TONE = np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE).astype(np.float32)


def wav(samples, rate=RATE):
    stream = io.BytesIO()
    wavfile.write(stream, rate, samples)
    return stream.getvalue()


def decoder(kind, **settings):
    return SoundDecoder.restore("voice", kind, SoundSettings(**{"rate": RATE, "seconds": 1.0} | settings))


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("channels", [1, 2])
def test_wav_as_soundfile_reads_it(dtype, channels):
    soundfile = pytest.importorskip("soundfile")
    unit = rng.uniform(-0.9, 0.9, size=(500, channels))
    if dtype == np.uint8:
        samples = (128 + 127 * unit).astype(dtype)
    elif np.dtype(dtype).kind == "i":
        samples = (unit * np.iinfo(dtype).max).astype(dtype)
    else:
        samples = unit.astype(dtype)
    content = wav(samples if channels == 2 else samples[:, 0])
    expected, rate = soundfile.read(io.BytesIO(content), dtype="float32", always_2d=True)
    got, own_rate = read_sound(content, "a.wav")
    assert own_rate == rate
    np.testing.assert_allclose(got, expected.mean(axis=1), atol=1e-7)


@pytest.mark.parametrize("format", ["FLAC", "OGG"])
def test_flac_and_ogg(format):
    soundfile = pytest.importorskip("soundfile")
    stream = io.BytesIO()
    soundfile.write(stream, TONE, RATE, format=format)
    got, rate = read_sound(stream.getvalue(), f"a.{format.lower()}")
    assert rate == RATE
    np.testing.assert_allclose(got, TONE, atol=0.05 if format == "OGG" else 1e-4)
    with pytest.raises(Exception):  # noqa: B017, PT011  # of libsndfile, or ours on what is missing
        read_sound(stream.getvalue()[: len(stream.getvalue()) // 2], f"a.{format.lower()}")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    with pytest.raises(InputError, match=r"pip install 'consilience\[media\]'"):
        read_sound(b"", "a.flac")
    assert read_sound(wav(TONE), "a.wav")[1] == RATE


def test_power_of_windows_is_that_of_scipy():
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(256) / 256)
    wave = rng.normal(size=2048)
    spectra = np.abs(ShortTimeFFT(hann, hop=64, fs=1).stft(wave)) ** 2
    got = power_spectra(wave, 256, 64)
    assert got.shape == (29, 129)
    # scipy's windows are centred: the first one that lies inside is its third after that around the first sample.
    first = -ShortTimeFFT(hann, hop=64, fs=1).p_min + 2
    np.testing.assert_allclose(got, spectra.T[first : first + 29], atol=1e-9)


@pytest.mark.parametrize(("bands", "window", "rate"), [(40, 512, 16_000), (20, 256, 8000)])
def test_mel_bands_are_those_of_transformers(bands, window, rate):
    filters = pytest.importorskip("transformers.audio_utils").mel_filter_bank(
        window // 2 + 1, bands, 0.0, rate / 2, rate, norm=None, mel_scale="htk"
    )
    np.testing.assert_allclose(mel_bands(bands, window, rate), filters, atol=1e-9)


def test_more_bands_than_frequencies_are_refused():
    with pytest.raises(InputError, match="128 bands are too many"):
        mel_bands(128, 256, 8000)
    with pytest.raises(InputError, match="modality 'voice': 512 bands"):
        decoder("image", bands=512)


def test_a_tone_of_full_scale_has_no_decibels_and_silence_a_hundred():
    triangles = np.eye(129)
    tone = np.sin(2 * np.pi * 1000 * np.arange(RATE) / RATE)  # the 32nd frequency exactly
    loudness = log_mel(tone, 256, 128, triangles)
    np.testing.assert_allclose(loudness[:, 32], 0, atol=1e-6)
    assert (loudness.argmax(axis=1) == 32).all()
    assert (log_mel(np.zeros(1000), 256, 128, triangles) == -100).all()


def test_image_sequence_and_wave():
    image, _ = decoder("image")(wav(TONE), "a.wav")
    sequence, length = decoder("sequence")(wav(TONE), "a.wav")
    assert image.shape == decoder("image").shape == (1, 40, 62)
    np.testing.assert_array_equal(image[0].T, sequence)
    assert length == 62
    wave, length = decoder("sequence", form="wave")(wav(TONE), "a.wav")
    np.testing.assert_array_equal(wave[:, 0], TONE)
    assert length == RATE
    with pytest.raises(InputError, match="a waveform is of kind sequence, not image"):
        decoder("image", form="wave")


def test_short_ones_are_padded_and_of_long_ones_the_middle_is_kept():
    short, length = decoder("sequence", form="wave")(wav(TONE[:3000]), "a.wav")
    assert length == 3000
    assert not short[3000:].any()
    ramp = np.arange(3 * RATE, dtype=np.int16)
    middle, length = decoder("sequence", form="wave")(wav(ramp), "a.wav")
    np.testing.assert_allclose(middle[:, 0] * 2**15, ramp[RATE : 2 * RATE], atol=1e-2)
    mel, length = decoder("sequence")(wav(TONE[:1000]), "a.wav")
    assert length == 1 + -(-(1000 - 256) // 128)
    assert (mel[length + 1 :] == -100).all()
    assert (mel[:length] > -100).any(axis=1).all()


@pytest.mark.parametrize("rate", [4000, 11_025, 16_000, 44_100, 44_101, 767_999])
def test_a_tone_keeps_its_pitch_whatever_its_rate(rate):
    tone = np.sin(2 * np.pi * 440 * np.arange(rate) / rate).astype(np.float32)
    got, length = decoder("sequence", form="wave")(wav(tone, rate), "a.wav")
    assert abs(length - RATE) <= 1
    inside = slice(500, length - 500)
    np.testing.assert_allclose(got[inside, 0], TONE[inside], atol=0.02)


def test_the_length_is_that_of_the_longest_up_to_ten_seconds(tmp_path):
    for name, seconds in (("a", 0.5), ("b", 1.25), ("c", 11)):
        (tmp_path / f"{name}.wav").write_bytes(wav(np.zeros(int(seconds * RATE), dtype=np.int16)))
    (tmp_path / "broken.wav").write_bytes(b"RIFF")
    files = [str(tmp_path / f"{name}.wav") for name in ("a", "b", "broken")]
    assert SoundDecoder.learn("voice", None, SoundSettings(), files).settings.seconds == 1.25
    with pytest.warns(UserWarning, match=r"1 of 4 recordings are longer than 10 s.*--media voice.seconds"):
        learned = SoundDecoder.learn("voice", None, SoundSettings(), [*files, str(tmp_path / "c.wav")])
    assert learned.settings.seconds == 10


def test_headers_that_lie(monkeypatch):
    whole = wav((TONE * 2**14).astype(np.int16))
    for content, message in (
        (whole[:-100], "promises 16000 bytes of samples, 15900 are there"),
        (whole[:30], "ends before its samples|requires"),
        (b"RIFX" + whole[4:], "ends before|promises|channels|requires"),
        (b"OggS" + whole[4:], "does not start as a wav"),
        (whole[:24] + b"\x01\0\0\0" + whole[28:], "1 samples a second"),
        (whole[:40] + b"\0\0\0\0", "no samples"),
        (whole[:32] + b"\x01\0" + whole[34:], "1 bytes for 1 channels of 16 bits"),  # noise, if bytes were samples
        (whole[:32] + b"\x04\0" + whole[34:], "4 bytes for 1 channels of 16 bits"),
        (whole[:34] + b"\x08\0" + whole[36:], "2 bytes for 1 channels of 8 bits"),
        (whole[:22] + b"\x03\0" + whole[24:], "2 bytes for 3 channels of 16 bits"),
        (b"RIFF\xff\xff\0\0" + whole[8:] + b"data\x04\0\0\0abcd", "holds 2 samples, its header says 8000"),
    ):
        with pytest.raises(Exception, match=message):
            read_sound(content, "a.wav")
    monkeypatch.setattr(sound, "_MOST_SAMPLES", 7999)
    with pytest.raises(InputError, match="8000 samples, more than 7999"):
        read_sound(whole, "a.wav")


def test_nan_is_refused():
    broken = TONE.copy()
    broken[5] = np.nan
    with pytest.raises(InputError, match="NaN"):
        decoder("image")(wav(broken), "a.wav")
