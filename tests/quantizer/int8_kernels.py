"""Whether int8 kernels are exact on this processor, and what tests that run them take where they are not.

Processors of x86-64 without VNNI sum two products of uint8 and int8 in 16 bits, which saturate (instruction
VPMADDUBSW); with weights of 7 bits no such sum is too large. What a test says of qprof's numbers has to hold
on either kind of processor, so it runs models with weights that the kernels at hand multiply exactly.
"""

from __future__ import annotations

from qprof_onnx.quantizer.targets.machine import int8_kernels_saturate

SATURATE = "int8 kernels of this processor saturate (no VNNI)"
SATURATING = int8_kernels_saturate()
"""As it is here; tests of commands do not hear of it."""


def are_exact() -> bool:
    """Whether onnxruntime's product of the largest uint8 and int8 values is the exact one; it is computed."""
    return not SATURATING


WEIGHT_TYPE = "int8" if are_exact() else "int7"
"""Type of weights that the kernels of this processor multiply exactly."""
TARGET = "onnxruntime-x86" if are_exact() else "onnxruntime-x86-avx2"
"""A target whose plans onnxruntime computes exactly on this processor."""
