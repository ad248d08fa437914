"""The function that the readers of a tensor compute together, and ranges chosen by the error behind it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from qprof_onnx.quantizer.noise.activation_ranges import evaluated, find_following
from qprof_onnx.quantizer.numerics.affine import UINT8, UnaryFunction, dequantize, quantize
from qprof_onnx.quantizer.numerics.calibrators import calibrate
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS, choose_params
from qprof_onnx.quantizer.plan.plan import Kind

from ..networks import WIDE, Network, network

Array = npt.NDArray[Any]
X = np.linspace(-8.0, 8.0, 101)
SILU = X / (1.0 + np.exp(-X))


def net(body: str) -> Network:
    return network(f"c = Conv (x, w) {body}", {"w": WIDE})


def behind(made: Network) -> UnaryFunction | None:
    following = find_following(made.graph, "c")
    return None if following is None else evaluated(following, made.profile["c"], 17)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a = LeakyRelu <alpha: float = 0.1> (c) y = Conv (a, w)", np.where(X < 0, 0.1 * X, X)),
        ("s = Sigmoid (c) a = Mul (c, s) y = Conv (a, w)", SILU),
        ("s = Sigmoid (c) a = Mul (s, c) u = Relu (a) v = Abs (a) y = Add (u, v)", SILU),
        ("s = HardSigmoid (c) a = Mul (c, s) y = Conv (a, w)", X * np.clip(0.2 * X + 0.5, 0.0, 1.0)),
        (
            "k = Constant <value_float: float = 1.0> () s = Erf (c) t = Add (k, s) a = Mul (c, t) "
            "h = Constant <value_float: float = 0.5> () b = Mul (h, a) y = Conv (b, w)",
            None,  # before it is halved, it is steeper than HardSwish
        ),
    ],
    ids=["leaky", "silu", "two-readers-behind", "hard-swish", "doubled-gelu"],
)
def test_the_function_ends_where_nothing_leads_around_it(body: str, expected: Array | None) -> None:
    found = behind(net(body))
    if expected is None:
        assert found is None
    else:
        assert found is not None
        np.testing.assert_allclose(found(X), expected, rtol=1e-6, atol=1e-7)  # constants are float32


@pytest.mark.parametrize(
    "body",
    [
        "y = Conv (c, w)",
        "a = Relu (c) y = Conv (a, w)",
        "s = Sigmoid (c) d = Conv <pads: ints = [1, 1, 1, 1]> (c, w) y = Add (s, d)",
        "a = Exp (c) y = Conv (a, w)",
        "a = Add (c, c) y = Conv (a, w)",
    ],
    ids=["linear", "only-a-clip", "read-by-others", "steep", "not-bent"],
)
def test_other_readers_are_no_function_to_look_behind(body: str) -> None:
    assert behind(net(body)) is None


def test_a_result_is_needed_as_it_is() -> None:
    made = network("y = Conv (x, w)", {"w": WIDE})
    assert find_following(made.graph, "y") is None


def error(x: Array, low: float, high: float) -> float:
    params = choose_params(low, high, SCHEMAS["asymmetric"], UINT8)

    def silu(v: Array) -> Array:
        return v / (1.0 + np.exp(-v))

    return float(
        np.mean(np.square(silu(dequantize(quantize(x, params), params).astype(np.float64)) - silu(x)))
    )


def test_codes_are_not_spent_where_the_function_is_flat() -> None:
    made = net("s = Sigmoid (c) a = Mul (c, s) y = Conv (a, w)")
    curve = behind(made)
    plain = calibrate(made.profile["c"], "mse", SCHEMAS["asymmetric"], UINT8)
    aimed = calibrate(made.profile["c"], "mse", SCHEMAS["asymmetric"], UINT8, curve)
    assert aimed.low > 0.6 * plain.low  # values reach -30, where x * sigmoid(x) has long been 0
    values = np.concatenate(
        [np.repeat(m, n) for m, n in zip(_middles(made), made.profile["c"].histogram.counts, strict=True)]
    ).astype(np.float32)
    # Half as much: a third of the range is cut, and a step counts in the square.
    assert error(values, aimed.low, aimed.high) < 0.6 * error(values, plain.low, plain.high)


def _middles(made: Network) -> Array:
    edges = made.profile["c"].histogram.edges()
    return (edges[:-1] + edges[1:]) / 2.0


@pytest.mark.parametrize("calibrator", ["minmax", "percentile", "kl"])
def test_other_calibrators_do_not_look_behind(calibrator: str) -> None:
    made = net("s = Sigmoid (c) a = Mul (c, s) y = Conv (a, w)")
    curve = behind(made)
    for_both = [
        calibrate(made.profile["c"], calibrator, SCHEMAS["asymmetric"], UINT8, look) for look in (None, curve)
    ]
    assert for_both[0] == for_both[1]


def test_what_is_cut_is_no_noise_to_the_budget() -> None:
    """Else the nodes would be sent back to float for errors that nothing behind them sees."""
    made = net("s = Sigmoid (c) a = Mul (c, s) y = Conv (a, w)")
    plan = made.plan()
    assert [entry.kind for entry in plan.nodes.values()].count(Kind.FLOAT) == 0
    low = plan.tensors["c"].tensor_scale * (0 - plan.tensors["c"].tensor_zero_point)
    assert low > 0.6 * made.profile["c"].minimum
