"""`qprof dump-profile`."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from qprof_onnx.quantizer.plan.documents import load_profile

from .running import qprof

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL, DATA = DIGITS / "model.onnx", DIGITS / "calibration"


dump_profile = partial(qprof, "dump-profile")


def test_a_profile_is_written_and_its_size_told(tmp_path: Path) -> None:
    result = dump_profile(MODEL, "--data", DATA, "-o", tmp_path / "p.yaml")
    profile = load_profile(tmp_path / "p.yaml")
    assert (result.exit_code, profile.data.samples) == (0, 64)
    assert result.stdout == (
        f"{tmp_path / 'p.yaml'}: {len(profile)} tensors, 64 samples\n"
        "input 'image': float 8x1x8x8, range 0 to 1, mean 0.309, standard deviation 0.375\n"
        f"{tmp_path / 'p.samples.npz'}: {len(profile.check_samples)} raw samples, used to test models "
        "before they are written; do not publish the file (--keep-samples 0: none)\n"
    )
    assert {"image", "logits"} <= set(profile)


def test_without_a_name_the_profile_is_called_after_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert dump_profile(MODEL, "--data", DATA).exit_code == 0
    assert {path.name for path in (tmp_path / "model.qprof").iterdir()} == {
        "profile.yaml",
        "profile.samples.npz",
    }


def test_on_request_no_samples_are_kept(tmp_path: Path) -> None:
    dump_profile(MODEL, "--data", DATA, "-o", tmp_path / "p.yaml")
    result = dump_profile(MODEL, "--data", DATA, "-o", tmp_path / "p.yaml", "--keep-samples", "0")
    assert (
        "no samples are stored: the quality that qprof quantize prints is estimated, not run" in result.stdout
    )
    assert [path.name for path in tmp_path.iterdir()] == ["p.yaml"]


def test_glow_yaml_is_written_on_request(tmp_path: Path) -> None:
    assert dump_profile(MODEL, "--data", DATA, "-o", tmp_path / "p.yaml", "--format", "glow").exit_code == 0
    assert load_profile(tmp_path / "p.yaml").origin == "glow"


@pytest.fixture
def half_bad(tmp_path: Path) -> Path:
    """Three samples, of which two hold NaN."""
    for name, value in (("s10", np.nan), ("s2", np.nan), ("s1", 1.0)):
        np.savez(tmp_path / f"{name}.npz", image=np.full((1, 1, 8, 8), value, np.float32))
    return tmp_path


def test_not_a_number_is_left_out_and_reported_with_sample_and_node(half_bad: Path) -> None:
    result = dump_profile(MODEL, "--data", half_bad, "-o", half_bad / "p.yaml")
    assert result.exit_code == 0
    assert load_profile(half_bad / "p.yaml")["image"].nan == 128
    assert "warning: NaN or Inf in " in result.stderr
    assert (
        "first in sample s2.npz: tensor 'image' (graph input 'image') contains 64 NaN among 64"
        in result.stderr
    )


def test_more_non_finite_values_than_allowed_fail_with_the_profile_written(half_bad: Path) -> None:
    output = half_bad / "p.yaml"
    result = dump_profile(MODEL, "--data", half_bad, "-o", output, "--max-non-finite", "0.5")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith(
        "FAILED: --max-non-finite 0.5: tensor 'image': 66.7 % of its elements"
    )
    assert load_profile(output).data.samples == 3


def test_an_instrumented_model_is_refused(tmp_path: Path) -> None:
    qprof("instrument", str(MODEL), "-o", str(tmp_path / "i.onnx"))
    result = dump_profile(tmp_path / "i.onnx", "--data", DATA, "-o", tmp_path / "p.yaml")
    assert result.exit_code == 2
    assert "i.onnx: this model is instrumented already; give the original model" in result.output


def test_threads_do_not_change_a_byte(tmp_path: Path) -> None:
    for number, options in enumerate([(), ("--threads", "3")]):
        assert dump_profile(MODEL, "--data", DATA, "-o", tmp_path / f"{number}", *options).exit_code == 0
    assert len({(tmp_path / str(number)).read_bytes() for number in range(2)}) == 1


@pytest.mark.slow
def test_counting_in_numpy_is_said_and_changes_nothing(tmp_path: Path) -> None:
    dump_profile(MODEL, "--data", DATA, "-o", tmp_path / "a")
    code = (
        "import sys; sys.modules['qprof_onnx.profiles.observers._counter'] = None\n"
        "from qprof_onnx.cli.main import main; main()"
    )
    command = [sys.executable, "-c", code, "dump-profile", MODEL, "--data", DATA, "-o", tmp_path / "b"]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    assert result.stderr.startswith("note: the observers count in numpy")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_channels_can_be_left_out(tmp_path: Path) -> None:
    for choice, some in (("weighted-layers", True), ("off", False)):
        path = tmp_path / f"{choice}.yaml"
        assert dump_profile(MODEL, "--data", DATA, "-o", path, "--channels", choice).exit_code == 0
        assert any(tensor.channels is not None for tensor in load_profile(path).values()) is some


def few(folder: Path) -> Path:
    """Return a folder of three samples."""
    (folder / "few").mkdir()
    images = np.load(DATA / "00.npz")["image"]
    for number in range(3):
        np.savez(folder / "few" / f"{number}.npz", image=images[number : number + 1])
    return folder / "few"


def test_hints_are_printed_beside_the_result(tmp_path: Path) -> None:
    result = dump_profile(MODEL, "--data", few(tmp_path), "-o", tmp_path / "p.yaml")
    assert "note: 3 samples are few" in result.stderr
    assert "note:" not in result.stdout


def test_the_same_is_printed_as_json_on_request(tmp_path: Path) -> None:
    result = dump_profile(MODEL, "--data", few(tmp_path), "-o", tmp_path / "p.yaml", "--json")
    document = json.loads(result.stdout)
    assert document["format"] == "qprof-profiling/1"
    assert (document["samples"], document["runs"]) == (3, 3)
    assert [entry["name"] for entry in document["inputs"]] == ["image"]
    assert [entry["code"] for entry in document["findings"]] == ["few-samples"]
