"""What an output is, told from the operators that make it, its shape and its profile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.records.profile import OutputMeaning, Profile
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.api.profiling import settings_for
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.noise.output_kinds import NOT_PROFILED, has_places, output_meanings
from qprof_onnx.quantizer.noise.propagation import NoiseGains
from qprof_onnx.quantizer.operators.graph import Graph, index
from qprof_onnx.quantizer.prepare.prepare import prepare

Array = npt.NDArray[np.float32]

PICTURE, SOUND, WORDS, BATCH = (1, 3, 16, 16), (1, 8, 64), (1, 12, 32), (1, 32)


@dataclass(frozen=True)
class Net:
    """A network and its profile."""

    graph: Graph
    profile: Profile


def net(
    body: str,
    *inputs: tuple[str, tuple[int, ...]],
    outputs: str = "y",
    scale: float = 1.0,
    given: dict[str, Array] | None = None,
    samples: int = 1,
) -> Net:
    """Return a network; `w1_2_3` in its body is a random weight of shape (1, 2, 3), `a1` the axis 1.

    Args:
        body, outputs: in ONNX's text.
        inputs: names and shapes.
        scale: of random weights.
        given: other constants, by name.
        samples: random ones that it is profiled on.
    """
    rng = np.random.default_rng(2)
    read = ", ".join(f"float[{','.join(map(str, shape))}] {name}" for name, shape in inputs)
    made = ", ".join(f"float[] {name}" for name in outputs.split())
    head = '<ir_version: 8, opset_import: ["": 17]>'
    proto = onnx.parser.parse_model(f"{head} g ({read}) => ({made}) {{ {body} }}")
    names = {name for node in proto.graph.node for name in node.input}
    for name in sorted(n for n in names if n[0] in "wa" and n[1:2].isdigit()):
        shape = tuple(map(int, name[1:].split("_")))
        drawn = rng.standard_normal(shape).astype(np.float32) * scale / prod(shape[1:]) ** 0.5
        array = drawn if name[0] == "w" else np.array(shape, np.int64)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    for name, array in (given or {}).items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    model = prepare(ir.serde.deserialize_model(proto)).model
    fed = [
        Sample(str(number), {name: rng.standard_normal(shape).astype(np.float32) for name, shape in inputs})
        for number in range(samples)
    ]
    graph = index(model)
    settings = replace(settings_for(graph, RunSettings()), tensors="all")
    return Net(graph, calibrate(model, fed, model_id(model, "net.onnx"), settings))


def kinds(found: Net) -> list[str]:
    return [one.kind for one in output_meanings(found.graph, found.profile).values()]


def reason(found: Net) -> str:
    return output_meanings(found.graph, found.profile)["y"].reason


SAME = "pads: ints = [1, 1, 1, 1]"


@pytest.mark.parametrize("last", ["Softmax (m)", "Sigmoid (m)", "LogSoftmax (m)", "HardSigmoid (m)"])
def test_probabilities_are_a_decision(last: str) -> None:
    assert kinds(net(f"m = MatMul (x, w32_10) y = {last}", ("x", BATCH))) == ["decision"]


@pytest.mark.parametrize(
    ("output", "node", "expected"),
    [
        ("int64[1, 4]", "ArgMax (x)", "integers"),
        ("bool[1, 4]", "Greater (x, x)", "a condition"),
        ("string[1, 4]", "StringNormalizer (t)", "strings"),
        ("seq(float[1, 4])", "SequenceConstruct (x)", "no tensor"),
    ],
)
def test_a_decision_without_floats_says_which_values_it_has(output: str, node: str, expected: str) -> None:
    read = "float[1, 4] x, string[1, 4] t"
    text = f'<ir_version: 8, opset_import: ["": 17]> g ({read}) => ({output} y) {{ y = {node} }}'
    graph = index(ir.serde.deserialize_model(onnx.parser.parse_model(text)))
    assert output_meanings(graph, NOT_PROFILED)["y"] == OutputMeaning("decision", expected)


def test_a_softmax_that_is_moved_afterwards_is_a_decision() -> None:
    body = "m = MatMul (x, w32_10) s = Softmax (m) y = Transpose <perm = [1, 0]> (s)"
    assert kinds(net(body, ("x", BATCH))) == ["decision"]


def test_a_map_of_probabilities_that_are_near_0_or_1_is_a_decision() -> None:
    body = f"c = Conv <{SAME}> (x, w1_3_3_3) y = Sigmoid (c)"
    assert kinds(net(body, ("x", PICTURE), scale=20.0)) == ["decision"]


def test_a_map_of_a_sigmoid_whose_values_lie_between_is_a_picture() -> None:
    body = f"c = Conv <{SAME}> (x, w3_3_3_3) y = Sigmoid (c)"
    assert kinds(net(body, ("x", PICTURE))) == ["signal"]


def test_logits_of_classes_are_a_decision_and_numbers_of_a_regression_are_values() -> None:
    """Nothing but the data tells them apart: classes vary alike, and are chosen by turns."""
    units = np.array([1.0, 1e3, 1e-3, 1.0], np.float32)
    offsets = np.array([0.0, 0.0, 0.0, 300.0], np.float32)
    logits = net("y = MatMul (x, w32_4)", ("x", BATCH), samples=8)
    unlike = net("m = MatMul (x, w32_4) y = Mul (m, u)", ("x", BATCH), samples=8, given={"u": units})
    one = net("m = MatMul (x, w32_4) y = Add (m, o)", ("x", BATCH), samples=8, given={"o": offsets})
    assert [kinds(found) for found in (logits, unlike, one)] == [["decision"], ["values"], ["values"]]
    assert "taken for logits of classes" in reason(logits)
    assert reason(unlike) == "no rule applies"


def test_actions_of_a_policy_are_values() -> None:
    body = "m = MatMul (x, w32_4) t = Tanh (m) y = Mul (t, w1_4)"
    assert kinds(net(body, ("x", BATCH), samples=8)) == ["values"]


@pytest.mark.parametrize(
    "last",
    [
        "y = Mul (p, q)",
        "d = Mul (p, q) e = Mul (d, p) y = Transpose <perm = [0, 2, 1]> (e)",
        "d = Mul (p, q) y = Sqrt (d)",
        "d = Mul (p, q) y = Pow (d, half)",
        "d = Pow (p, three) y = Mul (d, q)",
        "y = Max (p, q)",
        "d = Sub (one, p) y = Mul (d, q)",
        "d = Mul (p, one) y = Mul (d, q)",
        "d = Squeeze (p, a0) r = ReduceMean <axes = [0]> (d) y = Unsqueeze (r, a0)",
        "v = ReduceSum <keepdims = 0> (x) b = Greater (v, one) d = If (b) <then_branch = t () => (s) "
        "{ s = Identity (q) }, else_branch = e () => (u) { u = Sqrt (p) }> y = ReduceMean <axes = [1]> (d)",
    ],
)
def test_products_roots_complements_means_and_branches_of_probabilities_are_probabilities(last: str) -> None:
    body = f"m = MatMul (x, w32_4) n = MatMul (x, w32_4) p = Sigmoid (m) q = Softmax (n) {last}"
    given = {n: np.full(1, v, np.float32) for n, v in (("one", 1.0), ("half", 0.5), ("three", 3.0))}
    assert kinds(net(body, ("x", WORDS), given=given)) == ["decision"]


@pytest.mark.parametrize(
    "last",
    ["y = Mul (p, n)", "y = Mul (p, w1_4)", "y = Add (p, n)", "y = Sub (two, p)", "y = Pow (p, minus)"],
)
def test_a_gate_or_a_scaled_probability_is_none(last: str) -> None:
    body = f"m = MatMul (x, w32_4) n = MatMul (x, w32_4) p = Sigmoid (m) {last}"
    given = {"two": np.full(1, 2.0, np.float32), "minus": np.full(1, -1.0, np.float32)}
    assert kinds(net(body, ("x", WORDS), given=given)) == ["values"]


def test_scores_that_are_products_stand_beside_boxes() -> None:
    body = (
        "y = MatMul (x, w32_4) m = MatMul (x, w32_2) n = MatMul (x, w32_1) "
        "p = Sigmoid (m) q = Sigmoid (n) z = Mul (p, q)"
    )
    found = net(body, ("x", WORDS), outputs="y z")
    assert kinds(found) == ["detections", "detections"]
    assert output_meanings(found.graph, found.profile)["z"].reason == "product of Sigmoid and Sigmoid"


def test_sums_of_logarithms_of_probabilities_are_a_decision() -> None:
    body = "m = MatMul (x, w32_12) a = LogSoftmax <axis = 1> (m) b = LogSoftmax <axis = 2> (m) y = Add (a, b)"
    assert kinds(net(body, ("x", WORDS))) == ["decision"]


@pytest.mark.parametrize("shape", [(1, 40, 32), (40, 1, 32), (1, 1, 32)])
def test_columns_of_a_matrix_product_are_no_places_in_whichever_order_the_axes_are(
    shape: tuple[int, int, int],
) -> None:
    found = net("y = MatMul (x, w32_300)", ("x", shape))
    assert kinds(found) == ["values"]
    assert has_places(found.graph, found.profile, "y") == (40 in shape)


@pytest.mark.parametrize(
    "body",
    [
        f"y = Conv <{SAME}> (x, w3_3_3_3)",
        f"c = Conv <{SAME}> (x, w3_3_3_3) y = Clip (c)",
        f"c = Conv <{SAME}> (x, w12_3_3_3) y = DepthToSpace <blocksize = 2> (c)",
        f"c = Conv <{SAME}> (x, w1_3_3_3) y = Squeeze (c, a1)",
    ],
)
def test_pictures_and_maps_of_depth_are_signals(body: str) -> None:
    assert kinds(net(body, ("x", PICTURE))) == ["signal"]


@pytest.mark.parametrize("last", ["y = Tanh (c)", "s = Squeeze (c, a1) y = Tanh (s)"])
def test_sound_is_a_signal(last: str) -> None:
    body = f"c = ConvTranspose <kernel_shape: ints = [8], strides: ints = [8]> (x, w8_1_8) {last}"
    assert kinds(net(body, ("x", SOUND))) == ["signal"]


def test_a_spectrum_made_of_a_spectrum_is_a_signal() -> None:
    body = "y = Conv <pads: ints = [1, 1]> (x, w8_8_3)"
    assert kinds(net(body, ("x", SOUND))) == ["signal"]


@pytest.mark.parametrize(
    "body",
    [
        "h = MatMul (x, w32_16) y = ReduceMean <axes = [1], keepdims = 0> (h)",
        "h = MatMul (x, w32_16) m = ReduceMean <axes = [1], keepdims = 0> (h) "
        "n = ReduceL2 <axes = [1], keepdims = 1> (m) c = Clip (n) y = Div (m, c)",
        "h = MatMul (x, w32_16) y = LpNormalization <axis = 2> (h)",
    ],
)
def test_vectors_that_are_means_or_normalised_are_embeddings(body: str) -> None:
    assert kinds(net(body, ("x", WORDS))) == ["embedding"]


def test_scores_beside_boxes_in_one_tensor_are_detections() -> None:
    body = "b = MatMul (x, w32_4) m = MatMul (x, w32_2) s = Sigmoid (m) y = Concat <axis = 2> (b, s)"
    assert kinds(net(body, ("x", WORDS))) == ["detections"]


@pytest.mark.parametrize("boxes", ["Identity (b)", "Transpose <perm = [0, 2, 1]> (b)"])
@pytest.mark.parametrize("scores", ["Identity (s)", "Transpose <perm = [0, 2, 1]> (s)"])
@pytest.mark.parametrize("classes", ["Sigmoid (n)", "Softmax (n)"])
def test_boxes_stand_beside_scores_in_whichever_order_the_axes_are(
    boxes: str, scores: str, classes: str
) -> None:
    """The boxes alone have the shape of a signal: 300 places of four channels."""
    body = (
        "b = MatMul (x, w32_4) m = MatMul (x, w32_1) n = MatMul (x, w32_5) p = Sigmoid (m) "
        f"q = {classes} s = Mul (p, q) y = {boxes} z = {scores}"
    )
    found = net(body, ("x", (1, 300, 32)), outputs="y z")
    assert kinds(found) == ["detections", "detections"]


@pytest.mark.parametrize("order", ["[0, 1, 2, 3]", "[0, 2, 3, 1]"])
def test_boxes_at_the_places_of_a_map_stand_beside_its_scores_in_either_order_of_the_axes(order: str) -> None:
    body = (
        f"b = Conv <{SAME}> (x, w4_3_3_3) c = Conv <{SAME}> (x, w5_3_3_3) s = Sigmoid (c) "
        f"y = Transpose <perm = {order}> (b) z = Transpose <perm = {order}> (s)"
    )
    assert kinds(net(body, ("x", PICTURE), outputs="y z")) == ["detections", "detections"]


@pytest.mark.parametrize("order", ["[0, 1, 2]", "[0, 2, 1]"])
def test_four_quantities_beside_a_decision_are_no_boxes_in_either_order_of_the_axes(order: str) -> None:
    units = np.array([1.0, 1e-2, 1e-4, 1e4], np.float32)
    body = (
        "b = MatMul (x, w32_4) v = Mul (b, u) m = MatMul (x, w32_1) z = Sigmoid (m) "
        f"y = Transpose <perm = {order}> (v)"
    )
    found = net(body, ("x", WORDS), outputs="y z", given={"u": units})
    assert kinds(found) == ["values", "decision"]


@pytest.mark.parametrize(
    ("made", "shape"),
    [
        (f"Conv <{SAME}> (x, w3_3_3_3)", PICTURE),
        (f"Conv <{SAME}> (x, w4_4_3_3)", (1, 4, 16, 16)),
        ("Conv <pads: ints = [1, 1]> (x, w1_1_3)", (1, 1, 300)),
    ],
    ids=["three colours", "four colours", "sound"],
)
def test_a_picture_or_a_sound_beside_a_decision_at_each_place_stays_a_signal(
    made: str, shape: tuple[int, ...]
) -> None:
    given = {"far": np.full(1, 20.0, np.float32)}
    body = f"y = {made} d = Mul (x, far) z = Sigmoid (d)"
    assert kinds(net(body, ("x", shape), outputs="y z", given=given)) == ["signal", "decision"]


def test_small_maps_of_many_channels_are_no_signal() -> None:
    assert kinds(net("y = Conv (x, w512_3_15_15)", ("x", PICTURE))) == ["values"]


def test_a_cache_is_a_state() -> None:
    body = "k = MatMul (x, w32_8) z = Concat <axis = 1> (p, k) m = ReduceMean (z) y = Add (x, m)"
    found = net(body, ("x", WORDS), ("p", (1, 5, 8)), outputs="y z")
    assert kinds(found)[1] == "state"


def test_what_was_fed_back_while_profiling_is_a_state() -> None:
    found = net("y = MatMul (x, w32_4) z = MatMul (x, w32_8)", ("x", BATCH), ("s", (1, 2, 4)), outputs="y z")
    assert "state" not in kinds(found)
    given = {**found.profile.inputs, "s": replace(found.profile.inputs["s"], fed_by="z")}
    profile = replace(found.profile, inputs=given)
    assert kinds(Net(found.graph, profile)) == ["decision", "state"]
    for judged, known in ((("y", "z"), found.profile), (("y",), profile)):
        assert NoiseGains(found.graph, known, 17).judged_tensors() == judged


def test_what_has_the_shape_of_a_further_input_is_a_state() -> None:
    body = "h = Add (x, s) z = Tanh (h) y = MatMul (z, w32_4)"
    assert kinds(net(body, ("x", BATCH), ("s", BATCH), outputs="y z")) == ["decision", "state"]


def test_a_map_of_peaks_on_a_flat_ground_is_no_picture() -> None:
    peaks = f"c = Conv <{SAME}> (x, w1_3_3_3) d = Mul (c, c) y = Mul (d, d)"
    assert kinds(net(f"c = Conv <{SAME}> (x, w1_3_3_3) y = Abs (c)", ("x", PICTURE))) == ["signal"]
    assert kinds(net(peaks, ("x", PICTURE))) == ["values"]
