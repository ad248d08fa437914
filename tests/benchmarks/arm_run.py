"""Run the models of a folder in onnxruntime and keep their outputs: what stage arm starts in the emulator
too.

    python tests/benchmarks/arm_run.py CASES OUT.npz [PART/PARTS]

Each folder in CASES has model.onnx and inputs.npz. Needs numpy and onnxruntime alone.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

LEVELS = {
    "optimised": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "plain": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
}


def main(cases: Path, out: Path, part: int = 0, parts: int = 1) -> None:
    """Run every case, or every so many, at both levels and save the outputs by case, level and number."""
    results: dict[str, Any] = {"version": np.array(f"onnxruntime {ort.__version__}, {platform.machine()}")}
    for folder in sorted(cases.iterdir())[part::parts]:
        inputs = dict(np.load(folder / "inputs.npz"))
        for level, value in LEVELS.items():
            if level == "plain" and (", int8, " not in folder.name or "symmetric" in folder.name):
                continue
            options = ort.SessionOptions()
            options.graph_optimization_level = value
            options.intra_op_num_threads = 1
            options.log_severity_level = 4
            try:
                session = ort.InferenceSession(
                    str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
                )
                found = session.run(None, inputs)
            except Exception as error:
                results[f"{folder.name}|{level}|error"] = np.array(str(error)[:300])
                continue
            results |= {f"{folder.name}|{level}|{i}": array for i, array in enumerate(found)}
    np.savez(out, **results)


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        Path(sys.argv[2]),
        *map(int, "".join(sys.argv[3:]).split("/") if sys.argv[3:] else ()),
    )
