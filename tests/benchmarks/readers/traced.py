"""Graphs of a few nodes that a reader computes wrongly, beside neighbours that it computes right.

    python tests/benchmarks/readers/traced.py --environments DIR [--readers tract]

Printed is for each graph whether the reader's result is exact, near, differs, or why there is none.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.parser

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from readers import cases, running
from readers.table import READERS

UINT8 = "float s = {0.03125}, uint8 z = {128}"
INT8 = "float s = {0.03125}, int8 z = {0}"
SOFTMAX = f"{UINT8}, float s1 = {{0.00390625}}, uint8 z1 = {{0}}"
CONV = f"{UINT8}, int8[2, 2, 1, 1] w = {{10, -20, 30, 40}}, int32[2] b = {{500, -700}}"
ONE = "float sw = {0.01}, int8 zw = {0}"
EACH = "float[2] sw = {0.01, 0.02}, int8[2] zw = {0, 0}"
PAIR = "q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z)"
LAST = "r = QuantizeLinear (f, s1, z1) y = DequantizeLinear (r, s1, z1)"
POOL = "p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (q) y = DequantizeLinear (p, s, z)"
GRAPHS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "tract": {
        "Softmax of a float tensor, QuantizeLinear": (SOFTMAX, f"f = Softmax <axis = 1> (x) {LAST}"),
        "DequantizeLinear, Softmax": (SOFTMAX, f"{PAIR} y = Softmax <axis = 1> (d)"),
        "DequantizeLinear, Softmax, QuantizeLinear": (SOFTMAX, f"{PAIR} f = Softmax <axis = 1> (d) {LAST}"),
    },
    "mnn": {
        "QuantizeLinear, DequantizeLinear, int8": (INT8, PAIR.replace("d =", "y =")),
        "QuantizeLinear, DequantizeLinear, uint8": (UINT8, PAIR.replace("d =", "y =")),
        "QuantizeLinear, Cast, uint8": (UINT8, "q = QuantizeLinear (x, s, z) y = Cast <to = 1> (q)"),
    },
    "iree": {
        f"QLinearConv, {scales}, {bias}": (
            f"{CONV}, {constants}",
            f"q = QuantizeLinear (x, s, z) p = QLinearConv (q, s, z, w, sw, zw, s, z{given})"
            "y = DequantizeLinear (p, s, z)",
        )
        for scales, constants in (("one scale", ONE), ("a scale for each channel", EACH))
        for bias, given in (("no bias", ""), ("bias", ", b"))
    }
    | {
        "MaxPool, int8": (INT8, f"q = QuantizeLinear (x, s, z) {POOL}"),
        "MaxPool, uint8": (UINT8, f"q = QuantizeLinear (x, s, z) {POOL}"),
    },
    "litert": {
        "QuantizeLinear, DequantizeLinear": (UINT8, PAIR.replace("d =", "y =")),
        "Gather with indices of four dimensions": (
            "float[4] c = {1, 2, 3, 4}",
            "a = Abs (x) b = Cast <to = 6> (a) y = Gather (c, b)",
        ),
        "Mul by a computed constant of each channel": (
            "uint8[2, 1, 1] c = {100, 200}",
            "e = Cast <to = 1> (c) y = Mul (x, e)",
        ),
    },
    "opencv": {
        "PRelu, slope a constant": ("float[2, 1, 1] c = {0.1, 0.3}", "y = PRelu (x, c)"),
        "PRelu, slope computed": (
            "float[2, 1, 1] c = {0.1, 0.3}, float t = {2}",
            "e = Mul (c, t) y = PRelu (x, e)",
        ),
        "PRelu, slope of the last axis": ("float[4] c = {0.1, 0.3, 0.5, -0.5}", "y = PRelu (x, c)"),
    },
}
"""For each reader the graphs: constants and nodes, from x of shape (1, 2, 4, 4) to y."""


def write(reader: str, name: str, folder: Path) -> tuple[cases.Case, Path]:
    """Write a graph as a case, with the outputs to expect."""
    constants, nodes = GRAPHS[reader][name]
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 19]> '
        f"g (float[1, 2, 4, 4] x) => (float[] y) <{constants}> {{ {nodes} }}"
    )
    x = np.random.default_rng(3).uniform(-2, 2, (1, 2, 4, 4)).astype(np.float32)
    feed, case = {"x": x}, cases.Case(reader, name)
    return cases.stored(cases.with_open_outputs(model), feed, folder, case), folder


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--environments", type=Path, required=True)
    parser.add_argument("--readers", default=",".join(GRAPHS))
    given = parser.parse_args()
    for reader in given.readers.split(","):
        entry = READERS[reader]
        with tempfile.TemporaryDirectory() as folder:
            written = [write(reader, name, Path(folder) / str(i)) for i, name in enumerate(GRAPHS[reader])]
            python = running.python_of(reader, entry, given.environments)
            for outcome in running.outcomes(entry, python, written, {}):
                print(f"{reader}: {outcome.column}: {outcome.grade} {outcome.said}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
