"""Tensors inside If, Loop and Scan: each array that a body makes is counted, once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort
import pytest
from qprof_onnx.profiles.instrumentation.observations import observations
from qprof_onnx.profiles.instrumentation.subgraphs import hidden_tensors
from qprof_onnx.profiles.instrumentation.tensor_outputs import with_outputs
from qprof_onnx.profiles.records.profile import ModelId, Profile
from qprof_onnx.profiles.records.store import dumps
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.prepare.prepare import prepare

ID = ModelId("structure", "weights", 14)

BRANCHES = """net (float[N] x, bool c) => (float[N] y) {
    y = If (c) <then_branch = yes () => (float[N] p) { d = Add(x, x)  p = Neg(d) },
                else_branch = no () => (float[N] q) { q = Exp(x) }>
}"""

DOUBLING = """net (float[N] x, int64 n) => (float[N] y) <bool go = {1}> {
    y = Loop (n, go) <body = twice (int64 i, bool k, float[N] s) => (bool l, float[N] t) {
        l = Identity(k)  t = Add(s, s) }>
}""".replace("(n, go)", "(n, go, x)")

GROWING = """net (float[N] x, int64 n) => (float[M] y) <bool go = {1}> {
    y = Loop (n, go, x) <body = longer (int64 i, bool k, float[M] s) => (bool l, float[L] t) {
        l = Identity(k)  h = Neg(x)  t = Concat<axis = 0>(s, h) }>
}"""

FILLING = """net (float[N] x, int64 n) => (float[M] y) <bool go = {1}> {
    none = SequenceEmpty ()
    all = Loop (n, go, none) <body = more (int64 i, bool k, seq(float[N]) s) => (bool l, seq(float[N]) t) {
        l = Identity(k)  e = Add(x, x)  t = SequenceInsert(s, e) }>
    y = ConcatFromSequence <axis = 0> (all)
}"""

IF_IN_LOOP = """net (float[N] x, int64 n) => (float[N] y) <bool go = {1}, int64 two = {2}, int64 zero = {0}> {
    y = Loop (n, go, x) <body = step (int64 i, bool k, float[N] s) => (bool l, float[N] t) {
        l = Identity(k)  r = Mod(i, two)  even = Equal(r, zero)
        t = If (even) <then_branch = yes () => (float[N] p) { p = Neg(s) },
                       else_branch = no () => (float[N] q) { q = Add(s, s) }> }>
}"""

LOOP_IN_IF = """net (float[N] x, bool c) => (float[N] y) <bool go = {1}, int64 n = {3}> {
    y = If (c) <then_branch = yes () => (float[N] p) {
                    p = Loop (n, go, x) <body = twice (int64 i, bool k, float[N] s) => (bool l, float[N] t) {
                        l = Identity(k)  t = Add(s, s) }> },
                else_branch = no () => (float[N] q) { q = Exp(x) }>
}"""

LOOP_IN_LOOP = """net (float[N] x, int64 n) => (float[N] y) <bool go = {1}> {
    y = Loop (n, go, x) <body = outer (int64 i, bool k, float[N] s) => (bool l, float[N] t) {
        l = Identity(k)
        t = Loop (i, k, s) <body = inner (int64 j, bool m, float[N] u) => (bool o, float[N] v) {
            o = Identity(m)  v = Add(u, u) }> }>
}"""

RUNNING_SUM = """net (float[T, 2] x) => (float[2] y, float[T, 2] all) <float[2] start = {0, 0}> {
    y, all = Scan <num_scan_inputs = 1, scan_output_directions = [1], body = add (float[2] s, float[2] e)
        => (float[2] t, float[2] d) { t = Add(s, e)  d = Add(t, t) }> (start, x)
}"""

SCAN_IN_LOOP = """net (float[T, 2] x, int64 n) => (float[2] y) <bool go = {1}, float[2] start = {0, 0}> {
    y = Loop (n, go, start) <body = again (int64 i, bool k, float[2] a) => (bool l, float[2] b) {
        l = Identity(k)
        b = Scan <num_scan_inputs = 1, body = add (float[2] s, float[2] e) => (float[2] t) {
            t = Add(s, e) }> (a, x) }>
}"""

SCAN_IN_SCAN = """net (float[T, U, 2] x) => (float[2] y) <float[2] start = {0, 0}> {
    y = Scan <num_scan_inputs = 1, body = outer (float[2] a, float[U, 2] row) => (float[2] b) {
        b = Scan <num_scan_inputs = 1, body = add (float[2] s, float[2] e) => (float[2] t) {
            t = Add(s, e) }> (a, row) }> (start, x)
}"""

LOOP_IN_SCAN = """net (float[T, 2] x) => (float[2] y)
<float[2] start = {0, 0}, bool go = {1}, int64 n = {3}> {
    y = Scan <num_scan_inputs = 1, body = add (float[2] s, float[2] e) => (float[2] t) {
        u = Add(s, e)
        t = Loop (n, go, u) <body = twice (int64 i, bool k, float[2] v) => (bool l, float[2] w) {
            l = Identity(k)  w = Add(v, v) }> }> (start, x)
}"""

X = np.array([1.0, -3.0], np.float32)


def model_of(text: str, opset: int = 17, prepared: bool = True) -> ir.Model:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]>\n{text}')
    onnx.checker.check_model(proto)
    if prepared:
        return prepare(ir.from_proto(proto)).model
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def feeds(*given: dict[str, Any]) -> list[Sample]:
    return [Sample(str(i), {k: np.asarray(v) for k, v in feed.items()}) for i, feed in enumerate(given)]


def profiled(
    text: str, *given: dict[str, Any], opset: int = 17, prepared: bool = True, **how: Any
) -> Profile:
    settings = RunSettings(**{"channels": "off", **how})
    return calibrate(model_of(text, opset, prepared), feeds(*given), ID, settings)


def seen(profile: Profile, name: str) -> tuple[int, float, float]:
    return profile[name].count, profile[name].minimum, profile[name].maximum


def test_a_branch_is_profiled_when_it_is_taken() -> None:
    profile = profiled(BRANCHES, {"x": X, "c": True}, {"x": 2 * X, "c": True}, {"x": X[:1], "c": False})
    assert seen(profile, "d") == (4, -12.0, 4.0)
    assert seen(profile, "p") == (4, -4.0, 12.0)
    assert profile["q"].count == 1


def test_a_branch_that_is_never_taken_has_its_shape_and_no_elements() -> None:
    profile = profiled(BRANCHES, {"x": X, "c": True})
    assert seen(profile, "q") == (0, 0.0, 0.0)
    assert profile["q"].shape == (None,)


def test_every_iteration_of_a_loop_is_profiled() -> None:
    profile = profiled(DOUBLING, {"x": X, "n": 3}, {"x": X, "n": 0})
    assert seen(profile, "s") == (6, -12.0, 4.0)
    assert seen(profile, "t") == (6, -24.0, 8.0)


def test_a_sequence_that_a_loop_fills_is_no_tensor_and_what_is_put_in_is_profiled() -> None:
    """PyTorch's exporter writes an EmbeddingBag as such a loop."""
    profile = profiled(FILLING, {"x": X, "n": 3})
    assert seen(profile, "e") == (6, -6.0, 2.0)
    assert not {"s", "t"} & set(profile)


def test_shapes_may_differ_from_one_iteration_to_the_next() -> None:
    profile = profiled(GROWING, {"x": X, "n": 3})
    assert profile["s"].count == 2 + 4 + 6
    assert profile["t"].count == 4 + 6 + 8


@pytest.mark.parametrize(
    ("text", "feed", "found"),
    [
        (IF_IN_LOOP, {"x": X, "n": 4}, {"p": (4, -6.0, 3.0), "q": (4, -12.0, 6.0), "s": (8, -6.0, 6.0)}),
        (LOOP_IN_IF, {"x": X, "c": True}, {"s": (6, -12.0, 4.0), "t": (6, -24.0, 8.0), "q": (0, 0.0, 0.0)}),
        (LOOP_IN_IF, {"x": X, "c": False}, {"s": (0, 0.0, 0.0), "p": (0, 0.0, 0.0)}),
        (LOOP_IN_LOOP, {"x": X, "n": 3}, {"s": (6, -6.0, 2.0), "u": (6, -12.0, 4.0), "v": (6, -24.0, 8.0)}),
    ],
)
def test_bodies_in_bodies_are_profiled(text: str, feed: dict[str, Any], found: dict[str, Any]) -> None:
    profile = profiled(text, feed)
    assert {name: seen(profile, name) for name in found} == found


def test_every_step_of_a_scan_is_profiled_whatever_its_direction() -> None:
    rows = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    profile = profiled(RUNNING_SUM, {"x": rows})
    assert seen(profile, "s") == (6, 0.0, 6.0)
    assert seen(profile, "e") == (6, 1.0, 6.0)
    assert seen(profile, "t") == (6, 1.0, 12.0)
    assert seen(profile, "d") == (6, 2.0, 24.0)
    assert profile["d"].shape == (2,)


def test_a_scan_in_a_loop_is_profiled() -> None:
    profile = profiled(SCAN_IN_LOOP, {"x": np.ones((3, 2), np.float32), "n": 2})
    assert seen(profile, "t") == (12, 1.0, 6.0)
    assert seen(profile, "a") == (4, 0.0, 3.0)


def test_a_scan_in_a_scan_is_profiled() -> None:
    profile = profiled(SCAN_IN_SCAN, {"x": np.ones((3, 4, 2), np.float32)})
    assert seen(profile, "t") == (24, 1.0, 12.0)
    assert seen(profile, "row") == (24, 1.0, 1.0)


def test_a_loop_in_a_scan_cannot_be_shown_and_says_so() -> None:
    model = model_of(LOOP_IN_SCAN)
    reason = "it is in Loop in Scan: the outputs of a Scan are arrays of one shape"
    assert hidden_tensors(model) == {"v": reason, "w": reason}
    profile = calibrate(model, feeds({"x": np.ones((3, 2), np.float32)}), ID)
    assert {"v", "w"}.isdisjoint(profile)
    assert profile["u"].count == 6


def test_what_may_change_its_shape_in_a_scan_cannot_be_shown_and_says_so() -> None:
    text = RUNNING_SUM.replace(
        "d = Add(t, t)",
        "big = Greater(t, e)  few = Compress(t, big)  n = ReduceSum <keepdims = 0>(few)  d = Add(t, n)",
    )
    assert hidden_tensors(model_of(text)) == {
        "few": "it is in a Scan, whose outputs are arrays of one shape, and its shape is unknown"
    }


def test_equal_names_in_two_bodies_are_refused_until_the_model_is_prepared() -> None:
    text = BRANCHES.replace("(float[N] q) { q", "(float[N] p) { p")
    found = hidden_tensors(model_of(text, prepared=False))
    assert found["p"] == "other tensors have the same name; prepare the model first"


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_floating_point_types_are_profiled(dtype: Any) -> None:
    name = {np.float16: "float16", np.float64: "double"}[dtype]
    profile = profiled(DOUBLING.replace("float[", f"{name}["), {"x": X.astype(dtype), "n": 2}, prepared=False)
    assert profile["t"].dtype == name
    assert seen(profile, "t") == (4, -12.0, 4.0)


def test_bfloat16_is_profiled() -> None:
    import ml_dtypes

    text = """net (bfloat16[2] x, int64 n) => (bfloat16[2] y) <bool go = {1}> {
        y = Loop (n, go, x) <body = same (int64 i, bool k, bfloat16[2] s) => (bool l, bfloat16[2] t) {
            l = Identity(k)  t = Identity(s) }>
    }"""
    profile = profiled(text, {"x": X.astype(ml_dtypes.bfloat16), "n": 2}, prepared=False)
    assert profile["t"].dtype == "bfloat16"
    assert seen(profile, "t") == (4, -3.0, 1.0)


def test_opset_13_has_no_identity_of_sequences_and_is_profiled_all_the_same() -> None:
    assert seen(profiled(BRANCHES, {"x": X, "c": True}, opset=13), "d") == (2, -6.0, 2.0)


ALL = (
    *((BRANCHES, {"x": X, "c": c}) for c in (True, False)),
    *((text, {"x": X, "n": np.array(3)}) for text in (DOUBLING, GROWING, IF_IN_LOOP, LOOP_IN_LOOP)),
    *((LOOP_IN_IF, {"x": X, "c": c}) for c in (True, False)),
    *((text, {"x": np.ones((3, 2), np.float32)}) for text in (RUNNING_SUM, LOOP_IN_SCAN)),
)


@pytest.mark.parametrize(("text", "feed"), ALL)
def test_the_outputs_of_the_model_stay_as_they_were(text: str, feed: dict[str, Any]) -> None:
    model = model_of(text)
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    copy, _ = with_outputs(model, observations(model))
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
    feed = {name: np.asarray(array) for name, array in feed.items()}
    names = [str(value.name) for value in model.graph.outputs]
    results: list[Sequence[Any]] = []
    for one in (model, copy):
        session = ort.InferenceSession(
            ir.to_proto(one).SerializeToString(), providers=["CPUExecutionProvider"]
        )
        results.append(session.run(names, feed))
    for wanted, got in zip(*results, strict=True):
        assert wanted.tobytes() == got.tobytes()


def test_shards_that_took_different_branches_merge_to_the_whole() -> None:
    given = [{"x": X, "c": True}, {"x": 2 * X, "c": False}, {"x": X, "c": False}]
    shards = [profiled(BRANCHES, feed) for feed in given]
    whole = dumps(profiled(BRANCHES, *given))
    assert dumps(reduce(Profile.merged, shards)) == whole
    assert dumps(reduce(Profile.merged, shards[::-1])) == whole


def test_some_tensors_of_bodies_can_be_chosen() -> None:
    assert list(profiled(DOUBLING, {"x": X, "n": 3}, tensors=["t"])) == ["t"]
