"""Made speech: espeak-ng from a PyPI package, through ctypes."""

from __future__ import annotations

import ctypes

import espeakng_loader
import numpy as np
from scipy.signal import resample_poly

RATE = 16000
SYNCHRONOUS = 2  # espeak_AUDIO_OUTPUT


class Speaker:
    """espeak-ng in this process: the library that a PyPI package ships, called through ctypes.

    It carries some state from sentence to sentence: the same sounds come again in a new process that speaks
    the same sentences in the same order.

    Attributes:
        rate: of the library, in samples per second.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        self._pieces: list[np.ndarray] = []
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
        self._callback = kind(self._take)  # kept, or ctypes would free it
        data = str(espeakng_loader.get_data_path()).encode()
        self.rate = self._library.espeak_Initialize(SYNCHRONOUS, 0, data, 0)
        assert self.rate == 22050
        self._library.espeak_SetSynthCallback(self._callback)

    def _take(self, samples: object, count: int, events: object) -> int:
        if samples and count:
            self._pieces.append(np.ctypeslib.as_array(samples, (count,)).copy())  # type: ignore[call-overload]
        return 0

    def say(self, sentence: str, voice: str, words_per_minute: int) -> np.ndarray:
        """Return a sentence spoken, float64 at RATE, about -1 to 1."""
        self._pieces.clear()
        assert self._library.espeak_SetVoiceByName(voice.encode()) == 0, voice
        self._library.espeak_SetParameter(1, words_per_minute, 0)
        ctypes.CDLL(None).srand(1)  # its breath noise comes from the C library
        spoken = sentence.encode()
        self._library.espeak_Synth(spoken, ctypes.c_size_t(len(spoken) + 1), 0, 0, 0, 1, None, None)
        sound = np.concatenate(self._pieces).astype(np.float64) / 32768
        return np.asarray(resample_poly(sound, RATE // 50, self.rate // 50))
