import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.quantizer.metrics.intervals import (
    drop_interval,
    paired_interval,
    student95,
)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 200))
def test_the_interval_of_whole_rows_is_that_of_two_proportions(only_float, only_quantized, same) -> None:
    differences = np.array([100.0] * only_float + [-100.0] * only_quantized + [0.0] * same)
    low, high = paired_interval(only_float, only_quantized, differences.size)
    # 1e-9: two ways to add the same float64 numbers
    assert drop_interval(differences) == pytest.approx((100 * low, 100 * high), abs=1e-9)


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (7, 2.365), (30, 2.042)]
)
def test_students_quantile_is_that_of_the_tables(freedom, quantile) -> None:
    # 2 %: the expansion is cut off; it is worst at 3 degrees
    assert student95(freedom) == pytest.approx(quantile, rel=0.02)


def test_scores_that_differ_little_have_a_narrow_interval_even_when_they_are_few() -> None:
    low, high = drop_interval(np.array([1.0, 1.2, 1.1, 1.3]))
    assert 0.9 < low < 1.15 < high < 1.4
    assert drop_interval(np.array([1.0])) == (-100.0, 100.0)
