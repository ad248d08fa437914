"""Rows put together to the batches of a model."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import DataError
from qprof_onnx.profiles.samples.batches import fixed_batch, in_batches, of_one_row
from qprof_onnx.profiles.samples.values import InputSpec, Sample, Samples


def spec(*shape: int | str | None) -> InputSpec:
    return InputSpec("x", np.dtype(np.float32), shape)


def rows(count: int, *, known: bool = True) -> Samples:
    def iterate(part: slice) -> Iterator[Sample]:
        every = (Sample(str(n), {"x": np.full((1, 2), n, np.float32)}) for n in range(count))
        return islice(every, part.start, part.stop, part.step)

    return Samples("data", count if known else None, iterate)


def firsts(samples: Samples) -> list[list[float]]:
    return [sample.arrays["x"][:, 0].tolist() for sample in samples]


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [([(4, 2)], 4), ([("N", 2)], 1), ([(4, 2), (4,)], 4), ([(4, 2), (1, 2)], 1), ([()], 1), ([(1, 2)], 1)],
)
def test_the_batch_is_the_leading_dimension_of_all_inputs(shapes: list[tuple[int]], expected: int) -> None:
    assert fixed_batch([spec(*shape) for shape in shapes]) == expected


def test_the_inputs_of_one_row_have_a_leading_1() -> None:
    assert [s.shape for s in of_one_row([spec(4, 2), spec(4, 3)])] == [(1, 2), (1, 3)]
    assert of_one_row([spec("N", 2)]) == (spec("N", 2),)


@pytest.mark.parametrize("known", [True, False])
def test_rows_are_stacked_and_the_rest_is_left_out(known: bool) -> None:
    samples = in_batches(rows(7, known=known), [spec(3, 2)])
    assert firsts(samples) == [[0, 1, 2], [3, 4, 5]]
    assert samples.total == (2 if known else None)


def test_a_batch_is_named_after_its_first_and_last_row() -> None:
    assert [sample.name for sample in in_batches(rows(4), [spec(2, 2)])] == ["0 to 1", "2 to 3"]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("part", [(1, None, 1), (0, 2, 1), (0, None, 2), (1, None, 2)])
def test_a_part_of_the_batches_is_that_of_all(known: bool, part: tuple[int, int | None, int]) -> None:
    samples = in_batches(rows(8, known=known), [spec(2, 2)])
    assert firsts(samples.part(*part)) == firsts(samples)[slice(*part)]


@pytest.mark.parametrize("known", [True, False])
def test_fewer_rows_than_a_batch_are_refused(known: bool) -> None:
    with pytest.raises(DataError, match="has 2 rows, but the model expects 3 at a time; give at least 3"):
        list(in_batches(rows(2, known=known), [spec(3, 2)]))


def test_a_model_with_a_free_batch_takes_rows_as_they_are() -> None:
    samples = rows(3)
    assert in_batches(samples, [spec("N", 2)]) is samples
