"""Widths folded into channels change no integer of the results; what cannot be folded is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper
from qprof_onnx.profiles.base.errors import PlanError
from qprof_onnx.profiles.records.profile import ModelId
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.graph import name_of
from qprof_onnx.quantizer.numerics.affine import INT7, INT32, UINT8, QuantParams
from qprof_onnx.quantizer.plan.plan import Adjustments, Kind, NodePlan, QuantPlan
from qprof_onnx.quantizer.plan.store import dumps, loads
from qprof_onnx.quantizer.plugins.layers.layers import matches
from qprof_onnx.quantizer.prepare.shapes import infer_shapes
from qprof_onnx.quantizer.targets.config import QuantConfig

FORMS = ("qdq", "qoperator", "integer", "primitives", "regions")
READ, MADE = QuantParams((2.0**-6,), (37,), UINT8), QuantParams((2.0**-3,), (128,), UINT8)


def convolution(
    window: tuple[int, ...],
    inputs: int,
    outputs: int,
    batch: int | str,
    sizes: tuple[int | str, ...],
    *,
    bias: bool = True,
    **attributes: list[int] | int,
) -> ir.Model:
    """Return one convolution, "conv", between Neg nodes that stay float."""
    rng = np.random.default_rng(3)
    arrays = {"w": rng.integers(-63, 64, (outputs, inputs, *window)) * np.float32(0.01)}
    if bias:
        arrays["b"] = rng.standard_normal(outputs).astype(np.float32)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [batch, inputs, *sizes])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], "before"),
        helper.make_node("Conv", ["a", *arrays], ["c"], "conv", kernel_shape=window, **attributes),
        helper.make_node("Neg", ["c"], ["y"], "after"),
    ]
    constants = [onnx.numpy_helper.from_array(array.astype(np.float32), n) for n, array in arrays.items()]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], constants),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    model = ir.from_proto(proto)
    infer_shapes(model)
    return model


def plan_of(model: ir.Model, form: str = "qdq", **folded: int) -> QuantPlan:
    """Return the plan in which "conv" is quantized, weights in 7 bits: exact on every processor."""
    outputs = model.graph.initializers["w"].shape[0]  # type: ignore[index]
    scales = tuple(2.0 ** -(6 + index % 3) for index in range(int(outputs)))
    tensors = {
        "a": READ,
        "c": MADE,
        "w": QuantParams(scales, (0,) * len(scales), INT7, 0),
        "b": QuantParams(tuple(2.0**-6 * s for s in scales), (0,) * len(scales), INT32, 0),
    }
    nodes = {name: NodePlan(Kind.FLOAT, "not asked for") for name in ("before", "after")}
    nodes |= {"conv": NodePlan(Kind.QUANTIZED)}
    config = QuantConfig(form=form)  # type: ignore[arg-type]
    kept = {
        name: params for name, params in tensors.items() if name != "b" or "b" in model.graph.initializers
    }
    return QuantPlan(ModelId("", "", 17), config, kept, nodes, adjustments=Adjustments(folded_widths=folded))


def results(model: ir.Model, plan: QuantPlan, shape: tuple[int, ...], *, optimised: bool) -> np.ndarray:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    written = ir.to_proto(lower(model, plan).model)
    session = ort.InferenceSession(written.SerializeToString(), options, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(5).uniform(-1.0, 4.0, shape).astype(np.float32)
    return np.asarray(session.run(None, {"x": -x})[0])


SMALL = st.integers(1, 3)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    window=st.tuples(st.sampled_from([1, 2, 3, 5, 11]), st.sampled_from([1, 2, 3, 4, 5, 11])),
    steps=st.tuples(st.integers(1, 2), SMALL, st.integers(1, 2), SMALL),
    pads=st.lists(st.integers(0, 6), min_size=4, max_size=4),
    batch_and_channels=st.tuples(st.integers(1, 2), st.integers(1, 4), st.integers(1, 5)),
    sizes=st.tuples(st.integers(1, 14), st.integers(2, 26)),
    fold=st.integers(1, 8),
)
def test_a_folded_convolution_has_the_same_integers(*, window, steps, pads, batch_and_channels, sizes, fold):  # type: ignore[no-untyped-def]
    strides, dilations, (batch, inputs, outputs) = steps[:2], steps[2:], batch_and_channels
    made = [
        (sizes[axis] + pads[axis] + pads[axis + 2] - dilations[axis] * (window[axis] - 1) - 1)
        // strides[axis]
        + 1
        for axis in (0, 1)
    ]
    assume(made[0] >= 1)
    assume(made[1] >= fold)
    attributes = {"strides": strides, "dilations": dilations, "pads": pads}
    model = convolution(window, inputs, outputs, batch, sizes, bias=fold % 2 == 0, **attributes)
    shape = (batch, inputs, *sizes)
    plain = results(model, plan_of(model), shape, optimised=True)
    folded = results(model, plan_of(model, conv=fold), shape, optimised=True)
    assert folded.shape == plain.shape
    assert np.array_equal(plain, folded)


RANKS = {
    "sequence": ((9,), (50,), [4, 3], [2]),
    "tall": ((9, 1), (50, 1), [4, 0, 4, 0], [2, 1]),
}


@pytest.mark.parametrize("fold", [1, 2, 3])
@pytest.mark.parametrize("name", RANKS)
def test_sequences_are_folded(name: str, fold: int) -> None:
    window, sizes, pads, strides = RANKS[name]
    model = convolution(window, 3, 4, 2, sizes, pads=pads, strides=strides)
    shape = (2, 3, *sizes)
    plain = results(model, plan_of(model), shape, optimised=True)
    assert np.array_equal(plain, results(model, plan_of(model, conv=fold), shape, optimised=True))


@pytest.mark.parametrize("form", FORMS)
def test_the_results_are_the_same_in_every_form(form: str) -> None:
    model = convolution((3, 3), 3, 5, 2, (7, 13), pads=[1, 1, 1, 1], strides=[1, 2])
    plain, folded = (
        results(model, plan, (2, 3, 7, 13), optimised=False)
        for plan in (plan_of(model, form), plan_of(model, form, conv=2))
    )
    assert np.array_equal(plain, folded)


@pytest.mark.parametrize("batch", [1, 3])
def test_the_batch_and_the_height_may_be_free(batch: int) -> None:
    model = convolution((3, 3), 3, 5, "n", ("h", 12), pads=[1, 1, 1, 1])
    shape = (batch, 3, 9, 12)
    plain = results(model, plan_of(model), shape, optimised=True)
    assert np.array_equal(plain, results(model, plan_of(model, conv=4), shape, optimised=True))


def test_the_written_model_has_one_convolution_of_several_columns() -> None:
    model = convolution((3, 3), 3, 5, 1, (8, 12), pads=[1, 1, 1, 1])
    lowered = lower(model, plan_of(model, conv=4))
    (conv,) = [node for node in lowered.model.graph if node.op_type == "Conv"]
    assert conv.outputs[0].shape == (1, 20, 8, 3)
    assert name_of(conv) in lowered.names.nodes["conv"]
    assert lowered.names.nodes.keys() == {"before", "conv", "after"}


def test_onnxruntime_runs_it_with_the_channels_last_and_no_transposes_beside_it(tmp_path: object) -> None:
    model = convolution((3, 3), 4, 4, 1, (8, 12), pads=[1, 1, 1, 1])
    options = ort.SessionOptions()
    options.optimized_model_filepath = f"{tmp_path}/optimised.onnx"
    written = ir.to_proto(lower(model, plan_of(model, conv=4)).model)
    ort.InferenceSession(written.SerializeToString(), options, providers=["CPUExecutionProvider"])
    executed = [node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node]
    at = executed.index("QLinearConv")
    assert executed[at - 1 : at + 2] == ["Reshape", "QLinearConv", "Reshape"]
    assert executed.count("Transpose") == 2


@pytest.mark.parametrize(
    ("changed", "folded", "words"),
    [
        ({}, {"other": 2}, "'other': the model has no such node"),
        ({}, {"after": 2}, "'after': it is not a quantized Conv"),
        ({}, {"conv": 13}, "'conv': its result has 12 columns"),
        ({"sizes": (8, "w")}, {"conv": 2}, "'conv': the width of its input is not known"),
        ({"window": (3, 3, 3), "sizes": (4, 8, 12), "pads": [1] * 6}, {"conv": 2}, "three dimensions"),
    ],
)
def test_what_cannot_be_folded_is_refused(changed: dict, folded: dict[str, int], words: str) -> None:
    made = {"window": (3, 3), "sizes": (8, 12), "pads": [1, 1, 1, 1], **changed}
    model = convolution(inputs=4, outputs=4, batch=1, **made)
    with pytest.raises(PlanError, match=words):
        lower(model, plan_of(model, **folded))


def test_groups_are_refused() -> None:
    model = convolution((3, 3), 4, 4, 1, (8, 12))
    next(node for node in model.graph if node.op_type == "Conv").attributes["group"] = ir.AttrInt64(
        "group", 2
    )
    with pytest.raises(PlanError, match="it has groups"):
        lower(model, plan_of(model, conv=2))


def test_a_plan_file_keeps_them() -> None:
    model = convolution((3, 3), 4, 4, 1, (8, 12))
    plan = plan_of(model, conv=4)
    assert loads(dumps(plan)).adjustments == Adjustments(folded_widths={"conv": 4})
    assert "folded_widths" not in dumps(replace(plan, adjustments=Adjustments()))


def test_layers_are_compared_by_the_tensors_of_the_prepared_model() -> None:
    model = convolution((3, 3), 4, 4, 1, (8, 12), pads=[1, 1, 1, 1])
    written = lower(model, plan_of(model, conv=4)).model
    assert {match.tensor for match in matches(model, written)} >= {"c"}
