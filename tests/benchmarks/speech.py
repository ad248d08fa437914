"""Made speech whose phonemes and their times are known: espeak-ng from a PyPI package, through ctypes."""

from __future__ import annotations

import ctypes
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import espeakng_loader
import numpy as np
import text
from scipy.signal import resample_poly

RATE = 16000
SYNCHRONOUS, PHONEMES = 2, 1  # espeak_AUDIO_OUTPUT, an option of espeak_Initialize
PHONEME = 7  # espeak_EVENT_TYPE
# Variants f2, f3 and f5 are left out: espeak-ng does not say the same twice with them.
VOICES = {
    "training": ("en-us", "en+f1", "en-us+m3", "en+m7", "en-us+f4", "en+m1"),
    "calibration": ("en-us", "en+f1", "en+m7"),
    "tuning": ("en-us+m3", "en-us+f4", "en+m1"),
    "evaluation": ("en-us", "en-us+f4", "en+m7", "en-us+f1", "en+m2", "en-us+m4"),
}
PARTS = {
    "training": range(13),
    "calibration": range(13, 14),
    "tuning": range(14, 17),
    "evaluation": range(17, 20),
}
"""Sentences by split: the remainder of their place by 20."""


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("name", ctypes.c_char * 8),
    )


@dataclass(frozen=True)
class Spoken:
    """A sentence spoken.

    Attributes:
        sound: float64 at RATE, about -1 to 1.
        phonemes: espeak-ng's names; "" is a pause.
        starts: when each phoneme starts, in seconds, and the end of the last.
    """

    sound: np.ndarray
    phonemes: tuple[str, ...]
    starts: tuple[float, ...]


class Speaker:
    """espeak-ng in this process: the library that a PyPI package ships, called through ctypes.

    It carries some state from sentence to sentence: what is said is the same again in a new process that
    says the same sentences in the same order.

    Attributes:
        rate: of the library, in samples per second.
    """

    def __init__(self, *, with_phonemes: bool = True) -> None:
        self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        self._pieces: list[np.ndarray] = []
        self._events: list[tuple[str, float]] = []
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
        )
        self._callback = kind(self._take)  # kept, or ctypes would free it
        data = str(espeakng_loader.get_data_path()).encode()
        self.rate = self._library.espeak_Initialize(SYNCHRONOUS, 0, data, PHONEMES if with_phonemes else 0)
        assert self.rate == 22050
        self._library.espeak_SetSynthCallback(self._callback)

    def _take(self, samples: object, count: int, events: Sequence[_Event]) -> int:
        if samples and count:
            self._pieces.append(np.ctypeslib.as_array(samples, (count,)).copy())  # type: ignore[call-overload]
        place = 0
        while events[place].type != 0:
            if events[place].type == PHONEME:
                self._events.append((events[place].name.decode(), events[place].sample / self.rate))
            place += 1
        return 0

    def say(self, sentence: str, voice: str, words_per_minute: int) -> Spoken:
        """Return a sentence spoken; without phonemes where these are not told."""
        self._pieces.clear()
        self._events.clear()
        assert self._library.espeak_SetVoiceByName(voice.encode()) == 0, voice
        self._library.espeak_SetParameter(1, words_per_minute, 0)
        ctypes.CDLL(None).srand(1)  # its breath noise comes from the C library
        spoken = sentence.encode()
        self._library.espeak_Synth(spoken, ctypes.c_size_t(len(spoken) + 1), 0, 0, 0, 1, None, None)
        sound = np.concatenate(self._pieces).astype(np.float64) / 32768
        seconds = len(sound) / self.rate
        names, starts = (tuple(event[k] for event in self._events) for k in (0, 1))
        return Spoken(resample_poly(sound, RATE // 50, self.rate // 50), names, (*starts, seconds))


def _said(lines: Sequence[tuple[str, str, int]]) -> list[Spoken]:
    speaker = Speaker()
    return [speaker.say(*line) for line in lines]


def said(lines: Sequence[tuple[str, str, int]]) -> list[Spoken]:
    """Speak sentences, each with one of espeak-ng's voices and a number of words per minute.

    In a process of its own, so that what is said does not depend on what was said before.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_said, list(lines)).result()


def sentences(part: str, longest: int) -> list[str]:
    """Return the sentences of a split, of at most so many letters."""
    known = text.sentences()
    return [known[k] for k in range(len(known)) if k % 20 in PARTS[part] and len(known[k]) <= longest]


def mel_filters(bands: int, size: int, top: float = RATE / 2) -> np.ndarray:
    """Return triangular filters on the mel scale, (bands, size // 2 + 1), float64."""
    hertz = np.linspace(0, RATE / 2, size // 2 + 1)
    edges = 700 * (np.exp(np.linspace(np.log1p(60 / 700), np.log1p(top / 700), bands + 2)) - 1)
    rising = (hertz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - hertz) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0.0, np.minimum(rising, falling))


def spectra(sound: np.ndarray, size: int, hop: int) -> np.ndarray:
    """Return magnitudes of the Fourier transform of windowed frames, (samples // hop, size // 2 + 1)."""
    padded = np.pad(sound, (size // 2, size))
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[: len(sound) // hop * hop : hop]
    return np.abs(np.fft.rfft(frames * np.hanning(size + 1)[:-1], axis=1))
