"""Whether int8 kernels are exact on this processor, and what tests that run them take where they are not.

Processors of x86-64 without VNNI sum two products of uint8 and int8 in 16 bits, which saturate (instruction
VPMADDUBSW); with weights of 7 bits no such sum is too large. What a test says of qprof's numbers has to hold
on either kind of processor, so it runs models with weights that the kernels at hand multiply exactly.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import onnxruntime as ort
from onnx import parser

SATURATE = "int8 kernels of this processor saturate (no VNNI)"
_PROBE = """<ir_version: 8, opset_import: ["": 17]> probe (uint8[4, 64] x) => (int32[4, 8] y) <int8[64, 8] w>
{ y = MatMulInteger (x, w) }"""


@cache
def are_exact() -> bool:
    """Whether onnxruntime's product of the largest uint8 and int8 values is the exact one; it is computed."""
    model = parser.parse_model(_PROBE)
    weight = model.graph.initializer.add(name="w", data_type=3, dims=(64, 8))
    weight.raw_data = np.full((64, 8), 127, np.int8).tobytes()
    del model.graph.value_info[:]
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.full((4, 64), 255, np.uint8)})
    return bool((y == 64 * 255 * 127).all())


WEIGHT_TYPE = "int8" if are_exact() else "int7"
"""Type of weights that the kernels of this processor multiply exactly."""
TARGET = "onnxruntime-x86" if are_exact() else "onnxruntime-x86-avx2"
"""A target whose plans onnxruntime computes exactly on this processor."""
