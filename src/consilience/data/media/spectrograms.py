"""Spectrograms: the power of frequencies in windows of a recording, and bands of them as the ear separates them."""

from __future__ import annotations

import numpy as np

from consilience.core.errors import InputError

DECIBELS = 100.0  # quieter than so many decibels below full scale is silence


def power_spectra(waves: np.ndarray, window: int, hop: int) -> np.ndarray:
    """Power of every frequency in windows of `window` samples, `hop` apart, under a Hann window.

    Args:
        waves: Recordings `[…, time]`.
        window: Samples of a window.
        hop: Samples from one window to the next.

    Returns:
        `[…, window, frequency]`, with `window // 2 + 1` frequencies from 0 to half the sampling rate.
    """
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    windows = np.lib.stride_tricks.sliding_window_view(waves, window, axis=-1)[..., ::hop, :]
    return np.abs(np.fft.rfft(windows * hann, axis=-1)) ** 2


def mel_bands(bands: int, window: int, rate: int) -> np.ndarray:
    """Triangles `[frequency, band]` of equal width on the mel scale, 2595·log10(1 + f/700), with a peak of 1.

    Raises:
        InputError: A band lies between two frequencies, so it would always be silent.
    """
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + rate / 2 / 700), bands + 2) / 2595) - 1)
    frequencies = np.linspace(0, rate / 2, window // 2 + 1)[:, None]
    rising = (frequencies - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequencies) / (edges[2:] - edges[1:-1])
    triangles = np.maximum(0, np.minimum(rising, falling))
    if not triangles.any(axis=0).all():
        raise InputError(
            f"{bands} bands are too many for windows of {window} samples at {rate} samples a second: some would hold "
            "no frequency. Take fewer bands, or a longer window"
        )
    return triangles


def log_mel(wave: np.ndarray, window: int, hop: int, triangles: np.ndarray) -> np.ndarray:
    """Bands of a recording over time, in decibels below a sine of full scale: `[window, band]` in float32.

    Args:
        wave: Samples from −1 to 1, `[time]`.
        window: Samples of a window.
        hop: Samples from one window to the next.
        triangles: What `mel_bands` returned.
    """
    power = power_spectra(wave.astype(np.float64), window, hop) @ triangles
    full_scale = (window / 4) ** 2  # a sine of amplitude 1 at the centre of a frequency
    return (10 * np.log10(np.maximum(power / full_scale, 10 ** (-DECIBELS / 10)))).astype(np.float32)
