import json
from dataclasses import replace

import numpy as np
import onnx
import onnx.parser
import pytest
import qprof_onnx
from qprof_onnx.quantizer.evaluation.latency import Latency
from qprof_onnx.quantizer.search.verdict import against

from .running import qprof

MODEL = """<ir_version: 8, opset_import: ["": 13]>
agraph (float[N, 3] x) => (float[N, 3] y) <float[3] c = {{{c}}}> {{
  m = Neg (x)
  y = Add (m, c)
}}"""

QUANTIZED = """<ir_version: 8, opset_import: ["": 13]>
agraph (float[N, 3] x) => (float[N, 3] y) <int8[3] q = {0, 0, 1}, float s = {0.5}, int8 z = {0}> {
  m = Neg (x)
  c = DequantizeLinear (q, s, z)
  y = Add (m, c)
}"""


@pytest.fixture
def files(tmp_path):
    for name, c in (("a", "0, 0, 0"), ("b", "0, 0, 0.5")):
        onnx.save(onnx.parser.parse_model(MODEL.format(c=c)), tmp_path / f"{name}.onnx")
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "0.npz", x=np.array([[3.0, 0.0, 4.0], [-1.0, 0.0, -0.8]], np.float32))
    (tmp_path / "labels.txt").write_text("1\n0\n")
    return tmp_path


def run(command: str, files, *options: str):
    pair = [str(files / "a.onnx"), str(files / "b.onnx")]
    return qprof(command, *pair, "--data", str(files / "data"), *options)


def test_evaluate_tells_signal_agreement_size_and_speed(files) -> None:
    result = run("evaluate", files, "--labels", str(files / "labels.txt"))
    assert result.exit_code == 0, result.output
    # signal 9 + 16 + 1 + 0.64, noise 2 * 0.25
    assert "17.27" in result.stdout
    assert "top-1 50.00 % of 2" in result.stdout
    assert "latency" in result.stdout
    assert "size" in result.stdout


def test_evaluate_tells_accuracy_with_its_interval(files) -> None:
    result = run("evaluate", files, "--labels", str(files / "labels.txt"), "--no-latency")
    assert "accuracy   100.00 % float, 50.00 % quantized of 2 rows" in result.stdout
    assert "drop 50.00 percentage points, 95 % interval" in result.stdout
    assert "latency" not in result.stdout


def test_a_failed_gate_exits_with_one_and_says_by_how_much(files) -> None:
    result = run("evaluate", files, "--no-latency", "--min-sqnr", "20")
    assert result.exit_code == 1
    assert "FAILED     --min-sqnr 20: output 'y': 17.27 dB, 2.73 dB off" in result.stdout


def test_a_missed_limit_on_a_score_without_a_unit_has_no_space_for_one(files) -> None:
    np.save(files / "true.npy", np.array([[-3.0, 0.0, -4.0], [1.0, 0.0, 0.8]], np.float32))
    scored = ("evaluate", files, "--no-latency", "--metric", "rmse", "--labels", str(files / "true.npy"))
    result = run(*scored, "--min-score", "0.1")
    why = "(the float model has 0; a lower score is better)"
    assert f"FAILED     --min-score 0.1: 0.2887, 0.1887 off {why}\n" in result.stdout


def test_a_gate_that_is_met_exits_with_zero(files) -> None:
    quantized = onnx.parser.parse_model(QUANTIZED)
    onnx.save(quantized, files / "b.onnx")
    original = onnx.load(files / "a.onnx")
    original.doc_string = "." * quantized.ByteSize()  # it is the larger file, as float models are
    onnx.save(original, files / "a.onnx")
    result = run("evaluate", files, "--no-latency", "--min-sqnr", "17")
    assert result.exit_code == 0
    assert "gate       passed" in result.stdout


def test_a_model_without_anything_quantized_is_a_remark_and_fails_a_gate(files) -> None:
    remark = "b.onnx: no node is quantized"
    result = run("evaluate", files, "--no-latency")
    assert result.exit_code == 0
    assert f"doubt: {remark}" in result.stdout
    result = run("evaluate", files, "--no-latency", "--min-sqnr", "17")
    assert result.exit_code == 1
    assert f"doubt: {remark}" in result.stdout
    assert "gate       not proven" in result.stdout
    assert "gate       passed" not in result.stdout


def test_a_failed_gate_still_prints_all_of_the_json(files) -> None:
    options = ("--labels", str(files / "labels.txt"), "--no-latency", "--max-drop", "1", "--json")
    result = run("evaluate", files, *options)
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["format"] == "qprof-evaluation/1"
    assert (found["float_model"], found["passed"], found["score"]["drop"]) == ("a.onnx", False, 50.0)
    assert found["failures"][0]["demand"] == "max_drop"


def test_compare_layers_lists_tensors_in_graph_order(files) -> None:
    result = run("compare-layers", files)
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines() if line.startswith(("x ", "m ", "y "))]
    assert [line[:2] for line in lines] == [["x", "input"], ["m", "Neg"], ["y", "Add"]]
    assert lines[1][4] == "equal"
    assert lines[2][4] == "17.27"


def test_compare_layers_ranks_the_worst(files) -> None:
    found = json.loads(run("compare-layers", files, "--worst", "1", "--json").stdout)
    assert [layer["tensor"] for layer in found["layers"]] == ["y"]
    assert (found["samples"], found["missing"]) == (2, [])


def test_the_class_axis_may_be_named(files) -> None:
    assert "top-1" not in run("evaluate", files, "--no-latency").stdout
    assert "top-1 50.00 % of 2" in run("evaluate", files, "--no-latency", "--class-axis", "-1").stdout
    result = run("evaluate", files, "--no-latency", "--class-axis", "2")
    assert result.exit_code == 2
    assert "class axis 2: output 'y' has 2 axes; give -2 to 1" in result.stderr


METRIC = ("--no-latency", "--metric", "top-1", "--labels")


def test_a_metric_is_told_with_what_was_lost(files) -> None:
    result = run("evaluate", files, *METRIC, str(files / "labels.txt"))
    assert result.exit_code == 0, result.output
    assert (
        "top-1      100.00 % float, 50.00 % quantized of 2 rows: top-1 accuracy of output 'y'"
        in result.stdout
    )
    assert "drop 50.00 percentage points, 95 % interval" in result.stdout
    found = json.loads(run("evaluate", files, *METRIC, str(files / "labels.txt"), "--json").stdout)
    assert (found["metric"], found["score"]["quantized_score"]) == ("top-1", 50.0)


def test_gates_on_metric_and_size_fail_with_what_is_missing(files) -> None:
    limits = ("--max-drop", "1", "--min-score", "90", "--max-size", "0.1kB")
    result = run("evaluate", files, *METRIC, str(files / "labels.txt"), *limits)
    assert result.exit_code == 1
    assert "FAILED     --max-drop 1: " in result.stdout
    assert "50.00 percentage points lost, 95 % interval" in result.stdout
    assert "FAILED     --min-score 90: 50.00 %, 40.00 % off (the float model has 100)" in result.stdout
    assert "FAILED     --max-size 100: " in result.stdout
    assert run("evaluate", files, "--max-drop", "1").exit_code == 2


def test_models_run_in_openvino(files) -> None:
    pytest.importorskip("openvino", reason="of the extra openvino")
    result = run("evaluate", files, "--no-latency", "--runtime", "openvino")
    assert result.exit_code == 0, result.output
    assert "on 2 samples, openvino with CPU" in result.stdout
    assert "17.27" in result.stdout
    wrong = run("evaluate", files, "--provider", "tpu")
    assert wrong.exit_code == 2
    assert "CPUExecutionProvider" in wrong.stderr


def test_the_verdict_comes_first(files) -> None:
    given = ("--labels", str(files / "labels.txt"), "--no-latency")
    lines = run("evaluate", files, *given).stdout.splitlines()
    assert lines[0].startswith("verdict    poor: accuracy 100.00 -> 50.00 % of 2 rows")


def test_a_model_that_is_slower_than_float_says_so_below_its_verdict(files) -> None:
    found = qprof_onnx.evaluate(files / "a.onnx", files / "b.onnx", files / "data", latency=False)
    slow = replace(
        found.verdict, latency=Latency(1.0, 2.0, 0.5, 0.4, 0.6, rounds=9, runs=9, samples=1, threads=1)
    )
    against_it = tuple(against(slow.composition, slow.cost))
    shown = replace(found, verdict=replace(slow, findings=against_it)).presentation()
    assert any(str(one).startswith("slower than float: 0.50 times as fast") for one in shown.findings)
    assert "--check-speed" not in str(against_it)  # qprof did not make the model


def test_a_model_whose_outputs_are_right_is_told_what_it_lacks(files) -> None:
    onnx.save(onnx.parser.parse_model(QUANTIZED), files / "q.onnx")
    pair = [str(files / name) for name in ("b.onnx", "q.onnx")]
    result = qprof("evaluate", *pair, "--data", str(files / "data"), "--no-latency")
    why = "the model is hardly smaller than float"  # its time was not measured
    assert result.stdout.startswith(f"verdict    fair: {why}; output 'y': typical error 0 % (limit 2.0 %)")
