"""Operators that pass quantized values through, those that put values of their own beside them too.

The inputs are negative, so that the integer 0 stands for the lowest value and not for zero.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator
from qprof_onnx.quantizer.operators.table import RULES, Constraint
from qprof_onnx.quantizer.targets.forms import FORMS

from ..lowered import Lowering, feed_of, parse, plan_of

CROP = 'mode = "nearest", coordinate_transformation_mode = "tf_crop_and_resize"'
NODES: dict[str, tuple[str, ...]] = {
    "MaxPool": ("MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (b)",),
    "GlobalMaxPool": ("GlobalMaxPool (b)",),
    "ReduceMax": ("ReduceMax <axes = [2]> (b)",),
    "ReduceMin": ("ReduceMin <axes = [2]> (b)",),
    "Reshape": ("Reshape (b, long)",),
    "Flatten": ("Flatten (b)",),
    "Squeeze": ("Squeeze (b, first)",),
    "Unsqueeze": ("Unsqueeze (b, first)",),
    "Transpose": ("Transpose <perm = [0, 2, 3, 1]> (b)",),
    "Expand": ("Expand (b, shape)",),
    "Tile": ("Tile (b, shape)",),
    "Gather": ("Gather <axis = 1> (b, last)",),
    "Slice": ("Slice (b, first, last, last)",),
    "Split": ("Split <axis = 1> (b)",),
    "GatherElements": ("GatherElements <axis = 3> (b, places)",),
    "GatherND": ("GatherND (b, first)",),
    "DepthToSpace": ("DepthToSpace <blocksize = 2> (b)",),
    "SpaceToDepth": ("SpaceToDepth <blocksize = 2> (b)",),
    "Compress": ("Compress <axis = 1> (b, chosen)",),
    "ReverseSequence": ("ReverseSequence <batch_axis = 0, time_axis = 1> (b, lengths)",),
    "TopK": ("TopK <axis = 1> (b, last)",),
    "Resize": (
        'Resize <mode = "nearest"> (b, , scales)',
        f"Resize <{CROP}> (b, roi, scales)",
        f"Resize <{CROP}, extrapolation_value = -0.5> (b, roi, scales)",
    ),
    "Pad": (
        "Pad (b, pads)",
        "Pad (b, pads, zero)",
        "Pad (b, pads, half)",
        'Pad <mode = "edge"> (b, pads)',
        'Pad <mode = "reflect"> (b, pads, half)',
    ),
}
"""A node of each operator, and of those that fill every variant."""

CONSTANTS = """<int64[2] long = {1, 64},
int64[1] first = {0}, int64[1] last = {1}, int64[4] shape = {2, 1, 1, 1},
int64[1,4,4,1] places = {0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1}, bool[4] chosen = {1,0,1,1}, int64[1] lengths = {3},
float[4] scales = {1.0, 1.0, 2.0, 2.0}, float[8] roi = {0.0, 0.0, -0.5, -0.5, 1.0, 1.0, 1.5, 1.5},
int64[8] pads = {0, 0, 1, 0, 0, 0, 1, 2}, float zero = {0.0}, float half = {-0.5}>"""


def _text(node: str) -> str:
    rank = {"Unsqueeze": 5, "Reshape": 2, "Flatten": 2, "Squeeze": 3, "GatherND": 3}
    dims = ",".join("ABCDEF"[: rank.get(node.split(maxsplit=1)[0], 4)])
    outputs = {"Split": ["y", "z"], "TopK": ["y", "i"]}.get(node.split(maxsplit=1)[0], ["y"])
    return f"""net (float[1,4,4,4] x) => (float[{dims}] y) {CONSTANTS}
{{ a = Abs (x) b = Neg (a) {", ".join(outputs)} = {node} }}"""


def test_every_operator_that_passes_values_through_has_a_node_here() -> None:
    assert set(NODES) == {rule.op_type for rule in RULES.values() if rule.constraint is Constraint.SAME}


def test_what_an_operator_that_passes_values_through_fills_with_can_be_quantized() -> None:
    filling = [rule for rule in RULES.values() if rule.constraint is Constraint.SAME and rule.fill]
    assert all(rule.fill and not rule.fill.is_zero for rule in filling)


FILLING = [node for operator in ("Resize", "Pad") for node in NODES[operator]]
OTHERS = [node for nodes in NODES.values() for node in nodes if node not in FILLING]


@pytest.mark.parametrize(
    ("node", "form"),
    [*((node, form) for node in FILLING for form in FORMS), *((node, "qoperator") for node in OTHERS)],
)
def test_a_node_that_passes_values_through_is_within_a_step_of_float(
    node: str, form: str, lowered: Lowering
) -> None:
    text, opset = _text(node), 13
    how = {"floats": ["abs_0", "neg_1"], "kinds": {f"{node.split(maxsplit=1)[0].lower()}_2": "pass-through"}}
    model = parse(text, opset)
    (expected,) = ReferenceEvaluator(ir.to_proto(model)).run(None, feed_of(model))
    step = plan_of(model, **how).tensors["b"].tensor_scale  # type: ignore[arg-type]
    runs = lowered(text, opset=opset, form=form, **how)
    for optimized in (False, True):
        (found, *_) = runs.onnxruntime(optimized=optimized)
        assert np.abs(found - expected).max() <= 0.51 * step
