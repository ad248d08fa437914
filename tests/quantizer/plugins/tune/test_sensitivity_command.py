import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from qprof_onnx.cli.main import main

DIGITS = Path(__file__).parents[4] / "examples" / "digits"


@pytest.fixture(scope="module")
def profile(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("sensitivity") / "profile.yaml"
    options = ["--data", str(DIGITS / "calibration"), "--limit", "4", "-o", str(path)]
    result = CliRunner().invoke(main, ["dump-profile", str(DIGITS / "model.onnx"), *options])
    assert result.exit_code == 0, result.output
    return path


@pytest.fixture(scope="module")
def quantized(profile: Path) -> Path:
    files = ["--profile", profile, "-o", profile.with_name("q.onnx")]
    files += ["--save-plan", profile.with_name("q.plan.yaml")]
    words = ["quantize", DIGITS / "model.onnx", *files, "--target", "onnxruntime-x86"]
    assert CliRunner().invoke(main, [*map(str, words)]).exit_code == 0
    return profile.with_name("q.onnx")


def run(quantized: Path, *options: str):
    data = ["--data", str(DIGITS / "calibration"), "--limit", "2"]
    words = ["compare-layers", str(DIGITS / "model.onnx"), str(quantized), *data, "--rank", *options]
    return CliRunner().invoke(main, words)


def test_every_quantized_node_is_in_the_table(quantized) -> None:
    result = run(quantized)
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()[2:] if line]
    assert {"stem.conv", "block.conv1", "head"} <= {row[0] for row in rows}
    assert "quantized nodes, 2 samples; all quantized: SQNR " in result.stdout


def test_json_has_the_ranking_and_the_whole_plan(quantized) -> None:
    result = run(quantized, "--json", "--worst", "3")
    document = json.loads(result.stdout)
    shares = [node["share"] for node in document["nodes"]]
    assert len(shares) == 3
    assert shares == sorted(shares, reverse=True)
    assert document["sqnr"] > 20.0


def test_of_a_quantized_model_its_own_plan_is_measured(profile, tmp_path) -> None:
    model, plan, quantized = str(DIGITS / "model.onnx"), tmp_path / "plan.yaml", str(tmp_path / "o.onnx")
    files = ["--profile", str(profile), "-o", quantized, "--save-plan", str(plan)]
    assert CliRunner().invoke(main, ["quantize", model, *files, "--keep-float", "stem.conv"]).exit_code == 0
    result = run(quantized)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"model.onnx, {plan}: ")
    assert "stem.conv" not in result.stdout
    assert f"why: qprof show {plan} " in result.stdout
    plan.unlink()
    assert "no plan that it was made from lies beside it; give --plan" in run(quantized).stderr


def test_a_poor_plan_is_answered_with_nodes_to_keep_float_and_with_the_reason(profile, tmp_path) -> None:
    """The steps of a search for the layer that hurts: each one's advice leads to the next."""
    plan, model = tmp_path / "plan.yaml", DIGITS / "model.onnx"
    settings = ["--calibrator", "percentile:90", "--set", "min_output_sqnr=0", "--set", "cost_model=off"]
    files = ["--profile", str(profile), "-o", str(tmp_path / "o.onnx"), "--save-plan", str(plan)]
    assert CliRunner().invoke(main, ["quantize", str(model), *files, *settings]).exit_code == 0
    found = run(tmp_path / "o.onnx", "--profile", str(profile)).stdout
    assert "outputs hold with --keep-float " in found
    (command,) = (line.removeprefix("why: ") for line in found.splitlines() if line.startswith("why: "))
    shown = CliRunner().invoke(main, shlex.split(command)[1:]).stdout
    worst = next(line for line in found.splitlines()[3:] if line.split()).split()[0]
    assert shown.startswith(f"node '{worst}'")
    assert "% clipped" in shown
