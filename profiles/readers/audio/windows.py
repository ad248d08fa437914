"""Windows of a recording, as the arrays of a model's inputs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as of_field
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from ...base.errors import ConfigError, DataError
from ..constants import Constants, checked_names, constant_arrays
from ..preprocessing import RECIPE, Preprocessing, recipe_of
from ..values import InputSpec, shape_text
from .recordings import Channels, recording_of, resampled

Length = int | str
"""A number of samples of the signal, or seconds: "0.5 s", "20 ms"."""


@dataclass(frozen=True)
class AudioRecipe:
    """How a recording becomes the input of a model: samples of -1 to 1, one channel."""

    rate: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="N: samples a second that the model takes")
    ] = None
    resample: Annotated[
        Literal["refuse", "soxr", "scipy"],
        Meta(description="refuse, soxr or scipy: what becomes of files with another rate"),
    ] = "refuse"
    window: Annotated[
        Length | None,
        Meta(description="N samples, or 0.5 s, or 20 ms: of one sample; else what the model fixes, or all"),
    ] = None
    hop: Annotated[
        Length | None, Meta(description="N samples, or 0.5 s: from window to window; else the window")
    ] = None
    channels: Annotated[Channels, Meta(description="mean or first: how several channels become one")] = "mean"
    normalize: Annotated[
        bool, Meta(description="true or false: whether a recording gets mean 0 and variance 1")
    ] = False
    scale: Annotated[
        float, Meta(description="a number: what -1 to 1 is multiplied by, as 32768 for 16-bit values")
    ] = 1.0
    pad: Annotated[
        bool, Meta(description="true or false: whether the last window is filled up with zeros, or left out")
    ] = False
    input: Annotated[str, Meta(description="NAME of the input that takes the signal")] = ""
    column: Annotated[str, Meta(description="NAME of the column that holds recordings")] = ""
    constants: Constants = of_field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class AudioEncoder:
    """Makes samples of recordings.

    Attributes:
        recipe: how.
        rate: samples a second.
        spec: of the input that takes the signal.
        shape: of that input, None where the window goes.
        window: samples of the signal in one sample; None for the whole recording.
        hop: samples from window to window.
        constants: of the other inputs.
        notes: what was assumed.
    """

    recipe: AudioRecipe
    rate: int
    spec: InputSpec
    shape: tuple[int, ...]
    window: int | None
    hop: int | None
    constants: Mapping[str, npt.NDArray[Any]]
    notes: tuple[str, ...] = ()

    def arrays(self, where: str, content: bytes) -> Iterator[dict[str, npt.NDArray[Any]]]:
        """Yield the arrays of each window of a recording.

        Args:
            where: the file, for messages.
            content: of the file.

        Raises:
            DataError: the file is broken, of another rate, or shorter than a window.
        """
        recording = recording_of(where, content, self.recipe.channels)
        signal = resampled(where, recording, self.rate, self.recipe.resample).samples
        if self.recipe.normalize:  # as Wav2Vec2FeatureExtractor of transformers does
            signal = (signal - signal.mean()) / np.sqrt(signal.var() + np.float32(1e-7))
        for values in self._windows(where, signal):
            scaled = values * np.float32(self.recipe.scale)
            yield {self.spec.name: self._cast(scaled).reshape(self.shape), **self.constants}

    def _windows(self, where: str, signal: npt.NDArray[np.float32]) -> Iterator[npt.NDArray[np.float32]]:
        window = self.window or len(signal)
        hop = self.hop or window
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

    def _cast(self, values: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
        if self.spec.dtype.kind not in "iu":
            return values.astype(self.spec.dtype)
        limits = np.iinfo(self.spec.dtype)
        return np.clip(np.rint(values), limits.min, limits.max).astype(self.spec.dtype)


def audio_recipe(preprocessing: Preprocessing) -> AudioRecipe:
    """Return the recipe for recordings that `--preprocess` names.

    Raises:
        ConfigError: an unknown key, a value that is not allowed; a `preprocessor_config.json` asks for other
            features than the signal.
    """
    if preprocessing.kind == RECIPE:
        return recipe_of(preprocessing, AudioRecipe)
    settings, where = preprocessing.settings, preprocessing.name
    if settings.get("feature_size", 1) != 1:
        raise ConfigError(
            f"{where}: asks for {settings.get('feature_size')} features of each frame, and only the signal "
            "is read here; make features in Python, with --data file.py:function"
        )
    known = {"rate": settings.get("sampling_rate"), "normalize": settings.get("do_normalize", False)}
    return recipe_of(replace(preprocessing, settings=known), AudioRecipe)


def audio_encoder(preprocessing: Preprocessing, inputs: Sequence[InputSpec]) -> AudioEncoder:
    """Return what makes samples of recordings.

    Args:
        preprocessing: a recipe with `reader: audio`.
        inputs: of the model.

    Raises:
        ConfigError: there is no recipe, or it does not suit the model.
    """
    recipe, where = audio_recipe(preprocessing), preprocessing.name or "--preprocess"
    if recipe.rate is None:
        raise ConfigError(
            f"{where}: the model does not say which rate it takes; give a recipe with the lines "
            "'reader: audio' and, for one, 'rate: 16000'"
        )
    constants = constant_arrays(where, recipe.constants, inputs)
    spec = _signal(where, recipe, [spec for spec in inputs if spec.name not in constants])
    if spec.dtype.kind in "iu" and recipe.scale == 1.0:
        raise ConfigError(
            f"{where}: input '{spec.name}' takes integers, and the signal is -1..1; set scale: 32768 for "
            "16-bit values"
        )
    shape, fixed = _layout(where, spec)
    window = fixed if recipe.window is None else _samples_of(f"{where}: window", recipe.window, recipe.rate)
    if fixed is not None and window != fixed:
        raise ConfigError(f"{where}: window: is {window} samples, and the model fixes {fixed}; leave it out")
    hop = None if recipe.hop is None else _samples_of(f"{where}: hop", recipe.hop, recipe.rate)
    cut = "whole recordings" if window is None else f"windows of {window} samples every {hop or window}"
    notes = (
        () if recipe.window is not None else (f"{where}: {cut}; window and hop in the recipe cut otherwise",)
    )
    return AudioEncoder(recipe, recipe.rate, spec, shape, window, hop, constants, notes)


def _signal(where: str, recipe: AudioRecipe, specs: Sequence[InputSpec]) -> InputSpec:
    """Return the input that takes the signal.

    Raises:
        ConfigError: the recipe names none of the inputs, or leaves others without a value.
    """
    if recipe.input:
        checked_names(f"{where}: input", {recipe.input: None}, [spec.name for spec in specs])
    chosen = [spec for spec in specs if recipe.input in ("", spec.name)]
    if len(chosen) != 1 or len(specs) != 1:
        open_names = ", ".join(f"'{spec.name}' ({spec})" for spec in specs) or "none"
        raise ConfigError(
            f"{where}: one input takes the signal, and every other one a value, as constants: {{state: "
            f"zeros}}; without a value are {open_names}"
        )
    return chosen[0]


def _layout(where: str, spec: InputSpec) -> tuple[tuple[int, ...], int | None]:
    """Return the shape of the input, -1 where the window goes, and the window where the model fixes it.

    The window goes along the last dimension, or along the one before it where only the last one is 1.

    Raises:
        ConfigError: a dimension besides is not 1.
    """
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


def _samples_of(where: str, length: int | str, rate: int) -> int:
    """Return a length in samples of a signal: a number of them, or seconds such as "0.5 s" or "20 ms".

    Args:
        where: the key, for the message.
        length: as the recipe says.
        rate: samples a second.

    Raises:
        ConfigError: it is neither, or less than one sample.
    """
    match = re.fullmatch(r"([0-9.]+) ?(s|ms)", length) if isinstance(length, str) else None
    try:
        seconds = None if match is None else float(match[1]) / (1000 if match[2] == "ms" else 1)
    except ValueError:
        seconds = None
    samples = length if isinstance(length, int) else round((seconds or 0) * rate)
    if samples < 1:
        raise ConfigError(
            f"{where}: is {length}; give a number of samples, or seconds such as 0.5 s or 20 ms"
        )
    return samples
