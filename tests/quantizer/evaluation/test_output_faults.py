"""What is broken in an output whatever its decibels."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.base.conversion import OutputKind
from qprof_onnx.quantizer.evaluation.output_shift import Measure, OutputShift, output_shifts
from qprof_onnx.quantizer.noise.output_limits import NoiseLimits
from qprof_onnx.quantizer.operators.graph import index

Arrays = list[npt.NDArray[Any]]


def shifts(
    floats: Arrays, quantized: Arrays, kind: OutputKind, shape: str = "N, M"
) -> tuple[OutputShift, ...]:
    """Return how far the output of a model is from float, whose declared shape is given."""
    body = f"g (float[{shape}] x) => (float[{shape}] y) {{ y = Relu (x) }}"
    text = f'<ir_version: 8, opset_import: ["": 17]> {body}'
    graph = index(ir.from_proto(onnx.parser.parse_model(text)))
    limits = NoiseLimits(graph, cast("Any", {}), {"y": kind, "z": "state"}, 20.0, ())
    return output_shifts([{"y": f} for f in floats], [{"y": q} for q in quantized], limits)


def fault(floats: Arrays, quantized: Arrays, kind: OutputKind = "values", shape: str = "N, M") -> str:
    found = shifts(floats, quantized, kind, shape)
    assert all(one.excess == math.inf for one in found if one.fault)
    return found[0].fault if found else ""


def rows(*shape: int, seed: int = 1) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).uniform(0.0, 1.0, shape).astype(np.float32)


def test_a_value_that_is_not_finite_where_the_float_model_has_a_number_is_a_fault() -> None:
    x, q = rows(8, 3), rows(8, 3)
    q[3, 1] = np.nan
    assert fault([x], [q]) == "1 of 24 values are not finite"
    q[3, 1] = np.inf
    assert fault([x], [q], "signal") == "1 of 24 values are not finite"


def test_what_is_not_finite_in_both_models_is_none() -> None:
    x = np.log(rows(8, 3))
    x[:, 2] = -np.inf
    found = shifts([x], [x - 0.01], "values")
    assert [one.fault for one in found] == [""]
    assert math.isfinite(found[0].value)


def test_an_output_of_another_shape_than_the_model_declares_is_a_fault() -> None:
    x = rows(8, 3)
    assert fault([x], [x[:, :2]], shape="N, 3") == "has shape [8, 2], but the float model's has [8, 3]"
    assert fault([x], [x[None]]) == "has shape [1, 8, 3], but the float model's has [8, 3]"


def test_an_output_that_is_as_long_as_its_values_say_may_have_another_length() -> None:
    assert fault([rows(8, 5), rows(8, 5)], [rows(8, 4), rows(8, 5)]) == ""
    assert fault([rows(8, 5)], [rows(8, 0)]) == "is empty, but the float model's is not"


def test_an_output_that_is_constant_is_dead() -> None:
    x = rows(1, 40)
    assert fault([x, x + 1.0], [x * 0, x * 0]) == "all 80 values are 0, but the float model's vary"


@pytest.mark.parametrize("axis", [1, 2])
def test_scores_of_0_beside_boxes_in_pixels_are_dead_columns(axis: int) -> None:
    boxes, scores = 600.0 * rows(1, 20, 4), np.array(rows(1, 20, 3, seed=2))
    x = np.swapaxes(np.concatenate([boxes, scores], axis=2), axis, 2)
    q = np.swapaxes(np.concatenate([boxes, 0.0 * scores], axis=2), axis, 2)
    assert f"3 of 7 along axis {axis}; the first is 4" in fault([x], [q], "detections", "1, A, B")


def test_a_score_that_never_rises_may_be_0() -> None:
    x = rows(20, 3)
    x[:, 2] *= 0.03
    q = x.copy()
    q[:, 2] = 0.0
    assert fault([x], [q], "decision") == ""


def test_a_quantity_that_varies_by_less_than_8_bits_tell_may_be_constant() -> None:
    x = rows(20, 3) * np.array([255.0, 255.0, 1.0], np.float32)
    q = x.copy()
    q[:, 2] = 0.0
    assert fault([x], [q]) == ""
    x[:, 2] *= 20.0
    assert "1 of 3 along axis 1; the first is 2" in fault([x], [q])


def test_few_values_that_are_equal_are_chance() -> None:
    assert fault([rows(2, 2)], [np.full((2, 2), 0.5, np.float32)]) == ""


def test_an_index_that_is_always_the_same_is_dead() -> None:
    x = np.arange(8)[:, None] % 3
    found = shifts([x], [0 * x], "decision")
    assert [one.measure for one in found] == [Measure.FAULT]
    assert shifts([x], [(x + 1) % 3], "decision") == ()


def test_a_state_that_is_not_finite_is_a_fault_though_it_has_no_figure() -> None:
    limits = NoiseLimits(cast("Any", None), cast("Any", {}), {"y": "values", "h": "state"}, 20.0, ())
    (_, found) = output_shifts(
        [{"y": rows(8, 2), "h": rows(8, 2)}], [{"y": rows(8, 2), "h": rows(8, 2) * np.nan}], limits
    )
    assert found.output == "h"
    assert found.excess == math.inf
