"""`qprof quantize --data`: everything in one command, and a verdict."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

import click
import numpy as np
import onnx
import pytest
import qprof_onnx as api
from click.testing import Result
from jsonschema import Draft202012Validator
from onnx import numpy_helper, parser
from qprof_onnx.cli.commands.quantize import command, command_with, summary_text
from qprof_onnx.cli.console import current_run
from qprof_onnx.profiles.base.findings import Code, Finding
from qprof_onnx.quantizer.api import from_samples
from qprof_onnx.quantizer.evaluation.cost import Cost
from qprof_onnx.quantizer.search.verdict import Fix, Verdict

from .running import qprof

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL, DATA, LABELS = DIGITS / "model.onnx", DIGITS / "heldout", DIGITS / "heldout" / "labels.txt"
FEW = DIGITS / "calibration"
BROKEN = ("--calibrator", "percentile:90", "--set", "min_output_sqnr=0", "--set", "equalization=off")
"""Settings with which the model loses 15 dB."""


def quantize(*arguments: str | Path, data: Path = DATA) -> Result:
    return qprof("quantize", MODEL, "--data", data, "--no-latency", *arguments)


def lines(result: Result, name: str) -> list[str]:
    return [line.removeprefix(name).strip() for line in result.stdout.splitlines() if line.startswith(name)]


def test_samples_are_enough_for_a_model_a_profile_and_a_verdict(tmp_path: Path) -> None:
    out = tmp_path / "q.onnx"
    result = quantize("--labels", LABELS, "-o", out)
    assert result.exit_code == 0, result.stderr
    (verdict,) = lines(result, "verdict")
    assert verdict.startswith("good: accuracy 100.00 -> 100.00 % of 200 held-out rows (+0.00 points")
    assert "probability error 0." in verdict
    assert "(limit 4.7 %), " in verdict
    assert out.exists()
    assert (tmp_path / "q.qprof" / "profile.yaml").exists()
    assert lines(result, "size") == ["237.7 kB -> 75.6 kB, 3.14 times smaller"]
    # Five facts, the next step, and what must not be published.
    assert [line.split()[0] for line in result.stdout.splitlines()] == [
        *("verdict", "size", "speed", "int8", "written", "deploy")
    ]
    assert re.findall(r"^(?:note|warning): .*", result.stderr, re.MULTILINE) == [
        f"note: {tmp_path / 'q.qprof' / 'profile.samples.npz'}: 125 raw samples, used to test models "
        "before they are written; do not publish the file (--set keep_samples=0: none)"
    ]
    assert "% of the arithmetic" in lines(result, "int8")[0]
    assert not lines(result, "try")


@pytest.mark.slow
def test_the_profile_is_used_again_and_gives_the_same_bytes(tmp_path: Path) -> None:
    out, kept = tmp_path / "q.onnx", tmp_path / "q.qprof" / "profile.yaml"
    first = quantize("-o", out, "--verbose", data=FEW)
    before, profile, time = out.read_bytes(), kept.read_bytes(), kept.stat().st_mtime_ns
    again = quantize("-o", out, "--verbose", data=FEW)
    assert "q.qprof/profile.yaml: 17 tensors, 32 samples" in first.stderr
    assert "q.qprof/profile.yaml: used again, model and data are the same" in again.stderr
    assert (out.read_bytes(), kept.stat().st_mtime_ns) == (before, time)
    kept.unlink()
    quantize("-o", out, data=FEW)
    assert (out.read_bytes(), kept.read_bytes()) == (before, profile)


@pytest.mark.slow
def test_beside_a_model_is_one_folder_with_everything_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = Path("q.qprof")
    for words in (["--data", FEW], ["--profile", own / "profile.yaml"], ["--plan", own / "plan.yaml"]):
        result = qprof("quantize", MODEL, *words, "-o", "q.onnx", "--report", own)
        assert result.exit_code == 0, result.stderr
        assert qprof("report", MODEL, "q.onnx").stderr.startswith("report    q.qprof/report.html")
        assert sorted(os.listdir()) == ["q.onnx", "q.qprof"]
        assert sorted(os.listdir(own)) == [
            *("junit.xml", "plan.yaml", "profile.samples.npz", "profile.yaml"),
            *("report.html", "report.json", "report.md"),
        ]


def test_a_profile_that_other_settings_left_without_channels_is_made_anew(tmp_path: Path) -> None:
    bare = ("--data", FEW, "--channels", "off", "-o", tmp_path / "q.qprof" / "profile.yaml")
    assert qprof("dump-profile", MODEL, *bare).exit_code == 0
    words = ("-o", tmp_path / "q.onnx", "--holdout-data", DATA, "--verbose")
    first, again = (quantize(*words, data=FEW) for _ in "12")
    assert "used again" not in first.stderr
    assert "used again" in again.stderr


def test_a_damaged_profile_is_made_anew_and_another_file_is_left_alone(tmp_path: Path) -> None:
    kept = tmp_path / "q.qprof" / "profile.yaml"
    quantize("-o", tmp_path / "q.onnx", data=FEW)
    whole = kept.read_bytes()
    kept.write_bytes(whole[:2000])
    assert quantize("-o", tmp_path / "q.onnx", data=FEW).exit_code == 0
    assert kept.read_bytes() == whole
    kept.write_text("my notes")
    result = quantize("-o", tmp_path / "q.onnx", data=FEW)
    assert result.exit_code == 2
    assert "is not a profile, but the profile is stored there; move it" in result.stderr
    assert kept.read_text() == "my notes"


def test_what_to_try_brings_what_it_says(tmp_path: Path) -> None:
    result = quantize("-o", tmp_path / "q.onnx", *BROKEN, data=FEW)
    assert lines(result, "verdict")[0].startswith("poor: ")
    (told,) = lines(result, "try")
    options, _, brings = told.removesuffix(" (measured)").rpartition(": ")
    grade, *figures, size = brings.split(", ")
    applied = quantize("-o", tmp_path / "q.onnx", *BROKEN, *shlex.split(options), data=FEW)
    (verdict,) = lines(applied, "verdict")
    assert verdict.startswith(f"{grade}: ")
    assert grade == "good"
    assert figures
    assert all(figure in verdict for figure in figures)
    assert f" -> {size}, " in lines(applied, "size")[0]


def test_the_best_fix_is_applied_where_that_is_asked_for(tmp_path: Path) -> None:
    result = quantize(
        "-o", tmp_path / "q.onnx", *BROKEN, "--fix", "auto", "--target", "onnxruntime-x86", data=FEW
    )
    assert lines(result, "verdict")[0].startswith("good: ")
    (fixed,) = lines(result, "fixed")
    assert fixed.startswith("by --")
    assert "(measured)" in fixed
    assert "note: the fix was chosen on the held-out samples" in result.stdout


def test_without_a_budget_nothing_is_tried(tmp_path: Path) -> None:
    result = quantize("-o", tmp_path / "q.onnx", *BROKEN, "--set", "budget=0", "--fix", "auto", data=FEW)
    assert lines(result, "verdict")[0].startswith("poor: ")
    assert not lines(result, "try")
    assert "no other settings were tried: there was no time for one (--set budget=0)" in result.stdout


def test_a_gate_that_is_not_met_ends_with_1_and_the_model_written(tmp_path: Path) -> None:
    result = quantize("-o", tmp_path / "q.onnx", "--set", "min_sqnr=90", data=FEW)
    assert result.exit_code == 1
    assert lines(result, "FAILED")[0].startswith("--min-sqnr 90: output 'logits': ")
    assert not lines(result, "deploy")
    assert (tmp_path / "q.onnx").exists()
    assert lines(quantize("-o", tmp_path / "q.onnx", "--set", "min_sqnr=20", data=FEW), "gate") == ["passed"]


def test_the_verdict_as_json_keeps_to_its_schema(tmp_path: Path) -> None:
    result = quantize("-o", tmp_path / "q.onnx", "--labels", LABELS, *BROKEN, "--set", "budget=1", "--json")
    found = json.loads(result.stdout)
    schema = json.loads(qprof("schema", "quantization").stdout)
    Draft202012Validator(schema).validate(found)
    verdict = found["judged"]["verdict"]
    assert verdict["grade"] in ("good", "fair", "poor")
    assert verdict["held_out"]["rows"] == 200
    assert found["judged"]["profile"] == str(tmp_path / "q.qprof" / "profile.yaml")


def test_samples_to_judge_on_may_be_others(tmp_path: Path) -> None:
    found = quantize(
        *("-o", tmp_path / "q.onnx", "--holdout-data", DATA, "--labels", LABELS, "--verbose"),
        data=DIGITS / "calibration",
    )
    assert "of 400 held-out rows" in lines(found, "verdict")[0]
    assert "17 tensors, 64 samples" in found.stderr


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["--max-drop", "1"], "max_drop: nothing is scored; give labels"),
        (["--set", "budget=-1"], "'--set budget': -1.0 is not in the range x>=0"),
        (["--fix", "on"], "fix: is 'on'; give 'off' or 'auto'"),
        (["--set", "min_speedup=1"], "min_speedup: latency is not measured"),
    ],
)
def test_what_cannot_be_judged_is_refused_before_any_work(
    tmp_path: Path, asked: list[str], message: str
) -> None:
    result = quantize("-o", tmp_path / "q.onnx", *asked)
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr
    assert not (tmp_path / "q.onnx").exists()


def test_a_metric_whose_library_is_missing_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pycocotools.cocoeval", None)
    result = quantize("-o", tmp_path / "q.onnx", "--metric", "map50", data=FEW)
    assert result.exit_code == 2
    assert "metric 'map50': needs the Python package 'pycocotools'" in result.stderr
    assert "profiling" not in result.stderr


def test_what_judges_is_for_samples(profile: Path, tmp_path: Path) -> None:
    asked = ["quantize", MODEL, "--profile", profile, "-o", tmp_path / "q.onnx"]
    for options in (
        ["--labels", LABELS],
        ["--set", "min_sqnr=20"],
        ["--fix", "auto"],
        ["--set", "runtime=openvino"],
    ):
        result = qprof(*asked, *options)
        assert result.exit_code == 2
        named = " ".join(options).partition("=")[0] if "--set" in options else options[0]
        assert f"{named} is for --data, which judges the result" in result.stderr


def test_a_mode_without_a_profile_is_judged_too(tmp_path: Path) -> None:
    result = quantize("-o", tmp_path / "q.onnx", "--as", "weight-only-8", data=FEW)
    assert lines(result, "verdict")[0].startswith("good (weights only")
    assert not (tmp_path / "q.qprof" / "profile.yaml").exists()


def test_a_model_that_something_speaks_against_is_not_said_to_replace_the_float_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Verdict, "against", property(lambda _: ("slower than float",)))
    result = quantize("-o", tmp_path / "q.onnx", "--set", "budget=0", data=FEW)
    assert lines(result, "verdict")[0].startswith("good")
    assert not lines(result, "deploy")


def test_a_good_model_with_floats_speed_is_to_be_deployed_for_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Verdict, "has_floats_speed", True)
    result = quantize("-o", tmp_path / "q.onnx", "--set", "budget=0", data=FEW)
    assert lines(result, "deploy") == [
        "in place of the float model, if its size matters: docs/how-to/deploy.md"
    ]


@pytest.mark.parametrize("kind", ["float", "weights only"])
def test_the_file_is_the_model_that_the_verdict_is_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Literal["float", "weights only"]
) -> None:
    monkeypatch.setattr(from_samples, "is_in_vain", lambda _: True)
    monkeypatch.setattr(from_samples, "takes_its_place", lambda *_: kind == "weights only")
    monkeypatch.setattr(from_samples, "why_in_vain", lambda _: "so it is")
    out = tmp_path / "q.onnx"
    result = quantize("-o", out, data=FEW)
    said = {"float": "none: nothing is quantized: so it is", "weights only": "good (weights only"}
    assert lines(result, "verdict")[0].startswith(said[kind])
    operators = {node.op_type for node in onnx.load(out).graph.node}
    assert ("MatMulNBits" in operators) is (kind == "weights only")
    assert not lines(result, "cause")  # it is that of the model in whose place it is
    assert "QuantizeLinear" not in operators


def test_on_random_data_there_is_no_verdict_and_no_gate(tmp_path: Path) -> None:
    result = qprof("quantize", MODEL, "--data", "random:8", "--no-latency", "-o", tmp_path / "q.onnx")
    assert lines(result, "verdict")[0].startswith("none: random data: no verdict (random:8)")
    said = [line.split()[0] for line in result.stderr.splitlines() if "random values" in line]
    assert said == ["warning:"]
    assert not lines(result, "try")
    gated = qprof("quantize", MODEL, "--data", "random:8", "--set", "min_sqnr=1", "-o", tmp_path / "g.onnx")
    assert gated.exit_code == 2
    assert "random:8: random values meet no limit" in gated.stderr


def test_a_model_for_another_runtime_is_not_timed_and_to_be_tested_there(tmp_path: Path) -> None:
    words = ["quantize", MODEL, "--data", DATA, "--target", "tensorrt", "-o", tmp_path / "q.onnx"]
    result = qprof(*words)
    assert lines(result, "speed") == ["not measured"]
    assert lines(result, "verdict")[0].endswith("; computed in float arithmetic, not by kernels of tensorrt")
    assert lines(result, "deploy") == ["after a test on tensorrt: docs/how-to/deploy.md"]


def test_samples_with_nan_are_told_once_and_nothing_is_to_be_deployed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(DATA, data)
    with np.load(DATA / "00.npz") as found:
        images = found["image"].copy()
    images[0, 0, 0, 0] = np.nan
    np.savez(data / "00.npz", image=images)
    result = quantize("-o", tmp_path / "q.onnx", data=data)
    assert (result.stdout + result.stderr).count("left out of ranges and histograms") == 1
    assert not lines(result, "deploy")


def test_a_label_that_is_no_class_is_refused_before_anything_runs(tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text(LABELS.read_text().replace("9", "10"))
    line = labels.read_text().split("\n").index("10") + 1
    result = quantize("--labels", labels, "-o", tmp_path / "q.onnx")
    assert f"labels.txt, line {line}: label 10 is not one of the output's 10 classes, 0 to 9" in result.stderr
    assert "choose another output, or the axis (--class-axis)" in result.stderr
    assert "reading" not in result.stderr
    assert list(tmp_path.iterdir()) == [labels]


def test_inputs_that_look_like_pixels_are_the_cause_where_labels_are_met_by_chance(tmp_path: Path) -> None:
    data, rng = tmp_path / "data", np.random.default_rng(1)
    data.mkdir()
    with np.load(DATA / "00.npz") as found:
        images = np.rint(found["image"] * np.float32(24.0))  # dark ones
    for number in range(20):
        np.savez(data / f"{number:02}.npz", image=images[number : number + 1])
    labels = tmp_path / "labels.txt"
    labels.write_text("".join(f"{label}\n" for label in rng.integers(0, 10, 20)))
    result = quantize("-o", tmp_path / "q.onnx", "--labels", labels, "--set", "budget=0", data=data)
    assert result.exit_code == 0, result.stderr
    assert not lines(result, "verdict")[0].startswith("good")
    assert "looks like pixels 0..255" in lines(result, "cause")[0]


def test_weights_that_have_eight_bits_though_four_were_asked_for_are_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(256, 64)).astype(np.float32)
    weight[::32] = 40.0  # one in each block; what it is multiplied by is 0
    model = parser.parse_model(
        '<ir_version: 9, opset_import: ["": 17]> '
        "g (float[n, 256] x) => (float[n, 64] y) { y = MatMul (x, w) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    for number in range(32):
        x = rng.normal(size=(1, 256)).astype(np.float32)
        x[:, ::32] = 0.0
        (tmp_path / "data").mkdir(exist_ok=True)
        np.savez(tmp_path / "data" / f"{number:02}.npz", x=x)
    given = ("--data", tmp_path / "data", "--as", "weight-only-4", "--no-latency")
    result = qprof("quantize", tmp_path / "m.onnx", *given, "-o", tmp_path / "q.onnx")
    assert result.exit_code == 0, result.output
    assert "with weights of 8 bits" in result.stdout


def test_weights_alone_that_are_slower_than_float_have_what_int8_brings_as_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cost, "is_slower", property(lambda cost: cost.quantized_bytes < 70_000))
    monkeypatch.setattr(Cost, "speedup", property(lambda cost: 2.0))
    result = api.quantize(MODEL, FEW, tmp_path / "q.onnx", config="weight-only-4", latency=False)
    assert not (tmp_path / "q.qprof" / "profile.yaml").exists()
    fix, made = result.verdict.fixes[0], api.quantize(MODEL, FEW, config="int8", latency=False)
    assert fix.options == ("--as", "int8")
    assert (fix.sqnr, fix.bytes) == (made.verdict.sqnr, made.quantized_bytes)
    in_time = api.quantize(MODEL, FEW, config="weight-only-4", latency=False, budget=1e-9)
    assert "there was no time for one" in in_time.verdict.findings[0].text


def test_a_judged_model_whose_inputs_are_others_says_so(tmp_path: Path) -> None:
    result = api.quantize(MODEL, DATA, tmp_path / "q.onnx")
    caches = Finding(Code.INT8_CACHES, "keys and values are int8")
    noted = [Finding(Code.WIDENED, f"{name} is balanced") for name in ("a", "b")]
    lines = summary_text(replace(result, findings=(*noted, caches)), verbose=False).splitlines()
    assert [line for line in lines if line.startswith(("warning", "note"))] == [
        "warning: keys and values are int8",
        "note: a is balanced",
    ]


def test_the_command_of_quantized_weights_has_the_profile_and_no_option_without_effect() -> None:
    given = "m.onnx --data d --calibrator=kl --as int8 --set form=qdq --set schema=symmetric -o q.onnx"
    fix = Fix({"mode": "weight-only", "weight_type": "int8"})
    with click.Context(command):
        current_run().arguments = tuple(given.split())
        printed = command_with(fix, "q.qprof/profile.yaml"), command_with(fix, "")
    rest = "qprof quantize m.onnx --data d --set form=qdq -o q.onnx"
    profiled = f"{rest} --profile q.qprof/profile.yaml --as weight-only-8"
    assert printed == (profiled, f"{rest} --as weight-only-8")
