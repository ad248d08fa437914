"""What one run of an instrumented model says, as profiles: those of the calibration runner must be equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from qprof_onnx.profiles.instrumentation.subgraphs import declared_shape
from qprof_onnx.profiles.records.histogram import Histogram
from qprof_onnx.profiles.records.profile import TensorProfile, merged_shape
from qprof_onnx.quantizer.plugins.instrument.instrument import OUTPUTS
from qprof_onnx.quantizer.prepare.prepare import DOMAIN, OP_TYPE


def profile_from_outputs(
    instrumented: ir.Model, outputs: Mapping[str, npt.NDArray[Any]]
) -> dict[str, TensorProfile]:
    """Return the profiles that one run of an instrumented model has computed, by tensor name in graph order.

    Args:
        instrumented: the result of `instrument`.
        outputs: the graph outputs of one run by name; others than the profiling outputs may be missing.
    """
    profiles = {}
    for node in instrumented.graph:
        if (node.domain, node.op_type) != (DOMAIN, OP_TYPE):
            continue
        statistics = {key: outputs[str(v.name)] for key, v in zip(OUTPUTS, node.outputs, strict=True)}
        value = node.inputs[0]
        assert value is not None
        assert value.dtype is not None
        shape = tuple(int(d) for d in statistics["shape"])
        profiles[str(value.name)] = TensorProfile(
            dtype=value.dtype.name.lower(),
            shape=shape if value.shape is None else merged_shape(declared_shape(value.shape), shape),
            minimum=float(statistics["minimum"]),
            maximum=float(statistics["maximum"]),
            count=int(statistics["count"]),
            zeros=int(statistics["zeros"]),
            nan=int(statistics["nan"]),
            inf=int(statistics["inf"]),
            histogram=_histogram(int(statistics["exponent"]), statistics["bins"], statistics["counts"]),
        )
    return profiles


def _histogram(exponent: int, bins: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> Histogram:
    if bins.size == 0:
        return Histogram.empty()
    dense = np.zeros(int(bins[-1] - bins[0]) + 1, np.int64)
    dense[bins - bins[0]] = counts
    return Histogram(exponent, int(bins[0]), dense)
