"""What an activation function rounds on the way to its result, where it is written so that it saturates."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ..model.graph import input_name, name_of
from ..numerics.density import density, mean_of
from ..operators.saturating import correction_of, gate_params
from ..plan.plan import QuantPlan
from ..ranges.activation_ranges import ActivationRanges

ROUNDING = 1.0 / 12.0
"""Power of rounding, in squares of the step."""


def inner_rounding(node: ir.Node, plan: QuantPlan, activations: ActivationRanges) -> float:
    """Return the noise power in the result of a node from the rounding of its gate or correction.

    HardSwish multiplies its gate, and the rounding of it, by x; where the gate is 0 or 1 it is exact. PRelu
    adds its correction where x is negative.

    Args:
        node: of the model.
        plan: its plan; 0 is returned for a node whose implementation is not "saturating".
        activations: of the model.
    """
    name, entry = input_name(node, 0), plan.nodes[name_of(node)]
    params, tensor = plan.params_read(name_of(node), 0, name), activations.profile.get(name)
    if entry.implementation != "saturating" or params is None or tensor is None or not tensor.histogram.total:
        return 0.0
    values = density(tensor)
    if node.op_type == "HardSwish":
        step = gate_params(params.qtype).scale[0]
        return ROUNDING * step**2 * mean_of(values, lambda x: np.square(x) * (np.abs(x) < 3.0))
    if node.op_type == "PRelu":
        read = plan.params_read(name_of(node), 1, input_name(node, 1))
        found = None if read is None else correction_of(params, read)
        if found is not None:
            below_zero = mean_of(values, lambda x: np.less(x, 0.0).astype(np.float64))
            return ROUNDING * found.params.scale[0] ** 2 * below_zero
    return 0.0
