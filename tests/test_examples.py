"""examples/digits: what is committed, the script that made it, and the main job run on it."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner, Result
from qprof_onnx.cli.main import main
from qprof_onnx.quantizer.targets import target
from qprof_onnx.quantizer.targets.cost_table import costs_of

ROOT = Path(__file__).parent.parent
DIGITS = ROOT / "examples" / "digits"
LABELS = np.loadtxt(DIGITS / "heldout" / "labels.txt", dtype=np.int64)


def images(folder: str) -> npt.NDArray[np.float32]:
    """Return all samples of a folder in the order of the file names, [n, 1, 8, 8]."""
    return np.concatenate([np.load(path)["image"] for path in sorted((DIGITS / folder).glob("*.npz"))])


def accuracy(model: Path) -> float:
    """Return the share of held-out samples that a model labels right."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    logits = session.run(None, {"image": images("heldout")})[0]
    return float((logits.argmax(1) == LABELS).mean())


def qprof(command: list[str], out: Path) -> Result:
    """Run a command line of README.md, with its folder out/ replaced."""
    placed = [re.sub(r"^out/", f"{out}/", part) for part in command]
    placed = [str(ROOT / part) if part.startswith("examples/") else part for part in placed]
    return CliRunner().invoke(main, placed, prog_name="qprof")


@pytest.fixture(scope="module", autouse=True)
def _measured_times() -> Iterator[None]:
    """As a user has them: the times that were measured for the target."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(target, "costs_of", costs_of)
        yield


@pytest.fixture(scope="module")
def train() -> ModuleType:
    """Import examples/digits/train.py."""
    pytest.importorskip("sklearn", reason="of the extra examples")
    spec = importlib.util.spec_from_file_location("digits_train", DIGITS / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run README.md's first command, without its installation, and return its output folder."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- command: main job -->\n```sh\n(.*?)```", readme, re.DOTALL)
    assert found is not None
    out = tmp_path_factory.mktemp("out")
    steps = [shlex.split(step) for step in found[1].replace("\\\n", " ").split("&&")]
    commands = [step[1:] for step in steps if step[0] == ".venv/bin/qprof"]
    assert [command[0] for command in commands] == ["dump-profile", "quantize", "evaluate"]
    for command in commands:
        result = qprof(command, out)
        assert result.exit_code == 0, result.output
        (out / f"{command[0]}.txt").write_text(result.stdout)
    return out


def test_the_model_is_valid_and_has_the_shape_of_real_life() -> None:
    model = onnx.load(DIGITS / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert (model.ir_version, model.opset_import[0].version) == (8, 17)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    kinds = {node.op_type for node in model.graph.node}
    assert {"Conv", "BatchNormalization", "Relu", "Add", "MaxPool", "Tanh", "Sigmoid", "Mul", "Gemm"} <= kinds


def test_the_committed_model_reads_held_out_digits() -> None:
    assert accuracy(DIGITS / "model.onnx") >= 0.97


def test_the_example_is_small() -> None:
    assert sum(path.stat().st_size for path in DIGITS.rglob("*.*")) < 500_000


def test_the_samples_are_the_split_that_the_script_makes(train: ModuleType) -> None:
    (training, _), (held_out, labels) = train.split()
    np.testing.assert_array_equal(images("calibration"), training[:64])
    np.testing.assert_array_equal(images("heldout"), held_out)
    np.testing.assert_array_equal(LABELS, labels)


def test_no_held_out_sample_is_used_for_training(train: ModuleType) -> None:
    (training, _), (held_out, _) = train.split()
    assert len(training) + len(held_out) == 1797
    assert len(held_out) == 400


@pytest.mark.slow
def test_the_script_can_be_run_again(
    train: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--out", str(tmp_path), "--epochs", "1"])
    train.main()
    made, committed = onnx.load(tmp_path / "model.onnx"), onnx.load(DIGITS / "model.onnx")
    assert list(made.graph.node) == list(committed.graph.node)
    assert [(i.name, i.dims) for i in made.graph.initializer] == [
        (i.name, i.dims) for i in committed.graph.initializer
    ]
    # One of thirty epochs: chance is 0.1.
    assert accuracy(tmp_path / "model.onnx") > 0.3
    assert "accuracy on 400 held-out samples" in capsys.readouterr().out


def test_the_quantized_digits_model_keeps_its_accuracy(quantized: Path) -> None:
    # One of 400 samples is 0.0025.
    assert accuracy(quantized / "digits.int8.onnx") >= accuracy(DIGITS / "model.onnx") - 0.005


def test_the_quantized_digits_model_computes_in_integers(quantized: Path) -> None:
    text = (quantized / "quantize.txt").read_text()
    (share,) = re.findall(
        r"^int8 +(\d+) % of the arithmetic, \d of 6 products \(Conv, Gemm\)$", text, re.MULTILINE
    )
    assert int(share) >= 95
