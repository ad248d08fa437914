import json
from pathlib import Path

import pytest

from ....cli.running import qprof

DIGITS = Path(__file__).parents[4] / "examples" / "digits"
LABELS = ["--labels", str(DIGITS / "heldout" / "labels.txt")]


def run(profile: Path, *options: str):
    data = ["--data", str(DIGITS / "heldout"), "--objective", "size"]
    command = ["tune", str(DIGITS / "model.onnx"), "--profile", str(profile), *data, *options]
    return qprof(*command)


def test_each_trial_is_printed_and_the_held_out_score_at_the_end(profile, tmp_path) -> None:
    result = run(profile, *LABELS, "-o", str(tmp_path / "o.onnx"), "--verbose")
    assert result.exit_code == 0, result.output
    assert "  1  default" in result.stderr
    assert "hold-out   99.50 float" in result.stdout
    assert ", 95 % interval " in result.stdout
    assert "one is held out, drawn at random" in result.stdout
    assert result.stdout.startswith("result     target met")
    assert (tmp_path / "o.onnx").exists()


def test_json_is_alone_on_stdout(profile) -> None:
    result = run(profile, *LABELS, "--json", "--verbose")
    document = json.loads(result.stdout)
    assert document["target_met"] is True
    assert document["target"]["objective"] == "size"
    assert document["trials"][document["chosen"]]["value"] > 1.0
    assert "  1  default" in result.stderr


def test_a_missed_target_exits_with_one_and_reports_the_best_plan(profile, tmp_path, monkeypatch) -> None:
    # A metric by which the quantized model is always worse: it sees the float outputs first, of both halves.
    (tmp_path / "worse.py").write_text(
        "floats = {}\n"
        "def score(outputs, indices):\n"
        "    found = [o['logits'].tobytes() for o in outputs]\n"
        "    known = [floats.setdefault(i, f) == f for i, f in zip(indices, found, strict=True)]\n"
        "    return [90.0 if same else 80.0 for same in known]\n"
    )
    monkeypatch.chdir(tmp_path)
    result = run(profile, "--metric", "worse:score", "--set", "budget=0.001", "-o", str(tmp_path / "o.onnx"))
    assert result.exit_code == 1, result.output
    assert "FAILED     --max-drop 0.5: target missed" in result.stdout
    assert "drop 10.00 points" in result.stdout
    assert not (tmp_path / "o.onnx").exists()


def test_labels_that_cannot_be_right_are_refused_by_name_and_line(profile, tmp_path) -> None:
    labels = (DIGITS / "heldout" / "labels.txt").read_text().splitlines()
    (tmp_path / "one.txt").write_text("\n".join(str(int(label) + 1) for label in labels))
    result = run(profile, "--labels", str(tmp_path / "one.txt"))
    assert result.exit_code == 2
    assert "one.txt: the labels end at 10 and none is 0" in result.stderr


def test_help_says_what_exit_code_zero_means() -> None:
    text = qprof("tune", "--help").stdout
    assert "Exit code 0: the measured score meets the target" in text


@pytest.mark.slow
def test_without_a_profile_it_is_made_as_quantize_makes_it_and_plan_and_profile_lie_beside(
    tmp_path: Path,
) -> None:
    model, data = str(DIGITS / "model.onnx"), ["--data", str(DIGITS / "heldout")]
    out = ["-o", str(tmp_path / "o.onnx"), "--objective", "size"]
    found = qprof("tune", model, *data, *LABELS, *out, "--verbose")
    assert found.exit_code == 0, found.output
    assert "hold-out   100.00 float" in found.stdout
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")} == {
        "o.onnx",
        "o.qprof",
        "o.qprof/plan.yaml",
        "o.qprof/profile.yaml",
        "o.qprof/profile.samples.npz",
    }
    quantized = ["-o", str(tmp_path / "q.onnx"), "--no-latency"]
    again = qprof("quantize", model, *data, *quantized, "--verbose")
    assert "o.qprof/profile.yaml: used again, model and data are the same" in again.stderr
