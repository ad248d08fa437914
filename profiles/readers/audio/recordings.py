"""Recordings as one channel of float samples in -1..1.

The library soundfile reads what libsndfile knows; WAV files of plain integer samples need no library.
"""

from __future__ import annotations

import importlib.util
import io
import wave
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ...base.errors import ConfigError, DataError
from ...storage.extras import library

SUFFIXES = (".wav", ".flac", ".ogg")
FULL_SCALE = {1: 1 << 7, 2: 1 << 15, 3: 1 << 23, 4: 1 << 31}
"""Integer that stands for 1.0, by bytes of a sample."""

Channels = Literal["mean", "first"]
"""How several channels become one."""


@dataclass(frozen=True, eq=False)
class Recording:
    """A recording.

    Attributes:
        samples: float32, one channel, full scale -1..1.
        rate: samples a second.
    """

    samples: npt.NDArray[np.float32]
    rate: int


def recording_of(where: str, content: bytes, channels: Channels = "mean") -> Recording:
    """Return the recording that a file holds.

    Args:
        where: the file, for messages.
        content: of the file.
        channels: how several become one.

    Raises:
        DataError: the file is broken, or holds no samples.
        ConfigError: it is not plain PCM, and the library soundfile is not installed.
    """
    values, rate = _plain(content) or _by_library(where, content)
    if not len(values):
        raise DataError(f"{where}: holds no samples; leave the file out")
    one = values.mean(axis=1) if channels == "mean" else values[:, 0]
    return Recording(one.astype(np.float32), rate)


def resampled(where: str, recording: Recording, rate: int, library_name: str) -> Recording:
    """Return a recording at a rate.

    Args:
        where: the file, for messages.
        recording: at any rate.
        rate: that the model takes.
        library_name: `soxr` or `scipy`, which resamples; "refuse" for none.

    Raises:
        DataError: the rates differ, and nothing is to be resampled.
        ConfigError: the library is not installed.
    """
    if recording.rate == rate:
        return recording
    if library_name == "soxr":
        soxr = library("soxr", where, "audio")
        made = soxr.resample(recording.samples, recording.rate, rate)
    elif library_name == "scipy":
        divisor = int(np.gcd(recording.rate, rate))
        signal = library("scipy.signal", where, "audio")
        made = signal.resample_poly(recording.samples, rate // divisor, recording.rate // divisor)
    else:
        raise DataError(
            f"{where}: has {recording.rate} samples a second, and the recipe says {rate}; resample the file, "
            "or set resample: soxr in the recipe"
        )
    return Recording(np.asarray(made, np.float32), rate)


def _plain(content: bytes) -> tuple[npt.NDArray[np.float64], int] | None:
    """Return the frames of a plain PCM WAV file and its rate; None where it is something else, or broken."""
    try:
        with wave.open(io.BytesIO(content)) as file:
            channels, width, rate, frames, _, _ = file.getparams()
            data = file.readframes(frames)
    except (wave.Error, EOFError, RuntimeError):  # the last, on chunks that are longer than the file
        return None
    if width not in FULL_SCALE or not channels or len(data) != frames * channels * width:
        return None
    return _integers(data, width).reshape(-1, channels) / FULL_SCALE[width], rate


def _integers(data: bytes, width: int) -> npt.NDArray[np.float64]:
    """Return little-endian integers; of one byte they are unsigned in WAV, otherwise signed."""
    if width == 1:
        return np.frombuffer(data, np.uint8).astype(np.float64) - FULL_SCALE[1]
    if width == 3:
        padded = np.zeros((len(data) // 3, 4), np.uint8)
        padded[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return (padded.view("<i4")[:, 0] >> 8).astype(np.float64)
    return np.frombuffer(data, f"<i{width}").astype(np.float64)


def _by_library(where: str, content: bytes) -> tuple[npt.NDArray[np.float64], int]:
    if importlib.util.find_spec("soundfile") is None:
        raise ConfigError(
            f"{where}: is no WAV file of plain integer samples, or is broken; for other formats install "
            "soundfile with: pip install 'qprof-onnx[audio]'"
        )
    soundfile = library("soundfile", where, "audio")
    try:
        values, rate = soundfile.read(io.BytesIO(content), dtype="float64", always_2d=True)
    except (soundfile.SoundFileError, TypeError, ValueError, RuntimeError) as error:
        line = str(error).splitlines()[0]
        raise DataError(f"{where}: is broken or no recording ({line}); write the file again") from error
    return values, int(rate)
