"""The laws of prepare, over the models that come with the onnx package."""

import warnings
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import onnxruntime.capi.onnxruntime_pybind11_state as runtime
import pytest
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator
from onnx.version_converter import convert_version
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.prepare.opset import OLDEST
from qprof_onnx.quantizer.prepare.prepare import improve, prepare

DATA = Path(onnx.__file__).parent / "backend/test/data"
STORED = [path for path in sorted(DATA.glob("*/*/model.onnx")) if "strnorm" not in path.parent.name]
STORED = [path for path in STORED if "multiparam" not in path.parent.name]
"""Without the tests of strings, which need a locale of the machine, and of slopes that onnx's converter
aligns otherwise."""

SAMPLE = 7
"""Every how many of the operator tests are swept here: the sample stays under ten seconds."""


def serialized(model):
    return ir.to_proto(model).SerializeToString(deterministic=True)


def session(proto):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def interface(proto):
    constants = {tensor.name for tensor in proto.graph.initializer}
    return (
        [value.name for value in proto.graph.input if value.name not in constants],
        [value.name for value in proto.graph.output],
    )


def check_laws(proto):
    """Prepare the model and return it, after checking everything but its outputs."""
    model = ir.from_proto(proto)
    before = serialized(model)
    first = prepare(model)
    second = prepare(first.model)
    assert serialized(model) == before, "the argument changed"
    assert serialized(prepare(model).model) == serialized(first.model), "not deterministic"
    assert serialized(second.model) == serialized(first.model), "not idempotent"
    assert model_id(first.model, "a") == model_id(second.model, "b")
    after = ir.to_proto(first.model)
    assert interface(after) == interface(proto)
    onnx.checker.check_model(after)
    return after


def loaded(path):
    """Return a stored model, most of which have opset 6, in the oldest opset that is read."""
    proto = onnx.load(path)
    return convert_version(proto, OLDEST) if proto.opset_import[0].version < OLDEST else proto


def stored_arrays(folder, kind):
    arrays = []
    for number in range(len(list(folder.glob(f"{kind}_*.pb")))):
        tensor = onnx.load_tensor(folder / f"{kind}_{number}.pb")
        arrays.append(onnx.numpy_helper.to_array(tensor))
    return arrays


@pytest.mark.parametrize("path", STORED[::3], ids=lambda path: path.parent.name)
def test_models_exported_at_old_opsets_keep_their_outputs(path):
    proto = loaded(path)
    after = check_laws(proto)
    samples = path.parent / "test_data_set_0"
    feeds = dict(zip(interface(proto)[0], stored_arrays(samples, "input"), strict=True))
    outputs = session(after).run(None, feeds)
    for mine, expected in zip(outputs, stored_arrays(samples, "output"), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-3, atol=1e-5)  # stored by another framework


def node_cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the collection computes overflows and 0/0 on purpose
        cases = [case for case in collect_testcases(None) if case.model is not None and case.data_sets]
    plain = {"test_scan_sum", "test_training_dropout"}  # opset 8; random
    drawn = ("Random", "Multinomial", "Bernoulli", "ImageDecoder")
    return [
        case
        for case in cases
        if case.name not in plain and not any(n.op_type.startswith(drawn) for n in case.model.graph.node)
    ]


def with_constant_inputs(proto, arrays, keep):
    """Return the model with all inputs but the first `keep` made constants and its outputs passed on."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for value, array in list(zip(proto.graph.input, arrays, strict=True))[keep:]:
        copy.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
        copy.graph.input.remove(next(v for v in copy.graph.input if v.name == value.name))
    for value in copy.graph.output:
        inner = value.name
        value.name = f"{inner}_out"
        copy.graph.node.append(onnx.helper.make_node("Identity", [inner], [value.name]))
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("keep", [1, 0])
def test_operators_on_constants_give_what_they_gave(keep):
    """Fold the operator tests of the standard, most of whose inputs are made constants."""
    checked = 0
    for case in node_cases()[keep::SAMPLE]:
        inputs, expected = case.data_sets[0]
        if not all(isinstance(a, np.ndarray) and a.dtype.kind in "fiub" for a in (*inputs, *expected)):
            continue
        if len(inputs) != len(case.model.graph.input):
            continue
        proto = with_constant_inputs(case.model, inputs, keep)
        after = check_laws(proto)
        feeds = dict(zip(interface(after)[0], inputs, strict=False))
        try:
            original = session(proto).run(None, feeds)
        except (runtime.NotImplemented, runtime.Fail, runtime.InvalidGraph, runtime.RuntimeException):
            continue  # this onnxruntime does not have it
        outputs = session(after).run(None, feeds)
        checked += 1
        half = any(a.dtype == np.float16 for a in (*inputs, *expected))
        for mine, theirs in zip(outputs, original, strict=True):
            # float32 functions of another library, and one step of float16
            rtol = 2e-3 if half else 1e-5
            np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=rtol / 10, err_msg=case.name)
    assert checked > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", ["light_shufflenet", "light_squeezenet", "light_inception_v2"])
def test_the_zoo_keeps_its_outputs_with_random_weights(name):
    """The stored weights are all equal: give each its own numbers, so that a mistake shows."""
    proto = onnx.load(DATA / "light" / f"{name}.onnx")
    rng = np.random.default_rng(0)
    shapes = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}
    kept = []
    for node in proto.graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = shapes[node.input[0]].tolist()
        spread = (2 / np.prod(shape[1:])) ** 0.5 if len(shape) > 1 else 0.2
        array = rng.normal(0 if len(shape) > 1 else 1, spread, shape).astype(np.float32)
        proto.graph.initializer.append(
            onnx.numpy_helper.from_array(np.abs(array) if len(shape) == 1 else array, node.output[0])
        )
    del proto.graph.node[:]
    proto.graph.node.extend(kept)
    proto.ir_version = 8
    after = check_laws(proto)
    assert not {"BatchNormalization", "Sum", "Dropout"} & {node.op_type for node in after.graph.node}
    dims = [
        dim.dim_value
        for dim in next(
            v for v in proto.graph.input if len(v.type.tensor_type.shape.dim) == 4 and v.name not in shapes
        ).type.tensor_type.shape.dim
    ]
    feed = {interface(proto)[0][0]: rng.normal(0, 1, dims).astype(np.float32)}
    (mine,), (theirs,) = session(after).run(None, feed), session(proto).run(None, feed)
    assert np.ptp(theirs) > 1e-4  # not all classes equal
    np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-6)  # some fifty layers of float32


def test_the_reference_evaluator_agrees_on_a_prepared_model():
    path = next(path for path in STORED if path.parent.name == "test_Conv2d_depthwise_padded")
    after = check_laws(loaded(path))
    (x,) = stored_arrays(path.parent / "test_data_set_0", "input")[:1]
    (mine,) = ReferenceEvaluator(after).run(None, {interface(after)[0][0]: x})
    (expected,) = stored_arrays(path.parent / "test_data_set_0", "output")
    np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)  # another order of additions


def test_a_step_runs_again_only_after_a_change():
    model, runs, changes = ir.Model(ir.Graph([], [], nodes=[]), ir_version=8), [], [1, 0]

    def first(_):
        runs.append("first")
        return changes.pop(0)

    def second(_):
        runs.append("second")
        return 0

    assert improve(model, [first, second], [], set()) == {first}
    assert runs == ["first", "second", "first"]
