"""What the tests of readers share: opening a source, and what it refuses."""

from __future__ import annotations

import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import QprofError
from qprof_onnx.profiles.samples.objects import PreprocessedData
from qprof_onnx.profiles.samples.samples import open_samples
from qprof_onnx.profiles.samples.values import InputSpec, Sample, Samples


def spec(name: str, dtype: Any = np.float32, shape: Any = ("N", 3), rows: int | None = None) -> InputSpec:
    return InputSpec(name, np.dtype(dtype), shape, rows)


def opened(source: str | Path, specs: Sequence[InputSpec], recipe: str | Path | None = None) -> Samples:
    """Open a source as a command does; a recipe is the path of a file, or its text."""
    return open_samples(PreprocessedData(str(source), None if recipe is None else str(recipe)), specs)


def written(folder: Path, text: str) -> Path:
    """Write a recipe, whose lines are parted by ";", and return its path."""
    path = folder / "recipe.yaml"
    path.write_text(text.replace("; ", "\n") + "\n")
    return path


def read(source: str | Path, specs: Sequence[InputSpec], recipe: str | Path | None = None) -> list[Sample]:
    return list(opened(source, specs, recipe))


def refusal(source: str | Path, specs: Sequence[InputSpec], recipe: str | Path | None = None) -> str:
    """Return the message with which a source is refused, when it is opened or read."""
    with pytest.raises(QprofError) as caught:
        read(source, specs, recipe)
    return str(caught.value)


def saved_recording(folder: Path, values: np.ndarray, name: str = "a.wav", rate: int = 8000) -> Path:
    """Write 16-bit samples as a WAV file: one channel, or one for each column."""
    channels = 1 if values.ndim == 1 else values.shape[1]
    with wave.open(str(folder / name), "wb") as file:
        file.setparams((channels, 2, rate, 0, "NONE", ""))
        file.writeframes(values.astype("<i2").tobytes())
    return folder / name
