"""The noise of a profile, measured on the samples that it keeps: the same figures whoever counts them.

No plan fails for it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper, parser, save
from qprof_onnx import quantize
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.profiles.base.findings import Code
from qprof_onnx.profiles.records.check_samples import samples_file
from qprof_onnx.profiles.records.merge import merge_profiles
from qprof_onnx.profiles.records.profile import Profile
from qprof_onnx.profiles.records.store import save_profile
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.noise import kept_samples
from qprof_onnx.quantizer.noise.kept_samples import read_measured
from qprof_onnx.quantizer.prepare.prepare import open_prepared

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
MODEL, DATA = DIGITS / "model.onnx", DIGITS / "calibration"


@pytest.fixture(scope="module")
def batches() -> list[np.ndarray]:  # type: ignore[type-arg]
    files = sorted(DATA.glob("*.npz"))[:3]
    return [np.load(file)["image"] for file in files]


@pytest.fixture(scope="module")
def profile(batches: list[np.ndarray]) -> Profile:  # type: ignore[type-arg]
    return measured(profiled(batches))


def profiled(data: object, **settings: object) -> Profile:
    run = RunSettings(keep_samples=16, **settings)  # type: ignore[arg-type]
    return profile_model(MODEL, data, None, run)  # type: ignore[arg-type]


def measured(profile: Profile, model: Path = MODEL) -> Profile:
    """Return a profile with the noise of the samples that it keeps."""
    found, _, findings = read_measured(profile, open_prepared(model))
    assert not findings
    return found


def test_eight_samples_are_measured_in_all_tensors(profile: Profile) -> None:
    assert len(profile.noise) == 8
    for sample in profile.noise:
        assert list(sample.tensors) == list(profile)
        figures = sample.tensors["logits"]
        assert figures.signal
        assert 0 < (figures.activation_noise or 0) < figures.signal / 10
        assert 0 < (figures.weight_noise or 0) < figures.signal / 10


def test_of_large_samples_the_first_four_are_measured(
    batches: list[np.ndarray],  # type: ignore[type-arg]
    profile: Profile,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_samples, "ENOUGH_ELEMENTS", 1.0)
    assert measured(profiled(batches)).noise == profile.noise[:4]


def test_nothing_is_run_that_would_take_more_memory_than_the_machine_has(
    batches: list[np.ndarray],  # type: ignore[type-arg]
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = profiled(batches)
    monkeypatch.setattr(kept_samples, "_measured", {})
    monkeypatch.setattr(kept_samples, "machine_bytes", lambda: float(1 << 20))
    found, _, (finding,) = read_measured(kept, open_prepared(MODEL))
    assert found.noise == ()
    assert "more than this machine has" in finding.text


def test_a_second_plan_of_the_same_samples_measures_nothing(
    batches: list[np.ndarray],  # type: ignore[type-arg]
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = measured(profiled(batches))
    monkeypatch.delattr(kept_samples, "measure_noise")
    assert measured(profiled(batches)) == first


def test_the_kept_samples_of_merged_shards_have_the_noise_of_all(
    batches: list[np.ndarray],  # type: ignore[type-arg]
    profile: Profile,
) -> None:
    merged, _ = merge_profiles([("a", profiled(batches[:1])), ("b", profiled(batches[1:]))])
    assert measured(merged).noise == profile.noise


def test_a_profile_whose_samples_are_lost_is_planned_without_noise_and_says_so(
    batches: list[np.ndarray],  # type: ignore[type-arg]
    tmp_path: Path,
) -> None:
    save_profile(profiled(batches), tmp_path / "p.yaml")
    samples_file(tmp_path / "p.yaml").unlink()
    result = quantize(MODEL, tmp_path / "p.yaml")
    (note,) = (one.text for one in result.findings if one.code is Code.NOISE_UNMEASURED)
    assert "p.samples.npz" in note


def test_samples_whose_first_axis_is_time_are_kept_and_measured_whole(tmp_path: Path) -> None:
    net = "n (float[k, 2] x) => (float[k, 2] y) { y = CumSum(x, axis) }"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {net}')
    model.graph.initializer.append(numpy_helper.from_array(np.array(0), "axis"))
    save(model, tmp_path / "m.onnx")
    data = [np.random.default_rng(seed).normal(size=(4, 2)).astype(np.float32) for seed in range(3)]
    found, _, findings = read_measured(
        profile_model(tmp_path / "m.onnx", data, None), open_prepared(tmp_path / "m.onnx")
    )
    assert [one.arrays["x"].shape for one in found.held_samples] == [(4, 2)] * 3
    assert len(found.noise) == 3
    assert not findings


def said_of(model: Path, data: object) -> str:
    """Return the reason why the noise of a model is not measured."""
    found, _, (finding,) = read_measured(profile_model(model, data, None), open_prepared(model))  # type: ignore[arg-type]
    assert found.noise == ()
    return finding.text.removeprefix("how noise travels is not measured: ")


def test_batches_and_threads_do_not_change_a_figure(
    batches: list[np.ndarray],  # type: ignore[type-arg]
    profile: Profile,
) -> None:
    rows = [array[i : i + 1] for array in batches[::-1] for i in range(len(array))]
    for data, threads in ((batches[::-1], 1), (rows, 3)):
        assert measured(profiled(data, threads=threads)).noise == profile.noise


def test_without_samples_beside_it_a_profile_is_planned_by_the_forecast(
    batches: list[np.ndarray],  # type: ignore[type-arg]
) -> None:
    without = profile_model(MODEL, batches, None, RunSettings(keep_samples=0))
    assert measured(without) == without
    assert quantize(MODEL, without).composition.uses_integers


def test_a_model_that_onnxruntime_refuses_is_planned_without_noise(
    batches: list[np.ndarray],  # type: ignore[type-arg]
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ModelError("onnxruntime refuses; go on")

    monkeypatch.setattr(kept_samples, "measure_noise", refuse)
    monkeypatch.setattr(kept_samples, "_measured", {})
    assert said_of(MODEL, batches) == "onnxruntime refuses; go on"


def test_a_model_with_random_numbers_has_no_noise(tmp_path: Path) -> None:
    net = "n (float[k, 2] x) => (float[k, 2] y) { r = RandomNormalLike(x) y = Add(x, r) }"
    save(parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {net}'), tmp_path / "m.onnx")
    assert "RandomNormalLike" in said_of(tmp_path / "m.onnx", [np.ones((1, 2), np.float32)])
