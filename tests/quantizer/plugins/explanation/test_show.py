"""`qprof show PLAN NAME`: tensors and nodes of a real plan, as text and as JSON, and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.targets.loading import load_recipe

from ....cli.running import qprof

DIGITS = Path(__file__).parents[4] / "examples" / "digits"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explain")
    profile_model(DIGITS / "model.onnx", DIGITS / "calibration", folder / "p.yaml", RunSettings(limit=20))
    write_quantized(
        DIGITS / "model.onnx", folder / "p.yaml", folder / "q.onnx", save_plan=folder / "plan.yaml"
    )
    return folder


def explain(folder: Path, *arguments: str, code: int = 0) -> str:
    result = qprof("show", str(folder / "plan.yaml"), *arguments)
    assert result.exit_code == code, result.output
    return result.output


def test_the_plan_alone_explains_the_group(folder: Path) -> None:
    lines = explain(folder, "block.pool.out").splitlines()
    assert lines[0].startswith("block.pool.out: uint8, scale ")
    assert any("tied by block.relu2, block.pool;" in line for line in lines)
    assert any(line.split()[:1] == ["block.relu2.out"] and " yes " in line for line in lines)


def test_model_and_profile_add_the_nodes_and_the_noise(folder: Path) -> None:
    more = ["--model", str(DIGITS / "model.onnx"), "--profile", str(folder / "p.yaml")]
    document = json.loads(explain(folder, "block.pool.out", *more, "--json"))
    assert [n["operator"] for n in document["neighbours"] if n["makes"]] == ["MaxPool"]
    assert 30.0 < document["sqnr_db"] < 60.0
    before_the_clip = next(m for m in document["members"] if m["name"] == "block.add.out")
    assert before_the_clip["sqnr_db"] is None


def both(folder: Path) -> list[str]:
    return ["--model", str(DIGITS / "model.onnx"), "--profile", str(folder / "p.yaml")]


def test_a_tensor_that_shares_nothing_is_explained_by_what_was_observed(folder: Path) -> None:
    text = explain(folder, "image", *both(folder))
    assert "0 .. 1; 0 % of the values are clipped" in text
    assert "calibrator    mse\n" in text
    assert "of no other tensor" in text


def test_a_range_before_a_clip_names_the_values_that_readers_use(folder: Path) -> None:
    document = json.loads(explain(folder, "block.add.out", *both(folder), "--json"))["observed"]
    assert document["minimum"] < 0.0 == document["effective_range"][0]
    assert document["clipped"] > 0.1


def test_a_range_before_an_activation_function_names_the_function(folder: Path) -> None:
    text = explain(folder, "gate.filter.out", *both(folder))
    assert "for the error after Tanh, which follows" in text


def test_a_plan_alone_says_what_the_model_and_the_profile_would_add(folder: Path) -> None:
    assert "--model and --profile add the nodes around it" in explain(folder, "image")


def test_a_constant_is_explained_by_its_values(folder: Path) -> None:
    document = json.loads(explain(folder, "block.conv1.weight", *both(folder), "--json"))["observed"]
    assert document["is_constant"]
    assert document["minimum"] < 0.0 < document["maximum"]


def test_a_node_is_explained_with_its_inputs_and_outputs(folder: Path) -> None:
    lines = explain(folder, "block.conv1", "--model", str(DIGITS / "model.onnx")).splitlines()
    assert lines[0] == "block.conv1 (Conv): quantized"
    assert [" ".join(line.split()).split(", scale")[0] for line in (lines[4], lines[-1])] == [
        "block.conv1.weight input 1 int8",
        "block.norm1.out output 0 uint8",
    ]


def test_a_node_that_stays_float_is_explained_by_its_reason(folder: Path) -> None:
    plan = folder / "float.yaml"
    recipe = load_recipe(None, {"keep_float": ("block.conv1",)})
    write_quantized(
        DIGITS / "model.onnx", folder / "p.yaml", folder / "f.onnx", save_plan=plan, recipe=recipe
    )
    result = qprof("show", str(plan), "block.conv1")
    assert result.stdout.startswith("block.conv1: stays float\nwhy        kept float by request")
    assert "--model adds its operator" in result.stdout


def test_an_unknown_tensor_is_an_error_with_the_nearest_name(folder: Path) -> None:
    assert "Did you mean 'block.pool.out'?" in explain(folder, "block.poll.out", code=2)


def test_a_profile_without_its_model_is_refused(folder: Path) -> None:
    message = explain(folder, "block.pool.out", "--profile", str(folder / "p.yaml"), code=2)
    assert "give the model too" in message


def test_another_profile_than_the_plans_is_said(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    profile_model(DIGITS / "model.onnx", DIGITS / "calibration", other, RunSettings(limit=5))
    remark = "was made from another profile than"
    more = ["--model", str(DIGITS / "model.onnx"), "--profile", str(other)]
    assert f"{remark} {other}: observed range" in explain(folder, "block.pool.out", *more)
    assert json.loads(explain(folder, "block.pool.out", *more, "--json"))["findings"]
    assert remark not in explain(folder, "block.pool.out", *both(folder))


def test_a_quantized_model_stands_for_its_plan_and_its_profile(folder: Path) -> None:
    model = ["--model", str(DIGITS / "model.onnx")]
    shown = qprof("show", str(folder / "q.onnx"), "block.pool.out", *model)
    assert shown.stdout == explain(folder, "block.pool.out", *both(folder))


def test_a_float_model_in_the_place_of_the_plan_is_said_to_be_one() -> None:
    result = qprof("show", str(DIGITS / "model.onnx"), "block.pool")
    assert result.exit_code == 2
    assert "model.onnx: is a model, not a profile or a plan; give" in result.output
