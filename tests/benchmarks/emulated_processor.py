"""Models in onnxruntime with and without graph optimisations, here or on a processor that qemu-user emulates.

    python tests/benchmarks/emulated_processor.py MODEL.int8.onnx ... --out here
    qemu-x86_64 -cpu Haswell-noTSX $(which python) tests/benchmarks/emulated_processor.py ... --out haswell

Without VNNI, sums of two products with 8-bit weights saturate in the optimised model; 7 bits do not.
It imports nothing but numpy and onnxruntime: under emulation a run takes minutes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnxruntime as ort

IMAGES = Path(__file__).resolve().parents[2] / "examples" / "digits" / "heldout"


def outputs(path: Path, level: ort.GraphOptimizationLevel, images: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = level
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(
        None, {"image": images}
    )[0]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path, nargs="+", help="quantized models of examples/digits")
    parser.add_argument("--out", type=Path, required=True, help="folder of the outputs, to be compared")
    given = parser.parse_args()
    given.out.mkdir(exist_ok=True)
    images = np.load(sorted(IMAGES.glob("*.npz"))[0])["image"][:8]
    for path in given.models:
        plain = outputs(path, ort.GraphOptimizationLevel.ORT_DISABLE_ALL, images)
        optimised = outputs(path, ort.GraphOptimizationLevel.ORT_ENABLE_ALL, images)
        np.savez(given.out / f"{path.stem}.npz", plain=plain, optimised=optimised)
        difference, largest = np.abs(plain - optimised).max(), np.abs(plain).max()
        print(f"{path.name}: onnxruntime {ort.__version__}, {difference:.2g} of {largest:.3g}", flush=True)


if __name__ == "__main__":
    main()
