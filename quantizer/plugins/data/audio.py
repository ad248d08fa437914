"""Samples from files of sound."""

from __future__ import annotations

import importlib.util
import io
import wave
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as of_field
from itertools import islice
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from ....profiles.base.errors import ConfigError, DataError
from ....profiles.base.extras import install_command, library
from ....profiles.base.findings import Code, Finding
from ....profiles.samples.batches import has_batch, in_batches
from ....profiles.samples.constants import Constants, checked_names, constant_arrays
from ....profiles.samples.preprocessing import RECIPE, Preprocessing, recipe_of
from ....profiles.samples.registry import AUDIO_SUFFIXES
from ....profiles.samples.states import values_advice
from ....profiles.samples.storage import data_files, shown_location
from ....profiles.samples.values import InputSpec, Sample, Samples, shape_text

# Recordings as one channel of float samples in -1..1.
#
# The library soundfile reads what libsndfile knows; WAV files of plain integer samples need no library.

FULL_SCALE = {1: 1 << 7, 2: 1 << 15, 3: 1 << 23, 4: 1 << 31}
"""Integer that stands for 1.0, by bytes of a sample."""

Channels = Literal["mean", "first"]
"""How several channels become one."""


def recording_of(
    where: str, content: bytes, channels: Channels = "mean"
) -> tuple[npt.NDArray[np.float32], int]:
    """Return the signal of a file, one channel with a full scale of -1..1, and its samples a second."""
    values, rate = _plain_wav(content) or _by_soundfile(where, content)
    if not len(values):
        raise DataError(f"{where}: contains no samples; leave the file out")
    one = values.mean(axis=1) if channels == "mean" else values[:, 0]
    return one.astype(np.float32), rate


def _plain_wav(content: bytes) -> tuple[npt.NDArray[np.float64], int] | None:
    """Return the frames of a plain PCM WAV file and its rate; None for a broken or another file."""
    try:
        with wave.open(io.BytesIO(content)) as file:
            channels, width, rate, frames, _, _ = file.getparams()
            data = file.readframes(frames)
    except (wave.Error, EOFError, RuntimeError):  # the last, on chunks that are longer than the file
        return None
    if width not in FULL_SCALE or not channels or len(data) != frames * channels * width:
        return None
    values: npt.NDArray[Any]
    if width == 1:  # unsigned; all others are signed and little-endian
        values = np.frombuffer(data, np.uint8).astype(np.float64) - FULL_SCALE[1]
    elif width == 3:
        padded = np.zeros((len(data) // 3, 4), np.uint8)
        padded[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        values = padded.view("<i4")[:, 0] >> 8
    else:
        values = np.frombuffer(data, f"<i{width}")
    return values.astype(np.float64).reshape(-1, channels) / FULL_SCALE[width], rate


def _by_soundfile(where: str, content: bytes) -> tuple[npt.NDArray[np.float64], int]:
    if importlib.util.find_spec("soundfile") is None:
        raise ConfigError(
            f"{where}: is not a WAV file of plain integer samples, or is broken; for other formats install "
            f"soundfile with: {install_command('audio')}"
        )
    soundfile = library("soundfile", where, "audio")
    try:
        values, rate = soundfile.read(io.BytesIO(content), dtype="float64", always_2d=True)
    except (soundfile.SoundFileError, TypeError, ValueError, RuntimeError) as error:
        line = str(error).splitlines()[0]
        raise DataError(f"{where}: is broken or no recording ({line}); write the file again") from error
    return values, int(rate)


def _resampled(
    where: str, signal: npt.NDArray[np.float32], rate: int, new_rate: int, resample: str
) -> npt.NDArray[np.float32]:
    """Return a signal at another rate, by soxr; with "refuse" other rates are a DataError."""
    if rate == new_rate:
        return signal
    if resample == "refuse":
        raise DataError(
            f"{where}: has {rate} samples per second, but the recipe sets {new_rate}; resample the file, "
            "or set resample: soxr in the recipe"
        )
    return np.asarray(library("soxr", where, "audio").resample(signal, rate, new_rate), np.float32)


# Windows of a recording, as the arrays of a model's inputs.


@dataclass(frozen=True)
class AudioRecipe:
    """How a recording becomes the input of a model: samples of -1 to 1, one channel.

    Attributes:
        rate: N: sample rate of the model in Hz
        resample: refuse or soxr, for files with another rate
        window: N from 1: values of the signal in one sample; else the model's fixed length, or all
        hop: N from 1: values from window to window; else the window
        channels: mean or first, to reduce several channels to one
        normalize: true or false: whether a recording gets mean 0 and variance 1
        scale: a number: factor for values of -1 to 1, such as 32768 for 16-bit values
        pad: true or false: whether the last window is padded with zeros, or dropped
        input: NAME of the input for the signal
        column: NAME of the column with recordings
    """

    rate: Annotated[int, Meta(ge=1)] | None = None
    resample: Literal["refuse", "soxr"] = "refuse"
    window: Annotated[int, Meta(ge=1)] | None = None
    hop: Annotated[int, Meta(ge=1)] | None = None
    channels: Channels = "mean"
    normalize: bool = False
    scale: float = 1.0
    pad: bool = False
    input: str = ""
    column: str = ""
    constants: Constants = of_field(default_factory=dict)


STEP = "'window: 576' and 'hop: 512' (samples of a step, and the new ones among them; these are Silero VAD's)"
"""Lines for a model with a state."""


@dataclass(frozen=True, eq=False)
class AudioEncoder:
    """Makes samples of recordings."""

    recipe: AudioRecipe
    rate: int
    spec: InputSpec
    shape: tuple[int, ...]  # -1 for the window
    window: int | None  # None for the whole recording
    constants: Mapping[str, npt.NDArray[Any]]
    findings: tuple[Finding, ...] = ()

    def arrays(self, where: str, content: bytes) -> Iterator[dict[str, npt.NDArray[Any]]]:
        """Yield the arrays of each window of a recording."""
        recipe, dtype = self.recipe, self.spec.dtype
        signal, rate = recording_of(where, content, recipe.channels)
        signal = _resampled(where, signal, rate, self.rate, recipe.resample)
        if recipe.normalize:  # as Wav2Vec2FeatureExtractor of transformers does
            signal = (signal - signal.mean()) / np.sqrt(signal.var() + np.float32(1e-7))
        for window in self._windows(where, signal):
            values = window * np.float32(recipe.scale)
            if dtype.kind in "iu":
                values = np.clip(np.rint(values), np.iinfo(dtype).min, np.iinfo(dtype).max)
            yield {self.spec.name: values.astype(dtype).reshape(self.shape), **self.constants}

    def _windows(self, where: str, signal: npt.NDArray[np.float32]) -> Iterator[npt.NDArray[np.float32]]:
        window = self.window or len(signal)
        hop = self.recipe.hop or window
        count = max(0, len(signal) - window) // hop + (len(signal) >= window)
        for number in range(count):
            yield signal[number * hop : number * hop + window]
        rest = signal[count * hop :]
        if self.recipe.pad and len(rest):
            yield np.pad(rest, (0, window - len(rest)))
        elif not count:
            raise DataError(
                f"{where}: has {len(signal)} samples at {self.rate} Hz, fewer than a window of {window}; "
                "leave the file out, or set pad: true in the recipe"
            )


def audio_encoder(preprocessing: Preprocessing, inputs: Sequence[InputSpec]) -> AudioEncoder:
    """Return an encoder that makes samples of recordings, for a recipe or a `preprocessor_config.json`."""
    where = preprocessing.name or "--preprocess"
    if preprocessing.kind != RECIPE:
        config = preprocessing.settings
        if config.get("feature_size", 1) != 1:
            raise ConfigError(
                f"{preprocessing.name}: asks for {config.get('feature_size')} features of each frame, and "
                "only the signal is read here; make features in Python, with --data file.py:function"
            )
        settings = {"rate": config.get("sampling_rate"), "normalize": config.get("do_normalize", False)}
        preprocessing = replace(preprocessing, settings=settings)
    recipe = recipe_of(preprocessing, AudioRecipe)
    if recipe.rate is None:
        raise ConfigError(
            f"{where}: the model does not state its sample rate; give a recipe with the lines "
            "'reader: audio' and, for one, 'rate: 16000'"
        )
    constants = constant_arrays(where, recipe.constants, inputs)
    spec = _signal_input(where, recipe, [spec for spec in inputs if spec.name not in constants])
    if spec.dtype.kind in "iu" and recipe.scale == 1.0:
        raise ConfigError(
            f"{where}: input '{spec.name}' expects integers, but the signal is -1..1; set scale: 32768 for "
            "16-bit values"
        )
    shape, fixed = _layout(where, spec)
    window = recipe.window or fixed
    if fixed is not None and window != fixed:
        raise ConfigError(f"{where}: window: is {window} samples, and the model fixes {fixed}; leave it out")
    if window is None and preprocessing.state:
        raise ConfigError(
            f"{where}: state: goes from window to window, and recordings are not cut into any; add {STEP}"
        )
    findings: tuple[Finding, ...] = ()
    if recipe.window is None:
        every = recipe.hop or window
        cut = "whole recordings" if window is None else f"windows of {window} samples every {every}"
        remedy = "override with window and hop in the recipe"
        findings = (Finding(Code.READING_ASSUMED, f"{where}: {cut}", where, remedy=remedy),)
    return AudioEncoder(recipe, recipe.rate, spec, shape, window, constants, findings)


def _signal_input(where: str, recipe: AudioRecipe, specs: Sequence[InputSpec]) -> InputSpec:
    """Return the input that takes the signal; ConfigError if another input has no value."""
    if not specs:
        raise ConfigError(f"{where}: every input has a value; remove the input for the signal from constants")
    if recipe.input:
        checked_names(f"{where}: input", {recipe.input: None}, [spec.name for spec in specs])
    if len(specs) == 1:
        return specs[0]
    signals, lines = _lines_of_others(recipe, specs)
    which = f"input '{signals[0].name}' takes the signal"
    if len(signals) != 1:
        which = "the input for the signal is not known (name it, as input: NAME)"
    raise ConfigError(f"{where}: {which}, and others have no value; add to the recipe {lines}")


def _lines_of_others(recipe: AudioRecipe, specs: Sequence[InputSpec]) -> tuple[list[InputSpec], str]:
    """Return the inputs that may take the signal, and the lines of a recipe that the others need."""
    signals = [spec for spec in specs if spec.name == recipe.input] or [
        spec
        for spec in specs
        if spec.dtype.kind == "f" and spec.shape and spec.shape[-1] != 1 and not spec.fed_by
    ]
    others = [spec for spec in specs if len(signals) > 1 or spec not in signals]
    names = (spec.name for spec in specs if spec.dtype.kind == "i")
    rates = {name: recipe.rate for name in names if name.lower() == "sr" or "rate" in name.lower()}
    is_fixed = any(spec.shape and isinstance(spec.shape[-1], int) for spec in signals)
    is_cut = recipe.window or recipe.hop or not any(spec.fed_by for spec in others)
    step = "'hop: N' if windows overlap (512 for the 576 of Silero VAD)" if is_fixed else STEP
    return signals, values_advice(others, rates) + ("" if is_cut else f", and {step}")


def _layout(where: str, spec: InputSpec) -> tuple[tuple[int, ...], int | None]:
    """Return the shape of the input, -1 for the window, and the window if the model fixes it."""
    dims = spec.shape if spec.shape is not None else (1, None)
    axis = len(dims) - 1
    if len(dims) == 3 and dims[2] == 1 and dims[1] != 1:
        axis = 1
    batch = 0 if len(dims) > 1 else None
    others = [dim for number, dim in enumerate(dims) if number not in (axis, batch) and isinstance(dim, int)]
    if not dims or len(dims) > 3 or any(size != 1 for size in others):
        raise ConfigError(
            f"{where}: input '{spec.name}' has shape {shape_text(spec.shape)}, and a signal fits (samples), "
            "(1, samples) and (1, 1, samples); make other features in Python, with --data file.py:function"
        )
    fixed = dims[axis]
    shape = tuple(-1 if number == axis else 1 for number in range(len(dims)))
    return shape, fixed if isinstance(fixed, int) else None


def open(source: str, inputs: Sequence[InputSpec], preprocessing: Preprocessing) -> Samples:
    """Return the windows of a recording, or of those of a folder and its folders, each as a sample."""
    if not preprocessing.reader:
        _, more = _lines_of_others(AudioRecipe(16000), inputs)
        raise DataError(
            f"{shown_location(source)}: contains recordings, but the sample rate of the model is unknown; "
            "give a recipe with --preprocess FILE, with the lines 'reader: audio' and 'rate: 16000' (samples "
            f"a second, as the model was trained){more and f', {more}'}"
        )
    encoder = audio_encoder(preprocessing, inputs)
    files = data_files(source, AUDIO_SUFFIXES, deep=True)
    if not files:
        raise DataError(
            f"{shown_location(source)}: contains no recordings; give {', '.join(AUDIO_SUFFIXES)} files"
        )

    def windows() -> Iterator[Sample]:
        for file in files:
            for number, arrays in enumerate(encoder.arrays(str(file), file.read())):
                yield Sample(f"{file.name}[{number}]", arrays, step=number)

    def iterate(part: slice) -> Iterator[Sample]:
        if encoder.window is not None:
            return islice(windows(), part.start, part.stop, part.step)
        return (Sample(file.name, next(encoder.arrays(str(file), file.read()))) for file in files[part])

    total = None if encoder.window is not None else len(files)
    rates = {encoder.spec.name: encoder.rate}
    samples = Samples(shown_location(source), total, iterate, True, encoder.findings, rates=rates)
    return in_batches(samples, inputs) if has_batch(inputs) else samples
