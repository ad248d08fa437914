"""`qprof diff`, and the nightly job that is built on it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from qprof_onnx.profiles.records.histogram import Histogram
from qprof_onnx.profiles.records.profile import Profile, TensorProfile
from qprof_onnx.profiles.records.store import load_profile, save_profile

from ....cli.running import qprof

ROOT = Path(__file__).parents[4]
DIGITS = ROOT / "examples" / "digits"
NIGHTLY = ROOT / "examples" / "ci" / "nightly.sh"


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with profiles of three sets of images: old, same (held out) and inverted.yaml."""
    folder = tmp_path_factory.mktemp("nights")
    (folder / "inverted").mkdir()
    for path in (DIGITS / "heldout").glob("*.npz"):
        np.savez(folder / "inverted" / path.name, image=1 - np.load(path)["image"])
    data = {"old": DIGITS / "calibration", "same": DIGITS / "heldout", "inverted": folder / "inverted"}
    for name, samples in data.items():
        result = qprof(
            "dump-profile", DIGITS / "model.onnx", "--data", samples, "-o", folder / f"{name}.yaml"
        )
        assert result.exit_code == 0, result.output
    return folder


LIMITS = (
    *("--calibrator", "minmax"),
    *("--max-clipping", "0.01", "--max-range-growth", "1.2", "--max-js-distance", "0.25"),
)


def test_new_data_of_the_same_kind_passes(nights: Path) -> None:
    result = qprof("diff", nights / "old.yaml", nights / "same.yaml", *LIMITS)
    assert result.exit_code == 0
    assert "gate       passed" in result.stdout.splitlines()


def test_inverted_images_fail(nights: Path) -> None:
    result = qprof("diff", nights / "old.yaml", nights / "inverted.yaml", *LIMITS)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[-2].startswith(
        "FAILED     --max-range-growth 1.2: 4 tensors, the worst 'block.relu1.out': 1.3"
    )
    assert lines[-1].startswith(
        "FAILED     --max-js-distance 0.25: 6 tensors, the worst 'head.flatten.out': 0.68"
    )
    merging = f"qprof merge {nights}/old.yaml {nights}/inverted.yaml -o both.yaml"
    assert lines[-1].endswith(
        f"; if the new data are right, {merging}, and quantize with --profile both.yaml"
    )


def test_the_worst_are_a_table_with_those_that_fail_on_top(nights: Path) -> None:
    lines = qprof(
        "diff", nights / "old.yaml", nights / "inverted.yaml", *LIMITS, "--worst", "9"
    ).stdout.splitlines()
    verdict, pair = lines[0].split("; ")
    assert re.fullmatch(r"verdict +drift in 8 of 17 tensors, .* in '.*' \(limit .*\)", verdict)
    assert pair == f"{nights}/inverted.yaml against {nights}/old.yaml"
    at = next(place for place, line in enumerate(lines) if line.startswith("tensor"))
    header = ["tensor", "OLD", "NEW", "range growth", "clipping rate", "baseline", "JS distance", "limits"]
    assert re.split(r" {2,}", lines[at]) == header
    assert lines[at + 3].split()[:8] == ["image", "0", "..", "1", "0", "..", "1", "1"]
    assert [line.endswith("failed") for line in lines[at + 1 : at + 10]] == [True] * 8 + [False]
    assert lines[at + 10] == "... and 8 more: --verbose"


def test_the_first_line_says_whether_the_data_drifted_also_without_a_limit(nights: Path) -> None:
    old = nights / "old.yaml"
    same = qprof("diff", old, old).stdout.splitlines()[0]
    assert re.match(r"verdict +no drift, largest JS distance 0 in '.*'; ", same)
    other = qprof("diff", old, nights / "inverted.yaml").stdout.splitlines()[0]
    assert re.match(r"verdict +drift in \d+ of 17 tensors, JS distance 0.\d+ in '.*' \(limit 0.3\); ", other)


def test_with_the_model_tensors_that_no_plan_needs_are_left_out(nights: Path) -> None:
    pair = (nights / "old.yaml", nights / "inverted.yaml")
    model = ("--model", DIGITS / "model.onnx")
    text = qprof("diff", *pair, *model).stdout
    assert re.search(r"^left out +\d+ tensors that no plan of model.onnx needs$", text, re.MULTILINE)
    document = json.loads(qprof("diff", *pair, *model, "--json").stdout)
    left_out = {tensor["tensor"] for tensor in document["left_out"]}
    assert "block.add.out" in left_out  # only a Relu reads it
    assert not left_out & {tensor["tensor"] for tensor in document["tensors"]}


def test_a_tripled_column_of_a_table_fails_and_no_input_is_left_out(tmp_path: Path) -> None:
    k = 30
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    table (float[N, {k}] x) => (float[N, 2] y) {{
        centred = Sub (x, mean) scaled = Div (centred, deviation) y = MatMul (scaled, weight)
    }}"""
    model, draw = onnx.parser.parse_model(text), np.random.default_rng(0)
    deviation = np.r_[np.full(10, 1e3), np.full(k - 10, 0.1)].astype(np.float32)
    weight = draw.normal(size=(k, 2)).astype(np.float32)
    for name, value in (("mean", 4 * deviation), ("deviation", 2 * deviation), ("weight", weight)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    onnx.save(model, tmp_path / "table.onnx")
    nights = draw.gamma(4.0, 1.0, (3, 200, k)).astype(np.float32) * deviation
    nights[2, :, 13] *= 3
    for name, night in zip(("old", "same", "tripled"), nights, strict=True):
        np.savez(tmp_path / f"{name}.npz", x=night)
        made = tmp_path / f"{name}.yaml"
        qprof("dump-profile", tmp_path / "table.onnx", "--data", tmp_path / f"{name}.npz", "-o", made)
    gates = ("--max-clipping", "0.01", "--max-js-distance", "0.3", "--max-non-finite", "0")
    model_option = ("--model", tmp_path / "table.onnx")
    same = qprof("diff", tmp_path / "old.yaml", tmp_path / "same.yaml", *gates, *model_option, "--json")
    assert (same.exit_code, json.loads(same.stdout)["tensors"][0]["channel"]) == (0, None)
    assert "x" in {tensor["tensor"] for tensor in json.loads(same.stdout)["tensors"]}
    tripled = qprof("diff", tmp_path / "old.yaml", tmp_path / "tripled.yaml", *gates, *model_option)
    assert tripled.exit_code == 1
    assert re.search(r"^FAILED +--max-js-distance .* 'scaled': 0\.\d+: channel 13; ", tripled.stdout, re.M)
    assert re.search(r"^scaled .* 0\.\d+ channel 13  failed$", tripled.stdout, re.M)


def with_a_size(profile: Profile, size: float) -> Profile:
    """Return the profile with one more tensor: a height and a width, without a batch axis."""
    values = np.array([size, size])
    tensor = TensorProfile("float", (2,), size, size, 2, 0, 0, 0, Histogram.of(values))
    return replace(profile, tensors={**profile.tensors, "resize.sizes": tensor})


@pytest.fixture
def sizes(nights: Path, tmp_path: Path) -> tuple[Path, Path]:
    for name, size in (("old", 480.0), ("same", 640.0)):
        save_profile(with_a_size(load_profile(nights / f"{name}.yaml"), size), tmp_path / f"{name}.yaml")
    return tmp_path / "old.yaml", tmp_path / "same.yaml"


def test_shape_arithmetic_that_exceeds_a_limit_is_in_the_table(sizes: tuple[Path, Path]) -> None:
    result = qprof("diff", *sizes, "--max-js-distance", "0.5")
    assert result.exit_code == 1
    assert any(line.startswith("resize.sizes") for line in result.stdout.splitlines())


def test_no_limit_applies_to_tensors_that_the_model_does_not_need(sizes: tuple[Path, Path]) -> None:
    model = ("--model", DIGITS / "model.onnx")
    assert qprof("diff", *sizes, *model, "--max-js-distance", "0.5").exit_code == 0


def test_a_profile_of_another_model_than_the_one_given_is_refused(nights: Path, tmp_path: Path) -> None:
    old = load_profile(nights / "old.yaml")
    save_profile(replace(old, model=replace(old.model, structure="0" * 64)), tmp_path / "p.yaml")
    result = qprof("diff", tmp_path / "p.yaml", tmp_path / "p.yaml", "--model", DIGITS / "model.onnx")
    assert result.exit_code == 2
    assert str(tmp_path / "p.yaml") in result.stderr


def test_json_has_every_tensor_the_worst_first(nights: Path) -> None:
    result = qprof(
        "diff", nights / "old.yaml", nights / "inverted.yaml", "--json", "--max-js-distance", "0.3"
    )
    document = json.loads(result.stdout)
    assert (result.exit_code, document["passed"], document["limits"]["max_js_distance"]) == (1, False, 0.3)
    tensors = document["tensors"]
    assert (len(tensors), tensors[0]["tensor"]) == (17, "head.flatten.out")
    assert document["failures"][0]["measured"] == tensors[0]["js_distance"] > 0.3
    assert set(tensors[0]) >= {"range_growth", "clipping_rate", "js_distance", "old_maximum"}


def test_notes_name_other_weights_and_non_finite_values(nights: Path, tmp_path: Path) -> None:
    old = load_profile(nights / "old.yaml")
    tensors = {f"new/{name}" if i > 9 else name: t for i, (name, t) in enumerate(old.items())}
    tensors["image"] = replace(tensors["image"], nan=old["image"].count)
    save_profile(
        replace(old, tensors=tensors, model=replace(old.model, weights="0" * 64)), tmp_path / "new.yaml"
    )
    lines = qprof("diff", nights / "old.yaml", tmp_path / "new.yaml").stdout.splitlines()
    assert "note: the models have the same structure and different weights" in lines
    assert "warning: NaN or Inf in 1 tensors of NEW; worst 'image': 50 % of its elements" in lines


# The nightly job


@pytest.fixture
def path_with_qprof(tmp_path: Path) -> str:
    """Return a PATH on which `qprof` is the one under test."""
    folder = tmp_path / "bin"
    folder.mkdir()
    code = "from qprof_onnx.cli.main import main; main(prog_name='qprof')"
    (folder / "qprof").write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{code}" "$@"\n')
    (folder / "qprof").chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def nightly(path: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the example's script."""
    command = ["bash", str(NIGHTLY), *map(str, arguments)]
    return subprocess.run(
        command, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.slow
@pytest.mark.parametrize(("data", "code"), [(None, 0), ("inverted", 1)])
def test_the_nightly_job_tells_an_ordinary_night_from_inverted_images(
    nights: Path, tmp_path: Path, path_with_qprof: str, data: str | None, code: int
) -> None:
    samples = nights / data if data else DIGITS / "heldout"
    out = tmp_path / "out"
    result = nightly(path_with_qprof, DIGITS / "model.onnx", samples, nights / "old.yaml", out)
    assert result.returncode == code, result.stdout + result.stderr
    assert ("FAILED" in result.stdout) == bool(code)
    assert json.loads((out / "drift.json").read_text())["passed"] == (code == 0)
    assert load_profile(out / "tonight.yaml").data.samples == 400


def test_the_nightly_job_ends_with_two_when_a_file_is_missing(tmp_path: Path, path_with_qprof: str) -> None:
    result = nightly(
        path_with_qprof, DIGITS / "model.onnx", DIGITS / "heldout", tmp_path / "no.yaml", tmp_path
    )
    assert result.returncode == 2
    assert "no.yaml" in result.stderr
    assert not (tmp_path / "tonight.yaml").exists()
