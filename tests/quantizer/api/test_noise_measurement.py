"""The noise in a profile: the same bytes whoever counts, and a run that never fails for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import parser, save
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.profiles.base.findings import Finding
from qprof_onnx.profiles.records.merge import merge_profiles
from qprof_onnx.profiles.records.profile import Profile
from qprof_onnx.profiles.records.store import dumps, load_profile, save_profile
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.quantizer.api import profiling as noise_measurement
from qprof_onnx.quantizer.api.profiling import profile_model

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
MODEL, DATA = DIGITS / "model.onnx", DIGITS / "calibration"


@pytest.fixture(scope="module")
def batches() -> list[np.ndarray]:  # type: ignore[type-arg]
    files = sorted(DATA.glob("*.npz"))[:3]
    return [np.load(file)["image"] for file in files]


@pytest.fixture(scope="module")
def profile(batches: list[np.ndarray]) -> Profile:  # type: ignore[type-arg]
    return profiled(batches)


def profiled(data: object, **settings: object) -> Profile:
    return profile_model(MODEL, data, None, RunSettings(**settings))  # type: ignore[arg-type]


def test_the_default_measures_eight_samples_in_all_tensors(profile: Profile) -> None:
    assert (len(profile.noise), profile.noise_samples) == (8, 8)
    for sample in profile.noise:
        assert list(sample.tensors) == list(profile)
        figures = sample.tensors["logits"]
        assert figures.signal
        assert 0 < (figures.activation_noise or 0) < figures.signal / 10
        assert 0 < (figures.weight_noise or 0) < figures.signal / 10


def test_none_is_measured_on_request_and_the_file_is_of_the_older_format(
    batches: list[np.ndarray],  # type: ignore[type-arg]
    profile: Profile,
    tmp_path: Path,
) -> None:
    without = profiled(batches, noise_samples=0)
    assert without == replace(profile, noise=(), noise_samples=0)
    save_profile(without, tmp_path / "p.yaml")
    assert load_profile(tmp_path / "p.yaml") == without


def test_order_batches_threads_and_iterators_do_not_change_a_figure(
    batches: list[np.ndarray],  # type: ignore[type-arg]
    profile: Profile,
) -> None:
    rows = [array[i : i + 1] for array in batches[::-1] for i in range(len(array))]

    def once() -> Iterator[np.ndarray]:  # type: ignore[type-arg]
        yield from rows

    for data, threads in ((batches[::-1], 1), (rows, 3), (once(), 2)):
        assert profiled(data, threads=threads).noise == profile.noise


def test_shards_that_are_merged_have_the_noise_of_all(
    batches: list[np.ndarray],  # type: ignore[type-arg]
    profile: Profile,
) -> None:
    shards = [("a", profiled(batches[:1])), ("b", profiled(batches[1:]))]
    merged, _ = merge_profiles(shards)
    assert merged == profile
    assert dumps(without_names(merged)) == dumps(without_names(profile))


def without_names(profile: Profile) -> Profile:
    """Return a profile without what names its samples: in a shard they have other numbers."""
    tensors = {name: replace(tensor, extremes=None) for name, tensor in profile.items()}
    inputs = {
        name: replace(given, tensor=replace(given.tensor, extremes=None))
        for name, given in profile.inputs.items()
    }
    return replace(profile, noise=(), runs=0, tensors=tensors, inputs=inputs)


def test_a_memory_limit_gives_the_same_bytes() -> None:
    one = profiled(str(DATA), limit=6, threads=1)
    assert one.noise
    assert dumps(profiled(str(DATA), limit=6, memory_limit=4 << 30)) == dumps(one)


def test_what_goes_wrong_is_noted_and_the_profile_is_written(
    batches: list[np.ndarray],  # type: ignore[type-arg]
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ModelError("onnxruntime refuses; go on")

    monkeypatch.setattr(noise_measurement, "measure_noise", refuse)
    notes: list[Finding] = []
    profile = profile_model(MODEL, batches, tmp_path / "p.yaml", note=notes.append)
    assert [note.text for note in notes] == ["how noise travels is not measured: onnxruntime refuses; go on"]
    assert (profile.noise, profile.noise_samples) == ((), 0)
    assert load_profile(tmp_path / "p.yaml") == profile


def test_a_model_with_random_numbers_has_a_profile_without_noise(tmp_path: Path) -> None:
    net = "n (float[k, 2] x) => (float[k, 2] y) { r = RandomNormalLike(x) y = Add(x, r) }"
    save(parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {net}'), tmp_path / "m.onnx")
    notes: list[Finding] = []
    data = [np.ones((1, 2), np.float32)]
    profile = profile_model(tmp_path / "m.onnx", data, note=notes.append)
    assert profile.noise == ()
    assert "RandomNormalLike" in notes[0].text


def test_progress_goes_on_to_the_samples_that_are_measured(
    batches: list[np.ndarray],  # type: ignore[type-arg]
) -> None:
    calls: list[tuple[int, int | None]] = []
    run = RunSettings(noise_samples=2)
    profile_model(MODEL, batches, None, run, progress=lambda *call: calls.append(call))
    assert calls == [(1, 3), (2, 3), (3, 3), (4, 5), (5, 5)]


def test_nothing_is_measured_where_a_memory_limit_would_be_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_measurement, "expected_bytes", lambda *_: 5 << 30)
    notes: list[Finding] = []
    run = RunSettings(limit=6, memory_limit=4 << 30)
    assert profile_model(MODEL, str(DATA), None, run, note=notes.append).noise == ()
    assert "more than the memory limit" in notes[0].text
