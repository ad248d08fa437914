"""Why nodes stay float: codes with figures, and one place that makes sentences of them."""

from __future__ import annotations

import pytest
from qprof_onnx.quantizer.plan.reasons import (
    FloatReason,
    ReasonCode,
    because,
    detail_names,
    figure_names,
    summary,
)


def example(code: ReasonCode, figure: float = 12.5, name: str = "a") -> FloatReason:
    figures = figure_names(code)
    return because(code, **{key: figure if key in figures else name for key in detail_names(code)})


def test_every_code_has_a_sentence_with_its_details_for_one_node_and_for_several() -> None:
    for code in ReasonCode:
        words = str(example(code, name="tensor_7"))
        assert words, code
        assert "{" not in words
        assert ("tensor_7" in words) == bool(set(detail_names(code)) - figure_names(code))
        several = summary([example(code, 12.5, "a"), example(code, 30.0, "b")])
        assert several, code
        assert "{" not in several


def test_a_reason_with_details_of_another_code_is_refused() -> None:
    with pytest.raises(ValueError, match="needs"):
        because(ReasonCode.NO_KERNEL, operator="Sin")


def test_equal_reasons_are_told_as_one() -> None:
    reason = because(ReasonCode.NO_KERNEL, target="qnn", operator="Sin")
    assert summary([reason, reason]) == "qnn has no int8 kernel for Sin"


def test_figures_of_several_nodes_are_told_with_their_range() -> None:
    some = [
        because(ReasonCode.NOISE_BUDGET, output="y", sqnr=sqnr, total_sqnr=2.0, limit=18.0)
        for sqnr in (9.5, 3.25, 7.0)
    ]
    assert (
        "an SQNR of 3.2 to 9.5 dB, and that of all quantized nodes 2.0 dB, below the limit of 18 dB"
        in summary(some)
    )


def test_names_of_several_nodes_are_told_once_each_up_to_three() -> None:
    some = [because(ReasonCode.UNSUPPORTED_OPERATOR, operator=op) for op in ("A", "B", "A", "C", "D")]
    assert summary(some) == "operator A, B, C and 1 more is not supported for int8"


def test_infinite_figures_become_ones_that_a_file_can_hold() -> None:
    reason = because(ReasonCode.BELOW_SQNR_LIMIT, tensor="x", type="uint8", sqnr=-float("inf"), limit=20.0)
    assert reason.details["sqnr"] == -999.0
