"""What the arrays of files are to a model: samples, rows, batches; and what is noted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from qprof_onnx.profiles.base.errors import ConfigError, DataError
from qprof_onnx.profiles.samples.objects import PreprocessedData
from qprof_onnx.profiles.samples.samples import open_samples
from qprof_onnx.profiles.samples.values import InputSpec, Samples


def spec(*shape: int | str | None, name: str = "x") -> InputSpec:
    return InputSpec(name, np.dtype(np.float32), shape)


def numbers(*shape: int) -> npt.NDArray[Any]:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def saved(folder: Path, *arrays: npt.NDArray[Any]) -> Path:
    for number, array in enumerate(arrays):
        np.save(folder / f"{number}.npy", array)
    return folder / "0.npy" if len(arrays) == 1 else folder


def shapes(samples: Samples) -> list[tuple[int, ...]]:
    return [sample.arrays["x"].shape for sample in samples]


def test_the_rows_of_a_file_are_samples_of_a_model_that_takes_one(tmp_path: Path) -> None:
    samples = open_samples(saved(tmp_path, numbers(5, 3)), (spec(1, 3),))
    assert samples.total == 5
    assert [sample.name for sample in samples] == [f"0.npy[{row}]" for row in range(5)]
    assert np.array_equal(np.concatenate([s.arrays["x"] for s in samples]), numbers(5, 3))
    assert {sample.step for sample in samples} == {None}  # without a state they are no steps
    assert tuple(map(str, samples.findings)) == (
        f"{tmp_path}/0.npy: arrays of shape (5, 3) for 'x' (1, 3): each row is a sample",
    )


def test_the_rows_of_several_files_are_counted_through(tmp_path: Path) -> None:
    samples = open_samples(saved(tmp_path, numbers(2, 3), numbers(1, 3), numbers(3, 3)), (spec(1, 3),))
    names = ["0.npy[0]", "0.npy[1]", "1.npy[0]", "2.npy[0]", "2.npy[1]", "2.npy[2]"]
    assert [sample.name for sample in samples] == names
    assert [sample.name for sample in samples.part(1, 6, 2)] == names[1:6:2]


def test_rows_are_put_together_to_the_batch_of_the_model_across_files(tmp_path: Path) -> None:
    samples = open_samples(saved(tmp_path, numbers(5, 3), numbers(6, 3)), (spec(4, 3),))
    assert shapes(samples) == [(4, 3)] * 2
    assert [sample.name for sample in samples] == ["0.npy[0] to 0.npy[3]", "0.npy[4] to 1.npy[2]"]


def test_a_file_with_the_batch_of_the_model_is_one_sample(tmp_path: Path) -> None:
    samples = open_samples(saved(tmp_path, numbers(4, 3)), (spec(4, 3),))
    assert shapes(samples) == [(4, 3)]
    assert not samples.findings


@pytest.mark.parametrize("name", ["N", "batch", "batch_size", "unk_batch"])
def test_the_rows_of_one_file_are_samples_where_the_dimension_is_a_batch(tmp_path: Path, name: str) -> None:
    assert shapes(open_samples(saved(tmp_path, numbers(5, 3)), (spec(name, 3),))) == [(1, 3)] * 5


def test_another_free_dimension_is_not_split_but_noted(tmp_path: Path) -> None:
    samples = open_samples(saved(tmp_path, numbers(5, 3)), (spec("time", 3),))
    assert shapes(samples) == [(5, 3)]
    assert "not named as a batch" in str(samples.findings[0])


def test_the_only_file_of_a_folder_is_read_as_that_file(tmp_path: Path) -> None:
    """It was one sample, judged on its own data, and as a file 64 samples."""
    file = saved(tmp_path, numbers(4, 3))
    read = [open_samples(source, (spec("N", 3),)) for source in (file, tmp_path)]
    assert [shapes(samples) for samples in read] == [[(1, 3)] * 4] * 2
    assert [sample.name for sample in read[0]] == [sample.name for sample in read[1]]


def test_the_files_of_a_folder_are_samples_as_they_are(tmp_path: Path) -> None:
    samples = open_samples(saved(tmp_path, numbers(5, 3), numbers(2, 3)), (spec("N", 3),))
    assert shapes(samples) == [(5, 3), (2, 3)]


@pytest.mark.parametrize(("rows", "expected"), [("split", [(1, 3)] * 4), ("whole", [(4, 3)])])
def test_a_recipe_says_what_rows_are(tmp_path: Path, rows: str, expected: list[tuple[int, ...]]) -> None:
    source = str(saved(tmp_path, numbers(4, 3)))
    (tmp_path / "recipe.yaml").write_text(f"reader: array\nrows: {rows}\n")
    data = PreprocessedData(source, str(tmp_path / "recipe.yaml"))
    samples = open_samples(data, (spec("time" if rows == "split" else "N", 3),))
    assert shapes(samples) == expected
    assert rows == "split" or not samples.findings


def test_a_recipe_for_arrays_has_one_key(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("reader: array\nrow: split\n")
    with pytest.raises(ConfigError, match="row: is not a key of a recipe with reader array; known are rows"):
        open_samples(
            PreprocessedData(str(saved(tmp_path, numbers(4, 3))), str(tmp_path / "recipe.yaml")),
            (spec("N", 3),),
        )


@pytest.mark.parametrize("leading", [1, "N"])
def test_arrays_without_an_axis_of_rows_get_it_and_it_is_noted(tmp_path: Path, leading: int | str) -> None:
    samples = open_samples(saved(tmp_path, numbers(3, 4, 4), numbers(3, 4, 4)), (spec(leading, 3, 4, 4),))
    assert shapes(samples) == [(1, 3, 4, 4)] * 2
    assert "each file is one row, and gets the axis of rows" in str(samples.findings[0])


def test_an_input_of_several_may_lack_the_axis_of_rows(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=numbers(1, 3), y=numbers(2))
    (sample,) = open_samples(tmp_path, (spec(1, 3), spec(1, 2, name="y")))
    assert sample.arrays["y"].shape == (1, 2)


def test_samples_along_another_axis_are_split(tmp_path: Path) -> None:
    samples = open_samples(saved(tmp_path, numbers(5, 2, 3)), (spec(2, 3),))
    assert shapes(samples) == [(2, 3)] * 5


def test_the_rows_of_all_inputs_go_together(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=numbers(4, 3), y=numbers(4, 2))
    samples = open_samples(tmp_path / "a.npz", (spec(1, 3), spec(1, 2, name="y")))
    assert [sample.arrays["y"].tolist() for sample in samples] == [[[2 * n, 2 * n + 1]] for n in range(4)]


def test_a_later_file_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"1\.npy: input 'x': has shape \(2, 5\), expected \(1, 3\)"):
        open_samples(saved(tmp_path, numbers(2, 3), numbers(2, 5)), (spec(1, 3),))


def test_the_type_is_checked_before_rows_are_split(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has type float64, expected float32"):
        list(open_samples(saved(tmp_path, numbers(4, 3).astype(np.float64)), (spec(1, 3),)))


@pytest.mark.parametrize(
    ("shape", "wanted", "advice"),
    [
        ((1, 8, 9, 3), (1, 3, 8, 9), "looks like NHWC: turn it with array.transpose(0, 3, 1, 2)"),
        ((1, 3, 8, 9), ("N", 8, 9, 3), "looks like NCHW: turn it with array.transpose(0, 2, 3, 1)"),
        ((8, 9, 3), (1, 3, 8, 9), "looks like HWC: turn it with array.transpose(2, 0, 1)"),
        ((1, 3, 8, 7), (1, 3, 8, 9), "resize or split the data"),
    ],
)
def test_pictures_with_channels_on_the_other_side_are_told_how_to_turn(
    tmp_path: Path, shape: tuple[int, ...], wanted: tuple[int | str, ...], advice: str
) -> None:
    with pytest.raises(DataError) as caught:
        list(open_samples(saved(tmp_path, numbers(*shape)), (spec(*wanted),)))
    assert advice in str(caught.value)
