"""The noise of a profile: the same figures whoever counts, measured at once or of samples that are kept.

No run fails for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper, parser, save
from qprof_onnx import quantize
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.profiles.base.findings import Code, Finding
from qprof_onnx.profiles.records.check_samples import samples_file
from qprof_onnx.profiles.records.merge import merge_profiles
from qprof_onnx.profiles.records.profile import Profile
from qprof_onnx.profiles.records.store import dumps, load_profile, loads, save_profile
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
    return profiled(batches)


def profiled(data: object, keep: int = 0, **settings: object) -> Profile:
    run = RunSettings(keep_samples=keep, **settings)  # type: ignore[arg-type]
    return profile_model(MODEL, data, None, run)  # type: ignore[arg-type]


def measured(profile: Profile, model: Path = MODEL) -> Profile:
    """Return a profile with the noise of the samples that it keeps."""
    found, _, findings = read_measured(profile, open_prepared(model))
    assert not findings
    return found


def test_the_default_measures_eight_samples_in_all_tensors(profile: Profile) -> None:
    assert (len(profile.noise), profile.noise_samples) == (8, 8)
    for sample in profile.noise:
        assert list(sample.tensors) == list(profile)
        figures = sample.tensors["logits"]
        assert figures.signal
        assert 0 < (figures.activation_noise or 0) < figures.signal / 10
        assert 0 < (figures.weight_noise or 0) < figures.signal / 10


def test_the_noise_of_kept_samples_is_that_of_a_run_that_keeps_none(
    batches: list[np.ndarray],  # type: ignore[type-arg]
    profile: Profile,
) -> None:
    kept = profiled(batches, keep=16)
    assert (kept.noise, kept.noise_samples) == ((), 8)
    assert measured(kept).noise == profile.noise


def test_of_large_samples_the_first_four_are_measured(
    batches: list[np.ndarray],  # type: ignore[type-arg]
    profile: Profile,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_samples, "ENOUGH_ELEMENTS", 1.0)
    assert measured(profiled(batches, keep=16)).noise == profile.noise[:4]


def test_nothing_is_run_that_would_take_more_memory_than_the_machine_has(
    batches: list[np.ndarray],  # type: ignore[type-arg]
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = profiled(batches, keep=16, noise_samples=5)
    monkeypatch.setattr(kept_samples, "machine_bytes", lambda: float(1 << 20))
    found, _, (finding,) = read_measured(kept, open_prepared(MODEL))
    assert found.noise == ()
    assert "more than this machine has" in finding.text


def test_a_second_plan_of_the_same_samples_measures_nothing(
    batches: list[np.ndarray],  # type: ignore[type-arg]
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = measured(profiled(batches, keep=16))
    monkeypatch.delattr(kept_samples, "measure_noise")
    assert measured(profiled(batches, keep=16)) == first


def test_the_kept_samples_of_merged_shards_have_the_noise_of_all(
    batches: list[np.ndarray],  # type: ignore[type-arg]
    profile: Profile,
) -> None:
    merged, _ = merge_profiles([("a", profiled(batches[:1], keep=16)), ("b", profiled(batches[1:], keep=16))])
    assert measured(merged).noise == profile.noise


def test_shards_of_which_one_alone_has_noise_have_none(
    batches: list[np.ndarray],  # type: ignore[type-arg]
) -> None:
    some, others = profiled(batches[:1]), profiled(batches[1:], keep=16)
    assert some.merged(others).noise == others.merged(some).noise == ()


def test_a_profile_whose_samples_are_lost_is_planned_without_noise_and_says_so(
    batches: list[np.ndarray],  # type: ignore[type-arg]
    tmp_path: Path,
) -> None:
    save_profile(profiled(batches, keep=16), tmp_path / "p.yaml")
    samples_file(tmp_path / "p.yaml").unlink()
    result = quantize(MODEL, tmp_path / "p.yaml")
    (note,) = (one.text for one in result.findings if one.code is Code.NOISE_UNMEASURED)
    assert "p.samples.npz" in note


def test_a_profile_that_goes_to_a_stream_has_its_noise(
    batches: list[np.ndarray],  # type: ignore[type-arg]
    profile: Profile,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    profile_model(MODEL, batches, "/dev/stdout", RunSettings())
    assert loads(capfdbinary.readouterr().out.decode()).noise == profile.noise


@pytest.mark.parametrize("keep", [0, 16])
def test_rows_of_a_batch_that_depend_on_each_other_have_no_noise(tmp_path: Path, keep: int) -> None:
    net = "n (float[k, 2] x) => (float[k, 2] y) { y = CumSum(x, axis) }"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {net}')
    model.graph.initializer.append(numpy_helper.from_array(np.array(0), "axis"))
    save(model, tmp_path / "m.onnx")
    data = [np.random.default_rng(seed).normal(size=(4, 2)).astype(np.float32) for seed in range(3)]
    notes: list[Finding] = []
    run = RunSettings(keep_samples=keep)
    found = profile_model(tmp_path / "m.onnx", data, None, run, note=notes.append)
    found, _, findings = read_measured(found, open_prepared(tmp_path / "m.onnx"))
    assert found.noise == ()
    assert [note.text for note in (*notes, *findings)] == [
        "how noise travels is not measured: rows of a batch depend on each other"
    ]


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


def test_what_goes_wrong_is_noted_and_the_profile_is_written(
    batches: list[np.ndarray],  # type: ignore[type-arg]
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ModelError("onnxruntime refuses; go on")

    monkeypatch.setattr(kept_samples, "measure_noise", refuse)
    notes: list[Finding] = []
    run = RunSettings(keep_samples=0)
    profile = profile_model(MODEL, batches, tmp_path / "p.yaml", run, note=notes.append)
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


def test_the_samples_that_are_measured_are_a_stage_of_their_own(
    batches: list[np.ndarray],  # type: ignore[type-arg]
) -> None:
    calls: list[tuple[int, int | None]] = []
    run = RunSettings(noise_samples=2, keep_samples=0)
    profile_model(MODEL, batches, None, run, stage=lambda name: lambda *call: calls.append(call))
    assert calls == [(1, 3), (2, 3), (3, 3), (1, 2), (2, 2)]
