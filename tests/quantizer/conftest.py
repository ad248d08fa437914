"""Glow's vectors as the tests here read them: every real number is a float32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from qprof_onnx.profiles.records.histogram import EqualBins, Histogram
from qprof_onnx.profiles.records.profile import TensorProfile
from qprof_onnx.quantizer.numerics.affine import TYPES, QuantParams, QuantType
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS, Schema

FOLDER = Path(__file__).parents[1] / "glow_vectors"
NAMES = {
    "asymmetric": "asymmetric",
    "symmetric": "symmetric",
    "symmetric_with_uint8": "symmetric-uint8",
    "symmetric_with_power2_scale": "symmetric-power2",
}


class Glow:
    """Reads the vectors and speaks their dialect."""

    def document(self, name: str) -> Any:
        return json.loads((FOLDER / f"{name}.json").read_text())

    def cases(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.document(name)["cases"]
        assert found
        return found

    def real(self, value: float | str) -> float:
        return float(np.float32(float(value)))

    def reals(self, values: list[float | str]) -> list[float]:
        return [self.real(v) for v in values]

    def schema(self, case: dict[str, Any]) -> Schema:
        return SCHEMAS[NAMES[case["schema"]]]

    def params(self, pair: list[float], qtype: QuantType) -> QuantParams:
        return QuantParams((self.real(pair[0]),), (int(pair[1]),), qtype)

    def qtype(self, case: dict[str, Any]) -> QuantType:
        return TYPES[case["type"]]

    def counts(self, bins: int, pairs: list[list[float]]) -> npt.NDArray[np.float32]:
        counts = np.zeros(bins, np.float32)
        for index, count in pairs:
            counts[int(index)] = count
        return counts


@pytest.fixture(scope="session")
def glow() -> Glow:
    return Glow()


@pytest.fixture(scope="session")
def profile_of() -> Any:
    """A function from an array to the profile that a run would give it."""

    def of(values: npt.ArrayLike) -> TensorProfile:
        x = np.asarray(values, np.float32)
        low, high = (float(x.min()), float(x.max())) if x.size else (0.0, 0.0)
        zeros = int(np.count_nonzero(x == 0))
        return TensorProfile("float", x.shape, low, high, x.size, zeros, 0, 0, Histogram.of(x))

    return of


@pytest.fixture(scope="session")
def equal_bins_profile() -> Any:
    """A function from equal bins to the profile of a tensor read from a Glow file."""

    def of(counts: npt.NDArray[np.float32], minimum: float, maximum: float) -> TensorProfile:
        total = int(counts.sum())
        bins = EqualBins(minimum, maximum, counts.astype(np.float64))
        return TensorProfile("float", None, minimum, maximum, total, 0, 0, 0, bins)

    return of
