"""The opset raised to 14, which has per-channel QuantizeLinear (13) and HardSwish, with the same numbers.

The rules below are the breaking changes of the default domain between opsets 7 and 14, taken from the
operator changelog; every other operator of these opsets means the same in 14. onnx's version converter is not
used for them: it drops the coordinate rule of Resize (other numbers) and node names, and names new tensors
differently in different versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from ...profiles.base.errors import ModelError
from ...profiles.base.findings import Code, Finding
from ...profiles.instrumentation.subgraphs import value_names
from ..model.editing import Array, add_initializer, free_name, is_standard, rank
from ..model.graph import constant_of
from .shapes import IN_DEFAULT_DOMAIN, infer_shapes

TARGET = 14
OLDEST = 7
"""The oldest opset that is read; onnxruntime, too, promises no older one."""

Names = set[str]
Change = Callable[[ir.Node, Names], None]


def raise_opset(model: ir.Model) -> tuple[Finding, ...]:
    """Raise the default domain to opset 14 if it is below 13, or 13 if a node has another meaning later."""
    before = model.graph.opset_imports.get("", TARGET)
    trains = any(_trains(node) for node in ir.traversal.RecursiveGraphIterator(model.graph))
    if before >= TARGET or (before == TARGET - 1 and not trains):  # 13 has all that quantization needs
        return ()
    if before < OLDEST:
        raise ModelError(
            f"the model has opset {before}, and {OLDEST} is the oldest that is read; export it with opset "
            f"{TARGET} or later"
        )
    infer_shapes(model)
    names = value_names(model)
    for node in list(ir.traversal.RecursiveGraphIterator(model.graph)):
        if is_standard(node):
            for version, change in CHANGES.get(node.op_type, ()):
                if before < version:
                    change(node, names)
    model.graph.opset_imports[""] = TARGET
    _check(model, before)
    needed = "per-channel quantization needs" if before < TARGET - 1 else "says whether a node trains"
    sentence = f"opset raised from {before} to {TARGET}, which {needed}"
    return (Finding(Code.OPSET_RAISED, sentence, figures={"from": before, "to": TARGET}),)


def _check(model: ir.Model, before: int) -> None:
    """Raise for the first node whose operator or attributes opset 14 lacks, but for `IN_DEFAULT_DOMAIN`."""
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        if not is_standard(node):
            continue
        was_in_onnx = onnx.defs.has(node.op_type, max_inclusive_version=before)
        if node.op_type in IN_DEFAULT_DOMAIN and not was_in_onnx:
            continue
        try:
            schema = onnx.defs.get_schema(node.op_type, TARGET, "")
        except onnx.defs.SchemaError:
            raise _failure(node, "there is no such operator") from None
        unknown = sorted(set(node.attributes) - set(schema.attributes))
        if schema.deprecated or unknown:
            raise _failure(
                node, f"its attribute '{unknown[0]}' is gone" if unknown else "the operator is gone"
            )


def _failure(node: ir.Node, what: str) -> ModelError:
    return ModelError(
        f"node '{node.name}' ({node.op_type}): cannot be raised to opset {TARGET}: {what}; export the model "
        f"with opset {TARGET} or later"
    )


def _add_input(node: ir.Node, index: int, array: Array, what: str, names: Names) -> None:
    """Give the node a constant as input `index`, named after node and role."""
    assert node.graph is not None
    if len(node.inputs) <= index:
        node.resize_inputs(index + 1)
    name = free_name(f"{node.name}_{what}", names)
    node.replace_input_with(index, add_initializer(node.graph, name, array))


def _ints_to_input(attribute: str, index: int) -> Change:
    """Return the change of an attribute of integers into an input."""

    def change(node: ir.Node, names: Names) -> None:
        numbers = node.attributes.pop(attribute, None)
        if numbers is not None:
            _add_input(node, index, np.array(numbers.as_ints(), np.int64), attribute, names)

    return change


def _slice(node: ir.Node, names: Names) -> None:
    for index, attribute in enumerate(("starts", "ends", "axes"), start=1):
        _ints_to_input(attribute, index)(node, names)


def _top_k(node: ir.Node, names: Names) -> None:
    k = node.attributes.pop("k", None)
    if k is not None:
        _add_input(node, 1, np.array([k.as_int()], np.int64), "k", names)


def _float_type(node: ir.Node) -> np.dtype[np.generic]:
    value = node.inputs[0]
    kind = None if value is None else value.dtype
    return np.dtype(np.float32) if kind is None else kind.numpy()


def _clip(node: ir.Node, names: Names) -> None:
    for index, attribute in ((1, "min"), (2, "max")):
        limit = node.attributes.pop(attribute, None)
        if limit is not None and abs(limit.as_float()) < np.finfo(np.float32).max:
            _add_input(node, index, np.array(limit.as_float(), _float_type(node)), attribute, names)


def _pad(node: ir.Node, names: Names) -> None:
    _ints_to_input("pads", 1)(node, names)
    value = node.attributes.pop("value", None)
    if value is not None and value.as_float() != 0:
        _add_input(node, 2, np.array(value.as_float(), _float_type(node)), "value", names)


def _dropout(node: ir.Node, names: Names) -> None:
    ratio = node.attributes.pop("ratio", None)
    if ratio is not None:
        _add_input(node, 1, np.array(ratio.as_float(), np.float32), "ratio", names)


def _dropout_mask(node: ir.Node, names: Names) -> None:
    """Before opset 10 the mask had the type of the data."""
    if len(node.outputs) > 1 and (node.outputs[1].uses() or node.outputs[1].is_graph_output()):
        raise _failure(node, "its mask is used, which was of another type")


def _batch_normalization(node: ir.Node, names: Names) -> None:
    spatial = node.attributes.pop("spatial", None)
    if spatial is not None and spatial.as_int() != 1:
        raise _failure(node, "spatial=0 is gone")


def _batch_normalization_of_training(node: ir.Node, names: Names) -> None:
    """Keep that more than one output meant training before opset 14, if nothing reads the others."""
    trains = _trains(node)
    if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        raise _failure(node, "it trains, and its other outputs are read")
    node.resize_outputs(3 if trains else 1)
    if trains:
        node.attributes["training_mode"] = ir.AttrInt64("training_mode", 1)
        for value in node.outputs[1:]:
            value.type, value.shape = node.outputs[0].type, None


def _trains(node: ir.Node) -> bool:
    """Whether a BatchNormalization of opset 7 to 13 trains: it has further outputs, with names."""
    return is_standard(node, "BatchNormalization") and any(value.name for value in node.outputs[1:])


def _upsample_scales(node: ir.Node, names: Names) -> None:
    scales = node.attributes.pop("scales", None)
    if scales is not None:
        _add_input(node, 1, np.array(scales.as_floats(), np.float32), "scales", names)


def _resize(node: ir.Node, names: Names) -> None:
    """Upsample, and Resize of opset 10: coordinates divided by the scale, rounded down, or up to shrink."""
    scales = node.inputs[1]
    node.op_type = "Resize"
    node.resize_inputs(3)
    node.replace_input_with(1, None)
    node.replace_input_with(2, scales)
    mode = node.attributes["mode"].as_string() if "mode" in node.attributes else "nearest"
    node.attributes["mode"] = ir.AttrString("mode", "linear" if mode == "bilinear" else mode)
    node.attributes["coordinate_transformation_mode"] = ir.AttrString(
        "coordinate_transformation_mode", "asymmetric"
    )
    if mode == "nearest":
        factors = constant_of(scales)
        shrinks = factors is not None and bool(np.any(factors < 1))
        if factors is not None and shrinks and np.any(factors > 1):
            raise _failure(node, "axes that grow and axes that shrink were rounded differently")
        node.attributes["nearest_mode"] = ir.AttrString("nearest_mode", "ceil" if shrinks else "floor")


def _scatter(node: ir.Node, names: Names) -> None:
    node.op_type = "ScatterElements"


def _scan(node: ir.Node, names: Names) -> None:
    raise _failure(node, "before opset 9 it had an axis of the batch")


def _softmax(node: ir.Node, names: Names) -> None:
    """Before opset 13 the input is made a matrix at `axis`, and the whole row is one distribution."""
    given = node.attributes.pop("axis", None)
    axis = 1 if given is None else given.as_int()
    source, graph, output = node.inputs[0], node.graph, node.outputs[0]
    assert graph is not None
    assert source is not None
    dims = rank(source)
    if dims is not None and dims > 0 and source.shape is not None:
        after = list(source.shape)[axis % dims + 1 :]
        if all(dim == 1 for dim in after):  # the row is this axis alone
            node.attributes["axis"] = ir.AttrInt64("axis", axis % dims if after else -1)
            return
    node.attributes["axis"] = ir.AttrInt64("axis", -1)
    if axis == -1:
        return
    shape = ir.Node("", "Shape", [source], name=f"{node.name}_shape")
    matrix = ir.Node("", "Flatten", [source], [ir.AttrInt64("axis", axis)], name=f"{node.name}_matrix")
    kind, form = output.type, output.shape
    name = output.name
    node.replace_input_with(0, matrix.outputs[0])
    back = ir.Node("", "Reshape", [output, shape.outputs[0]], name=f"{node.name}_back")
    graph.insert_before(node, [shape, matrix])
    graph.insert_after(node, [back])
    uses = [use for use in output.uses() if use.node is not back]
    result = back.outputs[0]
    for use in uses:
        use.node.replace_input_with(use.idx, result)
    for index, value in enumerate(graph.outputs):
        if value is output:
            graph.outputs[index] = result
    result.name, result.type, result.shape = name, kind, form
    output.name, output.type, output.shape = free_name(f"{name}_matrix", names), kind, None
    shape.outputs[0].name = free_name(f"{node.name}_shape", names)
    matrix.outputs[0].name, matrix.outputs[0].type = free_name(f"{node.name}_matrix", names), kind


CHANGES: Mapping[str, Sequence[tuple[int, Change]]] = {
    "BatchNormalization": ((9, _batch_normalization), (14, _batch_normalization_of_training)),
    "Clip": ((11, _clip),),
    "Dropout": ((10, _dropout_mask), (12, _dropout)),
    "Hardmax": ((13, _softmax),),
    "LogSoftmax": ((13, _softmax),),
    "Pad": ((11, _pad),),
    "ReduceSum": ((13, _ints_to_input("axes", 1)),),
    "Resize": ((11, _resize),),
    "Scan": ((9, _scan),),
    "Scatter": ((11, _scatter),),
    "Slice": ((10, _slice),),
    "Softmax": ((13, _softmax),),
    "Split": ((13, _ints_to_input("split", 1)),),
    "Squeeze": ((13, _ints_to_input("axes", 1)),),
    "TopK": ((10, _top_k),),
    "Unsqueeze": ((13, _ints_to_input("axes", 1)),),
    "Upsample": ((9, _upsample_scales), (13, _resize)),
}
"""Operator to pairs of the first opset with a change and the function that follows it, in ascending order."""
