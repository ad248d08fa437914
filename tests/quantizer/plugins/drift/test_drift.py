"""Drift against the parameters that OLD led to, limits, and the order of the worst."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.profiles.observers.tensor_observer import TensorObserver
from qprof_onnx.profiles.records.profile import DataId, ModelId, Profile, TensorProfile
from qprof_onnx.profiles.records.store import save_profile
from qprof_onnx.quantizer.numerics.affine import INT8, UINT8, QuantParams
from qprof_onnx.quantizer.numerics.clipping import covered
from qprof_onnx.quantizer.plugins.drift.drift import (
    MEASURES,
    DriftReport,
    diff,
    old_params,
)
from qprof_onnx.quantizer.plugins.drift.limits import DriftLimits
from qprof_onnx.quantizer.targets.config import QuantConfig

MODEL = ModelId("a" * 64, "b" * 64, 17, "m.onnx")


def tensor(values: npt.ArrayLike) -> TensorProfile:
    array = np.asarray(values, np.float32)[None]
    observer = TensorObserver("float")
    observer.add(array, array.shape)
    return observer.profile()


def profile(digest: int, **tensors: npt.ArrayLike) -> Profile:
    data = DataId(digest, f"{digest:032x}")
    return Profile(MODEL, data, {name: tensor(values) for name, values in tensors.items()})


def differing(
    folder: Path,
    old: Profile,
    new: Profile,
    limits: DriftLimits | None = None,
    *,
    calibrator: str = "minmax",
) -> DriftReport:
    save_profile(old, folder / "old.yaml")
    save_profile(new, folder / "new.yaml")
    return diff(folder / "old.yaml", folder / "new.yaml", limits=limits, calibrator=calibrator)


@pytest.mark.parametrize(
    ("params", "cover"),
    [
        (QuantParams((0.5,), (0,), UINT8), (-0.5, 128.0)),
        (QuantParams((0.5,), (128,), UINT8), (-64.5, 64.0)),
        (QuantParams((0.25,), (0,), INT8), (-32.25, 32.0)),
    ],
)
def test_covered_is_a_step_more_than_the_integers_on_either_side(
    params: QuantParams, cover: tuple[float, float]
) -> None:
    assert covered(params) == cover


@pytest.mark.parametrize("schema", ["asymmetric", "symmetric-uint8"])
@pytest.mark.parametrize("values", [[-1.0, 2.0], [0.0, 0.3], [-7e-8, 1e-9], [3.0], [0.0], [-1e30, 1.0]])
def test_the_data_that_minmax_saw_is_covered(schema: str, values: list[float]) -> None:
    config = QuantConfig(schema=schema, calibrator="minmax")
    low, high = covered(old_params(tensor(values), config))
    assert low <= min(np.float32(values))
    assert high >= max(np.float32(values))


def test_the_calibrator_decides_what_is_clipped(tmp_path: Path) -> None:
    # A percentile of 99 of 0 .. 999 cuts 1 % from the upper tail: at 990. Steps are of 990 / 255 = 3.9.
    old, new = profile(1, x=np.arange(1000.0)), profile(2, x=np.arange(1000.0) + 100)
    by_range = differing(tmp_path, old, new).tensors[0]
    by_percentile = differing(tmp_path, old, new, calibrator="percentile:99").tensors[0]
    # Of 1000 elements those from 1003 to 1099, and from 994 to 1099; of OLD's own those from 994 to 999.
    # Tolerance: the one element of the bin that the cover ends in.
    assert by_range.clipping_rate == pytest.approx(0.097, abs=0.001)
    assert by_percentile.clipping_rate == pytest.approx(0.106, abs=0.001)
    assert (by_range.baseline_clipping, by_percentile.baseline_clipping) == (
        0.0,
        pytest.approx(0.006, abs=0.001),
    )


def test_a_gate_on_clipping_is_about_the_rate_above_the_baseline(tmp_path: Path) -> None:
    old, new = profile(1, x=np.arange(1000.0)), profile(2, x=np.arange(1000.0))
    report = differing(tmp_path, old, new, DriftLimits(max_clipping=0.0), calibrator="percentile:95")
    assert report.tensors[0].baseline_clipping > 0.03
    assert report.passed


@pytest.mark.parametrize(
    ("limits", "measured"),
    [
        (DriftLimits(max_range_growth=1.5), 2.0),
        (DriftLimits(max_js_distance=0.5), 1.0),
        (DriftLimits(max_clipping=0.5), 1.0),
        (DriftLimits(max_non_finite=0.0), 0.5),
    ],
)
def test_each_limit_is_held(tmp_path: Path, limits: DriftLimits, measured: float) -> None:
    old = profile(1, still=[1.0], x=[1.0, 1.0])
    report = differing(tmp_path, old, profile(2, still=[1.0], x=[2.0, np.nan]), limits)
    (failure,) = report.failures
    assert (failure.where, failure.measured) == ("x", measured)
    assert getattr(limits, failure.demand) == failure.limit
    assert failure.missing == pytest.approx(failure.measured - failure.limit)
    assert not report.passed


def test_a_limit_that_is_met_exactly_passes(tmp_path: Path) -> None:
    report = differing(
        tmp_path,
        profile(1, x=[1.0]),
        profile(2, x=[2.0]),
        DriftLimits(max_range_growth=2.0, max_js_distance=1.0),
    )
    assert report.passed
    assert report.gated


EMPTY = "NEW has no finite elements of it"


@pytest.mark.parametrize("demand", MEASURES)
def test_a_tensor_without_elements_in_new_proves_no_limit(tmp_path: Path, demand: str) -> None:
    limits = DriftLimits(**{demand: 1e9})
    (failure,) = differing(tmp_path, profile(1, x=[1.0]), profile(2, x=[]), limits).failures
    assert (failure.result, failure.reason) == ("not proven", EMPTY)


def test_a_tensor_that_vanished_breaks_the_limits(tmp_path: Path) -> None:
    old, new = profile(1, x=[1.0], y=[1.0]), profile(2, x=[1.0])
    limits = DriftLimits(max_js_distance=0.5)
    assert [f.where for f in differing(tmp_path, old, new, limits).failures] == ["y"]
    assert differing(tmp_path, new, old, limits).passed  # one more is no drift


def test_the_worst_come_first_those_that_fail_before_all(tmp_path: Path) -> None:
    steady = np.linspace(0.0, 1.0, 1000)
    old = profile(1, same=steady, bent=steady, wide=steady, gone=steady)
    new = profile(2, same=steady, bent=steady**2, wide=np.append(steady, 3.0), gone=[])
    report = differing(tmp_path, old, new)
    assert [t.tensor for t in report.worst()] == ["gone", "bent", "wide", "same"]
    assert [t.tensor for t in report.worst(2)] == ["gone", "bent"]
    gated = differing(tmp_path, old, new, DriftLimits(max_range_growth=2.0))
    assert [t.tensor for t in gated.worst()] == ["gone", "wide", "bent", "same"]
    assert [t.tensor for t in gated.tensors] == ["same", "bent", "wide", "gone"]


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"max_clipping": -0.1}, r"max_clipping: -0\.1 is below 0"),
        ({"max_range_growth": 0.5}, r"max_range_growth: 0\.5 is below 1"),
        ({"max_js_distance": math.nan}, r"max_js_distance: nan is not finite"),
    ],
)
def test_a_limit_that_nothing_can_keep_is_refused(limits: dict[str, float], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        DriftLimits(**limits)
