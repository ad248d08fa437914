"""How much memory a noise model takes while it runs, from the sizes of the activations alone."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from ...profiles.instrumentation.live_memory import live_memory
from .measuring import weight_bytes
from .noise_model import Copies, noise_model

MARGIN = 1.2
"""What a run takes over what the sizes of its tensors say: memory of kernels, and tensors of unknown size."""

_KEEPS_SIZE = ("Add", "Sub", "Mul", "Where", "Less")
"""Operators between the copies whose output is as large as the largest of their inputs."""


def expected_bytes(model: ir.Model, sizes: Mapping[str, int]) -> int:
    """Return the bytes that a noise model takes at most while one sample runs, its weights included.

    Args:
        model: the prepared model.
        sizes: bytes of each activation that is measured.
    """
    noise = noise_model(model, sizes, Copies())
    known = dict(sizes)
    for node in noise.model.graph:
        for value in node.outputs:
            name = str(value.name)
            if name.startswith(noise.prefix):
                known[name] = sizes.get(noise.origin(name), 0)
        if node.op_type in _KEEPS_SIZE and not known.get(str(node.outputs[0].name)):
            largest = max((known.get(v.name or "", 0) for v in node.inputs if v is not None), default=0)
            known[str(node.outputs[0].name)] = largest
    peak = live_memory(noise.model, known).peak()
    return int(MARGIN * (peak + weight_bytes(noise.model) + weight_bytes(model)))
