"""Which rows of an output count: padding says nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from qprof_onnx.quantizer.evaluation.output_rows import counted_rows

RNG = np.random.default_rng(7)
LENGTHS = (3, 5, 8)
KEPT = np.arange(8)[None] < np.array(LENGTHS)[:, None]


def rows(shape: tuple[int, ...] = (3, 8, 4)) -> npt.NDArray[np.float64]:
    return RNG.normal(size=shape)


def letters() -> npt.NDArray[np.int64]:
    """Return numbers of letters, each unlike its neighbours, 0 behind the end."""
    return np.where(KEPT, 1 + np.arange(24).reshape(3, 8), 0)


def kept(outputs: npt.NDArray[Any], *inputs: npt.NDArray[Any], axis: int = 2) -> npt.NDArray[np.bool_]:
    """Return which rows count of one sample; all where nothing was left out."""
    found = counted_rows([outputs], axis, [{str(place): values for place, values in enumerate(inputs)}])
    shape = np.moveaxis(outputs, axis, -1).shape[:2]
    return np.ones(shape, np.bool_) if found is None else found[0]


def test_what_stands_behind_the_end_of_letters_does_not_count() -> None:
    assert (kept(rows(), letters()) == KEPT).all()


def test_columns_may_come_before_the_positions() -> None:
    assert (kept(rows((3, 4, 8)), letters(), axis=1) == KEPT).all()


def test_a_mask_and_segments_say_the_same_as_letters() -> None:
    mask, segments = KEPT.astype(np.int64), np.zeros((3, 8), np.int64)
    assert (kept(rows(), letters(), mask, segments) == KEPT).all()
    assert (kept(rows(), mask) == KEPT).all()


def test_numbers_of_positions_go_on_behind_the_end() -> None:
    assert (kept(rows(), letters(), np.tile(np.arange(8), (3, 1))) == KEPT).all()


def test_features_that_are_filled_up_with_a_constant_are_padding() -> None:
    features = np.where(KEPT[..., None], rows((3, 8, 5)), -4.0)
    assert (kept(rows(), features) == KEPT).all()
    assert (kept(rows(), np.swapaxes(features, 1, 2)) == KEPT).all()


def test_without_inputs_equal_rows_at_the_end_are_padding() -> None:
    outputs = np.where(KEPT[..., None], rows(), [1.0, 0.0, 0.0, 0.0])
    found = counted_rows([outputs], 2, None)
    assert found is not None
    assert (found[0] == KEPT).all()


def test_a_position_that_is_the_same_in_all_sequences_does_not_count() -> None:
    outputs = rows()
    outputs[:, 0] = outputs[0, 0]
    assert kept(outputs, 1 + np.arange(24).reshape(3, 8)).sum(axis=0).tolist() == [0, *[3] * 7]


def test_where_nothing_is_padding_all_rows_count() -> None:
    assert counted_rows([rows()], 2, [{"x": 1 + np.arange(24).reshape(3, 8)}]) is None
    assert counted_rows([rows()], 2, [{"picture": rows((3, 1, 8, 8))}]) is None
    assert counted_rows([rows((3, 8))], 1, None) is None
