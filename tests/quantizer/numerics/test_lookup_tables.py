"""Look-up tables: every code of every curve, and Glow's own tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.base.errors import PlanError
from qprof_onnx.quantizer.numerics.affine import (
    INT8,
    INT16,
    TYPES,
    UINT8,
    QuantParams,
    Rounding,
    dequantize,
    quantize,
)
from qprof_onnx.quantizer.numerics.lookup_tables import build_table
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS, choose_params
from qprof_onnx.quantizer.operators.functions import function_of

from ..conftest import Glow

GLOW = Glow()
FUNCTIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "log": "Log", "exp": "Exp"}
GLOW_RANGES = {"Sigmoid": ((-6.0, 6.0), (0.0, 1.0)), "Tanh": ((-3.0, 3.0), (-1.0, 1.0))}
"""Input and output range of Glow's tables, whatever the profile says."""
Case = dict[str, Any]


def cases() -> list[Case]:
    return [case | {"index": index} for index, case in enumerate(GLOW.cases("lut_generated"))]


def node(op_type: str, inputs: int = 1, **attributes: Any) -> ir.Node:
    return ir.node(op_type, [ir.Value(name=f"x{i}") for i in range(inputs)], attributes, name=op_type.lower())


def table_of(case: Case) -> np.ndarray:
    """Return our table for one of Glow's."""
    source, result = parameters_of(case)
    return build_table(function_of(node(FUNCTIONS[case["function"]]), 13), source, result, Rounding.GLOW)


def parameters_of(case: Case) -> list[QuantParams]:
    """Return those of input and output: chosen for Glow's fixed ranges, or as they are given."""
    qtype = TYPES[case["type"]]
    if "schema" not in case:
        return [GLOW.params(case[key], qtype) for key in ("input", "output")]
    schema = GLOW.schema(case)
    return [choose_params(*span, schema, qtype) for span in GLOW_RANGES[FUNCTIONS[case["function"]]]]


def with_glow_grid(case: Case) -> np.ndarray:
    """Return the table with inputs added up in float32, as in Glow SPEC F.2."""
    source, result = (GLOW.params(case[key], GLOW.qtype(case)) for key in ("input", "output"))
    grid = np.full(1 << source.qtype.bits, np.float32(source.tensor_scale))
    grid[0] *= np.float32(source.qtype.low - source.tensor_zero_point)
    x = np.add.accumulate(grid, dtype=np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        y = function_of(node(FUNCTIONS[case["function"]]), 13)(x)
    return quantize(np.clip(np.nan_to_num(y), -1e38, 1e38), result, Rounding.GLOW)


# The deliberate differences: here the grid of inputs is exact, Glow's drifts as it is added up in float32.
# Case in lut_generated.json: entries of int8 tables that differ, each by 1.
DRIFT = {0: 2, 1: 1, 39: 1}


def test_int8_tables_are_those_of_glow_but_for_its_drift() -> None:
    for case in (c for c in cases() if c["type"] == "int8"):
        difference = np.abs(table_of(case).astype(int) - np.array(case["table"]))
        assert int(np.count_nonzero(difference)) == DRIFT.get(case["index"], 0), case
        assert difference.max() <= 1, case
        assert with_glow_grid(case).tolist() == case["table"], case


@pytest.mark.parametrize(
    "case", [c for c in cases() if c["type"] == "int16"], ids=lambda c: f"case{c['index']}"
)
def test_int16_tables_follow_glow_within_its_drift(case: Case) -> None:
    ours = table_of(case).astype(int)[::257]
    # 3 steps: what 65535 roundings of a float32 sum amount to for these ranges (SPEC F.2 says 2 to 3)
    assert np.abs(ours - np.array(case["table_every_257th"])).max() <= 3
    drifted = with_glow_grid(case).astype(int)[::257]
    # 1 code: glibc's float32 expf and tanhf against float64
    assert np.abs(drifted - np.array(case["table_every_257th"])).max() <= 1


def test_fixed_ranges_give_the_parameters_of_glow() -> None:
    for case in (c for c in cases() if "schema" in c):
        given = [GLOW.params(case[key], GLOW.qtype(case)) for key in ("input", "output")]
        assert parameters_of(case) == given, case


def gelu(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0))))


CURVES: dict[str, tuple[ir.Node, Callable[[np.ndarray], np.ndarray]]] = {
    "Sigmoid": (node("Sigmoid"), lambda x: 1 / (1 + np.exp(-x))),
    "Tanh": (node("Tanh"), np.tanh),
    "Erf": (node("Erf"), np.vectorize(math.erf)),
    "Exp": (node("Exp"), np.exp),
    "Sqrt": (node("Sqrt"), lambda x: np.sqrt(np.maximum(x, 0))),
    "Abs": (node("Abs"), np.abs),
    "Neg": (node("Neg"), np.negative),
    "Softsign": (node("Softsign"), lambda x: x / (1 + np.abs(x))),
    "Softplus": (node("Softplus"), lambda x: np.log1p(np.exp(x))),
    "HardSwish": (node("HardSwish"), lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "HardSigmoid": (node("HardSigmoid", alpha=0.3, beta=0.4), lambda x: np.clip(0.3 * x + 0.4, 0, 1)),
    "LeakyRelu": (node("LeakyRelu", alpha=0.2), lambda x: np.where(x < 0, 0.2 * x, x)),
    "Elu": (node("Elu", alpha=1.5), lambda x: np.where(x < 0, 1.5 * np.expm1(x), x)),
    "Selu": (
        node("Selu", alpha=2.0, gamma=1.5),
        lambda x: 1.5 * np.where(x > 0, x, 2.0 * np.exp(x) - 2.0),
    ),
    "Celu": (node("Celu", alpha=2.0), lambda x: np.maximum(x, 0) + np.minimum(0, 2 * np.expm1(x / 2))),
    "ThresholdedRelu": (node("ThresholdedRelu", alpha=0.7), lambda x: np.where(x > 0.7, x, 0)),
    "Mish": (node("Mish"), lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "Gelu": (node("Gelu"), gelu),
    "Gelu tanh": (
        node("Gelu", approximate="tanh"),
        lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    "Sin": (node("Sin"), np.sin),
}


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("qtype", [UINT8, INT8])
def test_every_entry_is_the_quantized_float_function(name: str, qtype: Any) -> None:
    operator, formula = CURVES[name]
    source = choose_params(-4.0, 5.0, SCHEMAS["asymmetric"], qtype)
    inputs = np.arange(qtype.low, qtype.high + 1)
    x = dequantize(inputs.astype(qtype.numpy_dtype), source).astype(np.float64)
    y = formula(x)
    result = choose_params(float(y.min()), float(y.max()), SCHEMAS["asymmetric"], qtype)
    table = build_table(function_of(operator, 22), source, result)
    assert table.dtype == qtype.numpy_dtype
    # half a step, plus what float32 may add where the value lies on a tie
    error = np.abs(dequantize(table, result).astype(np.float64) - y) / result.tensor_scale
    inside = (table > qtype.low) & (table < qtype.high)
    assert error[inside].max() <= 0.5001
    assert np.abs(table.astype(int) - quantize(y, result).astype(int)).max() <= 1


def test_a_16_bit_table_has_65536_entries() -> None:
    source = choose_params(-4.0, 4.0, SCHEMAS["symmetric"], INT16)
    table = build_table(np.tanh, source, choose_params(-1.0, 1.0, SCHEMAS["symmetric"], INT16))
    assert table.shape == (65536,)
    assert (np.diff(table.astype(int)) >= 0).all()


def test_constant_inputs_of_the_operator_count() -> None:
    slope = ir.Value(name="slope", const_value=ir.tensor(np.array([0.25], np.float32)))
    prelu = ir.node("PRelu", [ir.Value(name="x"), slope], name="prelu")
    assert function_of(prelu, 17)(np.array([-4.0, 4.0])).tolist() == [-1.0, 4.0]


def test_entries_outside_the_domain_continue_the_nearest_one() -> None:
    source = choose_params(-1.0, 1.0, SCHEMAS["symmetric"], INT8)
    result = choose_params(-3.0, 0.0, SCHEMAS["asymmetric"], INT8)
    table = build_table(function_of(node("Log"), 13), source, result)
    assert set(table[:129].tolist()) == {-128}
    assert table[-1] == 127


def test_infinite_values_saturate() -> None:
    source = choose_params(0.0, 1.0, SCHEMAS["asymmetric"], UINT8)
    table = build_table(lambda x: np.where(x > 0.5, np.inf, -np.inf), source, source)
    assert set(table.tolist()) == {0, 255}


def test_a_function_without_values_is_refused() -> None:
    source = choose_params(0.0, 1.0, SCHEMAS["asymmetric"], UINT8)
    with pytest.raises(PlanError, match="not defined for any value"):
        build_table(lambda x: np.full_like(x, np.nan), source, source)


def test_parameters_per_channel_are_refused() -> None:
    single = QuantParams((0.5,), (0,), INT8)
    channels = QuantParams((0.5, 0.25), (0, 0), INT8, axis=0)
    with pytest.raises(PlanError, match="one scale on either side"):
        build_table(np.tanh, channels, single)


def test_an_operator_that_is_not_element_by_element_is_refused() -> None:
    source = choose_params(0.0, 1.0, SCHEMAS["asymmetric"], UINT8)
    reduce = function_of(node("ReduceMax", keepdims=0), 13)
    with pytest.raises(PlanError, match="element by element"):
        build_table(reduce, source, source)


def test_an_operator_that_onnx_does_not_know_is_refused_by_name() -> None:
    strange = ir.node("QuickGelu", [ir.Value(name="x")], domain="com.microsoft", name="act_3")
    with pytest.raises(PlanError, match="node 'act_3': QuickGelu as a look-up table"):
        function_of(strange, 17)


def test_an_input_that_is_no_constant_is_refused_by_name() -> None:
    with pytest.raises(PlanError, match="node 'pow': Pow as a look-up table: input 'x1' is not a constant"):
        function_of(node("Pow", inputs=2), 17)
