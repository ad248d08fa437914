"""`qprof instrument`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from ....cli.running import qprof

DIGITS = Path(__file__).parents[4] / "examples" / "digits"
MODEL = DIGITS / "model.onnx"


instrument = partial(qprof, "instrument")


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
