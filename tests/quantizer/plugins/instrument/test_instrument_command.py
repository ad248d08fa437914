"""`qprof instrument`."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from click.testing import CliRunner, Result
from qprof_onnx.cli.main import main

DIGITS = Path(__file__).parents[4] / "examples" / "digits"
MODEL = DIGITS / "model.onnx"


def instrument(*arguments: str | Path) -> Result:
    """Run the command inside this process."""
    return CliRunner().invoke(main, ["instrument", *map(str, arguments)], prog_name="qprof")


def test_the_written_model_is_valid_and_runs_in_plain_onnxruntime(tmp_path: Path) -> None:
    out = tmp_path / "i.onnx"
    result = instrument(MODEL, "-o", out)
    assert (result.exit_code, result.stdout) == (0, f"{out}: instrumented\n")
    model = onnx.load(out)
    onnx.checker.check_model(model, full_check=True)
    assert "QuantizationProfile" in {node.op_type for node in model.graph.node}
    feed = dict(np.load(DIGITS / "heldout" / "00.npz"))
    names = ["logits"]
    before, after = (
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(names, feed)[0]
        for path in (MODEL, out)
    )
    # The written model is the prepared one, whose BatchNorm is folded: float32 rounding, logits of about 10.
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-4)


def test_the_model_is_never_overwritten(tmp_path: Path) -> None:
    model = Path(shutil.copy(MODEL, tmp_path))
    result = instrument(model, "-o", model)
    assert result.exit_code == 2
    assert model.read_bytes() == MODEL.read_bytes()


def test_a_missing_output_folder_is_made(tmp_path: Path) -> None:
    result = instrument(MODEL, "-o", tmp_path / "new" / "i.onnx")
    assert result.exit_code == 0
    assert (tmp_path / "new" / "i.onnx").is_file()
