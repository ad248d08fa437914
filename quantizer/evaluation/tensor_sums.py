"""What is kept of a tensor that is compared, itself and after its following activation function.

Values that an activation function clips or flattens may be clipped by quantization too: their error never
reaches another node. Where all readers of a tensor compute one function of it, the error after that function
is what counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import PlanError
from ..model.graph import Graph, output_name
from ..numerics.arrays import UnaryFunction
from ..operators.functions import function_of_chain
from ..ranges.following_function import find_following_or_clip
from .sqnr import Difference, Sums, sums_along
from .tensor_matching import Match


@dataclass(frozen=True, eq=False)
class Following:
    """The function that all readers of a tensor together compute of it.

    Attributes:
        operators: its operators, for people: "Relu"; "Sigmoid, Mul" for SiLU.
        function: element by element, in float64.
        inner: names of the tensors inside it, such as the Sigmoid's of SiLU.
    """

    operators: str
    function: UnaryFunction
    inner: tuple[str, ...]

    def applied(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the function of an array of any shape and float type; NaN or Inf where it is not defined."""
        with np.errstate(all="ignore"):
            return self.function(np.asarray(values, np.float64).reshape(-1)).reshape(values.shape)


def following(graph: Graph, name: str, opset: int) -> Following | None:
    """Return the function after an activation, a clip too; None where there is none that can be computed.

    Args:
        graph: the prepared model.
        name: the activation.
        opset: version of the default operator domain.
    """
    found = find_following_or_clip(graph, name)
    if found is None:
        return None
    inner = tuple(output_name(node) for node in found.chain.nodes[:-1])
    try:
        after = Following(found.chain.operators, function_of_chain(found.chain, opset), inner)
        after.applied(np.zeros(2))
    except PlanError:  # onnx has no definition of an operator
        return None
    return after


@dataclass(frozen=True, eq=False)
class TensorSums:
    """What is kept of one tensor.

    Attributes:
        match: where it is in the quantized model.
        following: the function that its readers compute, None where there is none.
        sums: over the samples so far; None before the first that could be compared.
        sums_after: likewise, of both tensors after the function; None without one.
        shape_mismatches: samples for which the shapes differed.
    """

    match: Match
    following: Following | None = None
    sums: Sums | None = None
    sums_after: Sums | None = None
    shape_mismatches: int = 0

    @property
    def difference(self) -> Difference | None:
        """The difference over all samples; None when nothing could be compared."""
        return None if self.sums is None else self.sums.difference()

    @property
    def difference_after(self) -> Difference | None:
        """The difference after the function; None without one, or where it is not finite."""
        if self.sums is None or self.sums_after is None:
            return None
        after = self.sums_after.difference()
        return None if after.non_finite > self.sums.difference().non_finite else after

    def added(self, floats: npt.NDArray[Any], exposed: npt.NDArray[Any]) -> TensorSums:
        """Return the sums with one sample more: values of the float model, and of the exposed tensor."""
        quantized = self.match.dequantized(exposed)
        if floats.shape != quantized.shape:
            return replace(self, shape_mismatches=self.shape_mismatches + 1)
        sums = replace(self, sums=_added(self.sums, floats, quantized))
        if self.following is None:
            return sums
        after = self.following.applied(floats), self.following.applied(quantized)
        return replace(sums, sums_after=_added(self.sums_after, *after))


def _added(sums: Sums | None, floats: npt.NDArray[Any], quantized: npt.NDArray[Any]) -> Sums:
    one = sums_along(floats, quantized, (None,))[0]
    return one if sums is None else sums.added(one)


def differences_after(sums: Mapping[str, TensorSums]) -> dict[str, tuple[str, Difference]]:
    """Return the operators of the function after a tensor, and the difference after it, where there is one.

    A tensor inside the function that stayed float, such as the Sigmoid's of SiLU, has the difference of the
    tensor that the function reads: it adds no noise itself.
    """
    found: dict[str, tuple[str, Difference]] = {}
    for name, tensor in sums.items():
        after = tensor.difference_after
        if tensor.following is None or after is None:
            continue
        floats = (t for t in tensor.following.inner if t in sums and sums[t].match.scale is None)
        found.update((t, (tensor.following.operators, after)) for t in (*floats, name))
    return found
