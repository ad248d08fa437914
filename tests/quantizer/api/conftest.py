"""The digits example as objects: its model, its samples, and a loader like those of frameworks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import qprof_onnx as qprof

DIGITS = Path(__file__).parents[3] / "examples" / "digits"


class Tensor:
    """What a framework's tensor shows of itself to numpy."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.values


class Loader:
    """A data loader: [images, labels] of each batch, in one buffer that is filled again and again."""

    def __init__(self, folder: str) -> None:
        self.batches = [np.load(path)["image"] for path in sorted((DIGITS / folder).glob("*.npz"))]
        self.epochs = 0

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        self.epochs += 1
        buffer = np.empty_like(self.batches[0])
        for batch in self.batches:
            buffer[...] = batch
            yield [Tensor(buffer), Tensor(np.zeros(len(batch), np.int64))]


@pytest.fixture(scope="session")
def path() -> Path:
    return DIGITS / "model.onnx"


@pytest.fixture
def proto(path: Path) -> onnx.ModelProto:
    return onnx.load(path)


@pytest.fixture
def loader() -> Loader:
    return Loader("calibration")


@pytest.fixture
def heldout() -> Loader:
    return Loader("heldout")


@pytest.fixture(scope="session")
def labels() -> Any:
    return np.loadtxt(DIGITS / "heldout" / "labels.txt", dtype=np.int64)


@pytest.fixture(scope="session")
def profile(path: Path) -> qprof.Profile:
    return qprof.profile(path, DIGITS / "calibration")


@pytest.fixture(scope="session")
def result(path: Path, profile: qprof.Profile) -> qprof.QuantizeResult:
    return qprof.quantize(path, profile)
