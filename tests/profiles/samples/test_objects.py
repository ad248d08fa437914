"""Samples from objects of Python: what may be given, what is copied, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import DataError
from qprof_onnx.profiles.samples.objects import Transformed
from qprof_onnx.profiles.samples.samples import open_samples
from qprof_onnx.profiles.samples.values import InputSpec, Samples
from qprof_onnx.quantizer.api.sources import samples_of

X = InputSpec("x", np.dtype(np.float32), ("N", 3))
MASK = InputSpec("mask", np.dtype(np.int64), ("N", None))
ROWS = np.arange(12, dtype=np.float32).reshape(4, 1, 3)


class Tensor:
    """What a framework's tensor shows of itself to numpy."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values, np.float32)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.values


class Capsule:
    """A tensor that can be read through DLPack alone."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values, np.float32)

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.values.__dlpack_device__()


class OnTheGpu:
    """A tensor that refuses to be read."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


class Loader:
    """A data loader: iterated anew for each epoch, with a length, giving [images, labels]."""

    def __init__(self, tensor: Callable[[Any], Any]) -> None:
        self.tensor = tensor

    def __len__(self) -> int:
        return len(ROWS)

    def __iter__(self) -> Iterator[Any]:
        return ([self.tensor(row), 7] for row in ROWS)


class DataSet:
    """A data set with a length and items, and no end that an iterator would find."""

    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, index: int) -> Any:
        return ROWS[index % 4], 7


class Stream:
    """A loader of a stream: its length raises."""

    def __len__(self) -> int:
        raise TypeError("object of type 'IterableDataset' has no len()")

    def __iter__(self) -> Iterator[Any]:
        return iter(ROWS)


class Reader:
    """A CalibrationDataReader as onnxruntime's, which gives each sample once."""

    def __init__(self) -> None:
        self.left = iter(ROWS)

    def get_next(self) -> Any:
        row = next(self.left, None)
        return None if row is None else {"x": row}


def generator() -> Iterator[Any]:
    yield from ROWS


def arrays(samples: Samples) -> list[Any]:
    return [sample.arrays["x"] for sample in samples]


def refusal(data: Any, *specs: InputSpec) -> str:
    with pytest.raises(DataError) as caught:
        list(open_samples(data, specs or (X,)))
    return str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        [{"x": row} for row in ROWS],
        list(ROWS),
        ROWS,
        [(row, 7) for row in ROWS],
        list(ROWS[:, 0]),  # without a batch axis
        [({"x": row}, 7) for row in ROWS],
        Loader(Tensor),
        Loader(Capsule),
        Loader(np.asarray),
        DataSet(),
        Stream(),
        generator,
        lambda: Loader(Tensor),
        Reader,
        Transformed([{"picture": row} for row in ROWS], lambda item: {"x": item["picture"]}),
        Transformed(generator, lambda item: item),
    ],
    ids=lambda data: type(data).__name__,
)
def test_every_kind_of_object_gives_the_same_samples_twice(data: Any) -> None:
    samples = open_samples(data, (X,))
    for _ in range(2):
        np.testing.assert_array_equal(arrays(samples), ROWS)
    assert [sample.name for sample in samples] == [f"data[{number}]" for number in range(4)]


def test_a_generator_is_read_once() -> None:
    samples = open_samples(generator(), (X,))
    np.testing.assert_array_equal(arrays(samples), ROWS)
    with pytest.raises(
        DataError, match="has to be read a second time, and an iterator can be read only once"
    ):
        arrays(samples)


@pytest.mark.parametrize("data", [Reader(), generator(), iter([(row, 7) for row in ROWS])])
def test_what_gives_its_items_once_is_kept_for_a_call_that_reads_it_again(data: Any) -> None:
    kept = samples_of(data, None)
    np.testing.assert_array_equal(arrays(open_samples(kept, (X,), 2)), ROWS[:2])
    for _ in range(2):
        np.testing.assert_array_equal(arrays(open_samples(kept, (X,))), ROWS)


def test_the_transform_of_what_gives_its_items_once_is_called_once_for_each() -> None:
    called: list[Any] = []
    kept = samples_of(generator(), lambda row: called.append(row) or {"x": row})
    for _ in range(2):
        np.testing.assert_array_equal(arrays(open_samples(kept, (X,))), ROWS)
    assert len(called) == len(ROWS)


def test_texts_of_what_gives_its_items_once_are_kept_too() -> None:
    kept = samples_of(iter([{"x": np.array([["word"]], object)}]), None)
    for _ in range(2):
        (found,) = arrays(open_samples(kept, (InputSpec("x", np.dtype(object), ("N", 1)),)))
        assert found.tolist() == [["word"]]


def test_a_generator_that_was_read_before_is_told_from_no_data() -> None:
    used = generator()
    list(used)
    assert "was already read" in refusal(used)
    assert arrays(open_samples([], (X,))) == []


def test_a_limit_asks_a_generator_for_no_more() -> None:
    used = generator()
    assert len(arrays(open_samples(used, (X,), limit=1))) == 1
    assert len(list(used)) == 3


def test_a_limit_draws_from_what_has_numbers_and_reads_only_these() -> None:
    read: list[int] = []

    class Pictures:
        def __len__(self) -> int:
            return 1000

        def __getitem__(self, index: int) -> int:
            read.append(index)
            return index

    whole = Transformed(Pictures(), lambda index: np.full((1, 3), index, np.float32))
    samples = list(open_samples(whole, (X,), limit=4))
    assert [sample.arrays["x"][0, 0] for sample in samples] == read
    assert [at // 250 for at in read] == [0, 1, 2, 3]
    assert [(sample.position, sample.step) for sample in samples] == [(at, None) for at in read]


def test_the_total_is_known_where_there_is_a_length() -> None:
    assert [open_samples(data, (X,)).total for data in (Loader(Tensor), Stream(), generator())] == [
        4,
        None,
        None,
    ]
    assert open_samples(Loader(Tensor), (X,), limit=3).total == 3


def test_one_dict_or_one_array_of_the_right_rank_is_one_sample() -> None:
    for data in ({"x": ROWS[0]}, ROWS[:, 0], Tensor(ROWS[0])):
        assert open_samples(data, (X,)).total == len(arrays(open_samples(data, (X,)))) == 1


def test_an_array_of_several_rows_is_noted_to_be_one_sample(caplog: pytest.LogCaptureFixture) -> None:
    assert open_samples(np.zeros((5, 3), np.float32), (X,)).total == 1
    assert "(5, 3) is 1 sample; if its rows are 5 samples, give list(array[:, None])" in caplog.text


def test_parts_of_an_object_are_counted_from_its_begin() -> None:
    part = open_samples(list(ROWS), (X,)).part(1, 4, 2)
    assert [sample.name for sample in part] == ["data[1]", "data[3]"]


@pytest.mark.parametrize("wrapped", [np.asarray, Tensor, Capsule, lambda a: {"x": a}, lambda a: (a, 1)])
def test_arrays_are_copied_so_that_a_buffer_may_be_refilled(wrapped: Callable[[Any], Any]) -> None:
    def refilling() -> Iterator[Any]:
        buffer = np.empty((1, 3), np.float32)
        for row in ROWS:
            buffer[...] = row
            yield wrapped(buffer)

    np.testing.assert_array_equal(arrays(open_samples(refilling, (X,))), ROWS)


def test_an_array_that_is_not_aligned_is_copied_to_one_that_is() -> None:
    raw = np.frombuffer(b"\0" + ROWS.tobytes(), np.uint8)[1:].view(np.float32).reshape(ROWS.shape)
    assert not raw.flags.aligned
    assert all(array.flags.aligned for array in arrays(open_samples(raw, (X,))))


def failing() -> Iterator[Any]:
    yield ROWS[0]
    raise OSError("disk on fire")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (3, "data: is of type int; give a folder, module:function, an iterable of samples"),
        ([3], "data[0]: yielded an object of type int, expected a dict from input name to array, an array"),
        ([ROWS[0], ROWS[0, 0, :2]], "data[1]: input 'x': has shape (2,) of rank 1"),
        ([{"X": ROWS[0], "label": 3}], "data[0]: input 'x' is missing"),
        ([ROWS[0].astype(float)], "data[0]: input 'x': has type float64, expected float32"),
        ([{"y": ROWS[0]}], "data[0]: input 'x' is missing"),
        ([OnTheGpu()], "data[0]: input 'x': raised TypeError: can't convert cuda:0"),
        ([(ROWS[0].astype(np.int32), 7)], "data[0]: input 'x': has type int32"),
        (failing(), "data[1]: raised OSError: disk on fire; repair the data"),
        (lambda: 1 / 0, "data: raised ZeroDivisionError: division by zero; repair the function"),
        (lambda: 3, "data: returned an object of type int"),
        (Transformed(list(ROWS), lambda item: item["x"]), "data[0]: transform: raised IndexError"),
        (Transformed(list(ROWS), lambda item: None), "data[0]: yielded an object of type NoneType"),
    ],
)
def test_an_object_that_does_not_fit_is_refused_with_the_number_of_the_sample(data: Any, said: str) -> None:
    assert said in refusal(data)


@pytest.mark.parametrize("item", [ROWS[0], (ROWS[0], ROWS[0])])
def test_a_model_with_two_inputs_wants_dicts(item: Any) -> None:
    assert "yield {'x': array, 'mask': array}" in refusal([item], X, MASK)


def test_a_table_of_pandas_says_how_its_rows_are_given() -> None:
    frame = type("DataFrame", (), {"columns": ["a"], "__iter__": lambda self: iter(["a"])})()
    with pytest.raises(DataError, match=r"is a DataFrame, .*to_numpy\('float32'\)"):
        samples_of(frame, None)


def test_what_is_no_input_is_left_out_with_one_note(caplog: pytest.LogCaptureFixture) -> None:
    data = [{"x": row, "label": 3} for row in ROWS]
    assert np.array_equal(arrays(open_samples(data, (X,))), ROWS)
    assert caplog.messages == ["data: 'label' of the samples: no input of the model, left out"]


def test_lists_of_arrays_and_numbers_are_arrays() -> None:
    found = next(iter(open_samples([{"x": [ROWS[0, 0]], "mask": [1, 0, 1]}], (X, MASK))))
    assert np.array_equal(found.arrays["x"], ROWS[0])
    assert np.array_equal(found.arrays["mask"], [[1, 0, 1]])


def test_a_transform_of_a_folder_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ROWS[0])
    assert "a transform is for objects of Python" in refusal(Transformed(tmp_path, lambda item: item))
