"""Puts a `QuantizationProfile` node on every floating-point activation.

The node is a model-local ONNX function with a body of standard operators, so an instrumented model runs
wherever the model runs, and any viewer shows the function. One run gives the same numbers as the calibration
runner, which computes them faster.
"""

from __future__ import annotations

import math
import os
import re
from functools import partial

import numpy as np
import onnx.parser
import onnx_ir as ir

from ....profiles.base.arguments import checks_arguments
from ....profiles.base.errors import ModelError, free_name
from ....profiles.base.output_files import replacing_together
from ....profiles.base.tool import tool_name
from ....profiles.instrumentation.subgraphs import float_activations, typed_activations, value_names
from ....profiles.records.histogram import BINS, INDEX_BITS, MIN_EXPONENT
from ....profiles.runtime.external_weights import load_weights
from ....profiles.samples.samples import title_of
from ...model.files import ModelLike
from ...model.output_paths import FilesRead, check_outputs
from ...model.saving import save_model
from ...plan.provenance import Provenance, model_fingerprint, write_provenance
from ...prepare.prepare import DOMAIN, OP_TYPE, is_instrumented, opened

# The function that a `QuantizationProfile` node calls: its outputs, and its body in standard operators.

MAX_EXPONENT = 1015
"""Exponent of a histogram over all finite doubles; above every exponent that a histogram can need."""

OUTPUTS: dict[str, tuple[ir.DataType, int]] = {
    "minimum": (ir.DataType.DOUBLE, 0),
    "maximum": (ir.DataType.DOUBLE, 0),
    "count": (ir.DataType.INT64, 0),
    "zeros": (ir.DataType.INT64, 0),
    "nan": (ir.DataType.INT64, 0),
    "inf": (ir.DataType.INT64, 0),
    "exponent": (ir.DataType.INT64, 0),
    "bins": (ir.DataType.INT64, 1),
    "counts": (ir.DataType.INT64, 1),
    "shape": (ir.DataType.INT64, 1),
}
"""Outputs of the function, with element type and rank: the fields of a `TensorProfile`, the histogram as its
exponent, the grid indices of its non-empty bins in rising order, and their counts."""

_BODY = """
<domain: "{domain}", opset_import: ["": {opset}]>
{op_type} <profiled_node_name, profiled_output_number> (x) => ({outputs})
{{
    zero = Constant <value = double {{0.0}}> ()
    minus_one = Constant <value = double {{-1.0}}> ()
    largest = Constant <value = double[1] {{{largest}}}> ()
    max_bins = Constant <value = double {{{bins}.0}}> ()
    index_limit = Constant <value = double {{{index_limit}.0}}> ()
    min_exponent = Constant <value = int64 {{{min_exponent}}}> ()
    no_elements = Constant <value = int64 {{0}}> ()
    flat_shape = Constant <value = int64[1] {{-1}}> ()
    scales = Constant <value = double[{scale_count}] {{{scales}}}> ()

    shape = Shape (x)
    wide = Cast <to = 11> (x)
    flat = Reshape (wide, flat_shape)
    is_nan = IsNaN (flat)
    is_inf = IsInf (flat)
    is_not_finite = Or (is_nan, is_inf)
    is_finite = Not (is_not_finite)
    values = Compress (flat, is_finite)

    nan_ones = Cast <to = 7> (is_nan)
    nan = ReduceSum <keepdims = 0> (nan_ones)
    inf_ones = Cast <to = 7> (is_inf)
    inf = ReduceSum <keepdims = 0> (inf_ones)
    is_zero = Equal (values, zero)
    zero_ones = Cast <to = 7> (is_zero)
    zeros = ReduceSum <keepdims = 0> (zero_ones)
    count = Size (values)

    is_empty = Equal (count, no_elements)
    with_largest = Concat <axis = 0> (values, largest)
    lowest = ReduceMin <keepdims = 0> (with_largest)
    smallest = Neg (largest)
    with_smallest = Concat <axis = 0> (values, smallest)
    highest = ReduceMax <keepdims = 0> (with_smallest)
    lowest_or_zero = Where (is_empty, zero, lowest)
    highest_or_zero = Where (is_empty, zero, highest)
    minimum = Add (lowest_or_zero, zero)
    maximum = Add (highest_or_zero, zero)

    minimum_scaled = Mul (minimum, scales)
    minimum_floor = Floor (minimum_scaled)
    minimum_below = Min (minimum_floor, minus_one)
    minimum_negative = Less (minimum, zero)
    first = Where (minimum_negative, minimum_below, minimum_floor)
    maximum_scaled = Mul (maximum, scales)
    maximum_floor = Floor (maximum_scaled)
    maximum_below = Min (maximum_floor, minus_one)
    maximum_negative = Less (maximum, zero)
    last = Where (maximum_negative, maximum_below, maximum_floor)
    span = Sub (last, first)
    span_fits = Less (span, max_bins)
    first_size = Abs (first)
    first_fits = Less (first_size, index_limit)
    last_size = Abs (last)
    last_fits = Less (last_size, index_limit)
    indices_fit = And (first_fits, last_fits)
    fits = And (span_fits, indices_fit)
    fits_ones = Cast <to = 6> (fits)
    chosen = ArgMax <axis = 0, keepdims = 0> (fits_ones)
    exponent = Add (chosen, min_exponent)

    scale = Gather (scales, chosen)
    scaled = Mul (values, scale)
    floor = Floor (scaled)
    floor_below = Min (floor, minus_one)
    negative = Less (values, zero)
    index = Where (negative, floor_below, floor)
    whole = Cast <to = 7> (index)
    bins, at, inverse, counts = Unique <sorted = 1> (whole)
}}
"""
# Notes on the function body. `largest` makes the reductions of no values defined. Adding zero turns -0.0 into
# 0.0. The Min with -1 keeps a negative double whose scaled value underflows to -0.0 out of bin 0. A scaled
# value that overflows is infinite, and no infinite index is below `index_limit`: such an exponent does not
# fit.


def profiling_function(opset: int) -> ir.Function:
    """Return the function that a `QuantizationProfile` node calls; its exponent is that of `bin_exponent`."""
    scales = [math.ldexp(1.0, -e) for e in range(MIN_EXPONENT, MAX_EXPONENT + 1)]
    text = _BODY.format(
        domain=DOMAIN,
        op_type=OP_TYPE,
        opset=opset,
        outputs=", ".join(OUTPUTS),
        largest=repr(float(np.finfo(np.float64).max)),
        bins=BINS,
        index_limit=1 << INDEX_BITS,
        min_exponent=MIN_EXPONENT,
        scale_count=len(scales),
        scales=", ".join(map(repr, scales)),
    )
    function = onnx.parser.parse_function(text)
    function.doc_string = (
        "Exact statistics of the finite elements of x, and their histogram in bins of width 2**exponent."
    )
    return ir.serde.deserialize_function(function)


MIN_OPSET = 13
"""Oldest opset of the default domain that the function's body is written for."""


def with_profiling_nodes(model: ir.Model) -> ir.Model:
    """Return a copy of `model` with a `QuantizationProfile` node on each of the `float_activations`.

    Its outputs are graph outputs, called "qprof:<output>:<tensor>", with underscores after "qprof" if the
    model has such names. A runtime that fuses nothing computes the original outputs bit for bit.
    """
    opset = model.opset_imports.get("", 0)
    if opset < MIN_OPSET:
        raise ModelError(
            f"{title_of(model)}: has opset {opset}, profiling needs {MIN_OPSET} or newer; "
            "convert it with onnx.version_converter"
        )
    if is_instrumented(model):
        raise ModelError(f"{title_of(model)}: is instrumented already; give the original model")
    dtypes = {str(value.name): dtype for value, dtype in typed_activations(model)}
    copy = model.clone()
    heads = {name.partition(":")[0] for name in value_names(copy) if ":" in name}
    prefix = free_name(DOMAIN, heads, lambda number: DOMAIN + "_" * number)
    taken = {str(node.name) for node in copy.graph.all_nodes() if node.name}
    for value in float_activations(copy):
        dtype = dtypes.get(str(value.name))
        if dtype is not None:
            value.dtype = dtype
            name = f"{OP_TYPE}/{_escaped(str(value.name))}"
            name = free_name(name, taken, partial("{}#{}".format, name))
            taken.add(name)
            node = _profiling_node(value, prefix, name)
            copy.graph.append(node)
            copy.graph.outputs.extend(node.outputs)
    function = profiling_function(opset)
    copy.functions[function.identifier()] = function
    copy.opset_imports[DOMAIN] = 1
    copy.ir_version = max(copy.ir_version, 8)  # the first with model-local functions
    return copy


def _profiling_node(value: ir.Value, prefix: str, name: str) -> ir.Node:
    producer = value.producer()
    profiled = str(value.name) if producer is None else str(producer.name or "")
    outputs = [
        ir.Value(
            name=f"{prefix}:{output}:{value.name}", type=ir.TensorType(dtype), shape=ir.Shape([None] * rank)
        )
        for output, (dtype, rank) in OUTPUTS.items()
    ]
    attributes = [
        ir.AttrString("profiled_node_name", profiled),
        ir.AttrInt64("profiled_output_number", (value.index() or 0) if producer is not None else 0),
    ]
    return ir.Node(DOMAIN, OP_TYPE, [value], attributes, outputs=outputs, name=name)


def _escaped(name: str) -> str:
    """Return `name` with other characters than A-Z a-z 0-9 _ . / : - as %XX of their UTF-8 bytes."""
    return re.sub(r"[^A-Za-z0-9_./:-]", lambda m: "".join(f"%{b:02X}" for b in m[0].encode()), name)


@checks_arguments
def instrument(model: ModelLike, output: str | os.PathLike[str] | None = None) -> ir.Model:
    """Return the prepared model with a QuantizationProfile node on every floating-point activation.

    Args:
        model: path, `onnx.ModelProto` or `onnx_ir.Model`; an object is only read.
        output: the file to write; None to write no file.

    Raises:
        ModelError: the model cannot be read. ConfigError: `output` would overwrite its weights.
    """
    read = FilesRead(models=(model,))
    check_outputs([output], read, model=output)
    with opened(model) as file:
        prepared = file.prepared
        result = with_profiling_nodes(prepared.model)
        fingerprint = model_fingerprint(prepared.identity)
        write_provenance(result, Provenance(tool_name(), fingerprint, instrumented=True))
        if output is not None:
            with replacing_together(read.weights) as batch:
                save_model(result, output, batch=batch)
        if not isinstance(model, str | os.PathLike):
            load_weights(result)  # its files are temporary
        return result
