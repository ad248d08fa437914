"""Values that become steps inside a network, and what leads to them."""

from __future__ import annotations

import math

import pytest
from qprof_onnx.quantizer.noise.output_limits import noise_limits
from qprof_onnx.quantizer.noise.steps import before_steps, find_steps
from qprof_onnx.quantizer.targets.config import QuantConfig

from .test_output_kinds import BATCH, WORDS, net

THEN = "y = MatMul (t, w32_4)"


def steps(body: str, shape: tuple[int, ...] = BATCH) -> list[tuple[str, str]]:
    return [(step.tensor, step.operator) for step in find_steps(net(body, ("x", shape)).graph)]


@pytest.mark.parametrize("operator", ["Ceil", "Floor", "Round"])
def test_values_that_are_rounded_before_a_product_become_steps(operator: str) -> None:
    assert steps(f"m = MatMul (x, w32_32) t = {operator} (m) {THEN}") == [("m", operator)]


def test_values_that_are_rounded_at_the_end_are_a_decision_of_the_output() -> None:
    assert steps("m = MatMul (x, w32_32) y = Ceil (m)") == []


def test_an_arg_max_inside_makes_steps_and_one_at_the_end_does_not() -> None:
    inside = "m = MatMul (x, w32_32) i = ArgMax <axis = 1> (m) t = Gather (w32_32, i) u = Squeeze (t, a1)"
    assert steps(f"{inside} y = MatMul (u, w32_4)") == [("m", "ArgMax")]
    assert steps("m = MatMul (x, w32_32) i = ArgMax <axis = 1> (m) y = Cast <to = 1> (i)") == []


def test_a_duration_that_decides_how_long_an_output_is_makes_a_step() -> None:
    body = (
        "m = MatMul (x, w32_1) r = Ceil (m) s = ReduceSum <keepdims = 0> (r) i = Cast <to = 7> (s) "
        "n = Abs (i) u = Unsqueeze (n, a0) y = Tile (x1, v)"
    )
    body = body.replace("y = Tile (x1, v)", "o = Concat <axis = 0> (u, a1) y = Tile (x, o)")
    assert ("m", "Ceil") in steps(body)


def test_a_mask_that_comes_of_an_input_alone_makes_no_step() -> None:
    assert steps(f"g = Greater (x, w1) t = Where (g, x, w1) {THEN}") == []


def test_a_written_out_leaky_relu_makes_no_step() -> None:
    body = f"m = MatMul (x, w32_32) g = Greater (m, w1) h = Mul (m, w1) t = Where (g, m, h) {THEN}"
    assert steps(body) == []


def test_a_fraction_that_goes_on_beside_its_whole_number_makes_no_step() -> None:
    body = f"m = MatMul (x, w32_32) f = Floor (m) d = Sub (m, f) t = Add (f, d) {THEN}"
    assert steps(body) == []


def test_what_leads_to_a_step_goes_back_to_the_last_weights() -> None:
    body = f"a = MatMul (x, w32_32) b = Tanh (a) c = MatMul (b, w32_32) d = Exp (c) t = Ceil (d) {THEN}"
    found = net(body, ("x", BATCH))
    leading = before_steps(found.graph, find_steps(found.graph))
    assert sorted(n.op_type for n in found.graph.nodes if n.name in leading) == ["Exp", "MatMul"]


def test_noise_before_rounding_is_held_against_the_width_of_a_step() -> None:
    body = f"m = MatMul (x, w32_32) t = Ceil (m) {THEN}"
    found = net(body, ("x", BATCH), scale=10.0)
    limits = noise_limits(found.graph, found.profile, QuantConfig())
    power = limits.allowed("m") ** -1 / 1600.0
    assert limits.compared == ("m",)
    assert 20.0 < power < 500.0  # of values with a deviation of 10, of which noise may be a 400th


def test_what_is_chosen_from_candidates_bears_noise() -> None:
    body = "m = MatMul (x, w32_32) v, i = TopK <axis = 2> (m, a4) y = MatMul (v, w4_4)"
    found = net(body, ("x", WORDS))
    limits = noise_limits(found.graph, found.profile, QuantConfig())
    assert [step.operator for step in limits.steps] == ["TopK"]
    assert limits.compared == ()
    assert math.isfinite(limits.allowed("y"))
