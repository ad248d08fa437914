"""Tables: columns to inputs by name or recipe, types that fit, missing values by row and column."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import ConfigError, DataError
from qprof_onnx.profiles.samples.picture_files import for_evaluation
from qprof_onnx.profiles.samples.samples import open_samples
from qprof_onnx.quantizer.api.sources import samples_of

from ....profiles.samples.opening import opened, read, refusal, spec, written

pa = pytest.importorskip("pyarrow", reason="of the extra test-all")
pq = pytest.importorskip("pyarrow.parquet", reason="of the extra test-all")

X = spec("x", np.float32, ("N", 3))
A, B = spec("a", np.float32, ("N", 1)), spec("b", np.int64, ("N",))
CSV = "a,b,c\n1,2,3\n4.5,5,6\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return saved(tmp_path, CSV)


def saved(folder: Path, text: str, name: str = "t.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def parquet(folder: Path, rows: int = 3, **options: Any) -> Path:
    table = pa.table({"a": [n + 0.5 for n in range(rows)], "b": list(range(rows)), "c": [7] * rows})
    pq.write_table(table, folder / "t.parquet", **options)
    return folder / "t.parquet"


def test_all_columns_go_to_the_only_input_that_takes_as_many(table: Path, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        first, second = read(table, [X])
    np.testing.assert_array_equal(first.arrays["x"], [[1, 2, 3]])
    np.testing.assert_array_equal(second.arrays["x"], np.array([[4.5, 5, 6]], np.float32))
    assert [first.name, second.name] == ["t.csv:2", "t.csv:3"]
    assert "columns a, b, c go to input 'x' as float32" in caplog.text


@pytest.mark.parametrize(("columns", "advice"), [("id,b,c", "id"), ("a,b,c,d", "COLUMN, ...")])
def test_one_column_too_many_is_named_in_the_recipe_to_write(
    tmp_path: Path, columns: str, advice: str
) -> None:
    width = columns.count(",")
    row = "7," + ",".join(["1.5"] * width) if advice == "id" else ",".join(["1.5"] * (width + 1))
    file = saved(tmp_path, f"{columns}\n{row}\n", "rows.csv")
    with pytest.raises(ConfigError, match=rf"'reader: table' and 'exclude: \[{advice}\]' into recipe.yaml"):
        read(file, [spec("x", np.float32, ("N", width))])


@pytest.mark.parametrize("recipe", [None, "reader: table\nmean: [1, 1]\nstd: [1, 1]\n"])
def test_the_column_of_labels_in_the_file_of_the_data_is_no_input(
    table: Path, tmp_path: Path, recipe: str | None
) -> None:
    two, preprocess = spec("x", np.float32, ("N", 2)), None
    if recipe is not None:
        preprocess = written(tmp_path, recipe)
    (tmp_path / "link.csv").symlink_to(table)
    data = samples_of(str(table), None, preprocess, f"{tmp_path}/link.csv:c")
    first, _ = open_samples(for_evaluation(data), (two,))
    np.testing.assert_array_equal(first.arrays["x"], [[1, 2]] if recipe is None else [[0, 1]])
    other = saved(tmp_path, CSV, "other.csv")
    with pytest.raises(ConfigError, match="which columns belong to input 'x'"):
        open_samples(samples_of(str(table), None, None, f"{other}:c"), (two,))
    first, _ = open_samples(samples_of(str(table), None, preprocess, f"{other}:c", other), (two,))
    np.testing.assert_array_equal(first.arrays["x"], [[1, 2]] if recipe is None else [[0, 1]])
    with pytest.raises(DataError, match=r"other.csv: .* no column 'cc'; .*Did you mean 'c'"):
        samples_of(str(table), None, None, f"{other}:cc", other)
    with pytest.raises(DataError, match=r"t.csv: .* no column ''; name one of a, b, c"):
        samples_of(str(table), None, None, table)


def test_a_row_is_known_by_its_columns_and_values(table: Path) -> None:
    assert [one.originals[0].text for one in read(table, [X])] == ["a 1, b 2, c 3", "a 4.5, b 5, c 6"]


def test_a_column_goes_to_the_input_of_its_name(table: Path) -> None:
    first, _ = read(table, [B, A])
    np.testing.assert_array_equal(first.arrays["a"], np.array([[1]], np.float32))
    np.testing.assert_array_equal(first.arrays["b"], [2])
    assert first.arrays["b"].dtype == np.int64


def test_a_recipe_names_columns_and_constants(table: Path, tmp_path: Path) -> None:
    pair = spec("pair", np.float64, ("N", 2))
    recipe = written(tmp_path, "reader: table; columns: {pair: [c, a]}; constants: {b: 9}")
    _, second = read(table, [pair, B], recipe)
    np.testing.assert_array_equal(second.arrays["pair"], [[6, 4.5]])
    np.testing.assert_array_equal(second.arrays["b"], [9])


@pytest.mark.parametrize(
    "scaling",
    [
        "mean: {a: 0.5, c: 1}; std: {a: 2, c: 4}; columns: {x: [a, b, c]}",
        "mean: [0.5, 0, 1]; std: [2, 1, 4]; label: d",
    ],
)
def test_columns_are_scaled_as_in_training(tmp_path: Path, scaling: str) -> None:
    source = saved(tmp_path, "a,b,c,d\n1,2,3,7\n4.5,5,6,8\n")
    _, second = read(source, [X], written(tmp_path, f"reader: table; {scaling}"))
    np.testing.assert_array_equal(second.arrays["x"], np.array([[2, 5, 1.25]], np.float32))


def test_a_recipe_scales_a_column_of_its_own_input(tmp_path: Path) -> None:
    recipe = written(tmp_path, "reader: table; mean: {a: 1}; std: {a: 2}")
    first, _ = read(saved(tmp_path, CSV), [A, B], recipe)
    np.testing.assert_array_equal(first.arrays["a"], np.array([[0]], np.float32))


def test_the_column_of_the_answer_is_no_input(tmp_path: Path) -> None:
    source = saved(tmp_path, "a,b,c,sick\n1,2,3,M\n4,5,6,B\n")
    first, _ = read(source, [X], written(tmp_path, "reader: table; label: sick"))
    np.testing.assert_array_equal(first.arrays["x"], [[1, 2, 3]])


def test_text_goes_to_inputs_of_strings(tmp_path: Path) -> None:
    source = saved(tmp_path, 'name,a\n"Ada, L.",1\n')
    (sample,) = read(source, [spec("name", object, ("N", 1)), A])
    assert sample.arrays["name"].tolist() == [["Ada, L."]]


@pytest.mark.parametrize("cell", ["", " ", "NA", "null", "NaN", "?"])
def test_a_missing_value_is_refused_with_line_and_column(tmp_path: Path, cell: str) -> None:
    text = refusal(saved(tmp_path, f"a,b,c\n1,2,3\n4,{cell},6\n"), [X])
    assert "t.csv: line 3: column 'b': the value is missing" in text
    assert "fill it, or remove the row" in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2.5\n", "line 2: column 'b': is 2.5, and input 'b' takes int64"),
        ("a,b\n1,9223372036854775808\n", "column 'b': is 9.22337e+18, and input 'b' takes int64"),
        ("a,b\n1,many\n", "line 2: column 'b': is 'many', expected int64"),
        ("a,b\n1,2,3\n", "line 2: has 3 cells, and there are 2 columns"),
        ('a,b\n1,"2,5"\n', "line 2: column 'b': is '2,5', expected int64; write it with a decimal point"),
        ("a,a\n1,2\n", "line 1: has column 'a' twice"),
        ('a,b\n1,"2\n', "line 2: is not CSV"),
        ("a,b\n", "contains no rows"),
        ("", "is empty; the first line names the columns"),
    ],
)
def test_a_broken_table_is_refused(tmp_path: Path, text: str, says: str) -> None:
    assert says in refusal(saved(tmp_path, text), [A, B])


def test_a_first_line_of_numbers_is_no_line_of_names(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("5.1,3.5,1\n1,2,3\n")
    assert "line 1: must name the columns, but contains the numbers 5.1" in refusal(tmp_path / "t.csv", [X])
    (tmp_path / "t.csv").write_text("0,1,2\n1,2,3\n")
    assert len(read(tmp_path / "t.csv", [X])) == 1


def test_cells_may_be_parted_otherwise_and_have_no_header(tmp_path: Path) -> None:
    recipe = written(tmp_path, "reader: table; delimiter: ';'; header: [a, b]".replace("';'", '"|"'))
    (sample,) = read(saved(tmp_path, "1|2\n"), [A, B], recipe)
    assert (sample.name, sample.arrays["b"].tolist()) == ("t.csv:1", [2])
    (sample,) = read(saved(tmp_path, "a\tb\n1\t2\n", "t.tsv"), [A, B])
    assert sample.arrays["b"].tolist() == [2]


def test_parquet_is_read_as_csv_is(tmp_path: Path) -> None:
    _, second, _ = read(parquet(tmp_path), [A, B])
    np.testing.assert_array_equal(second.arrays["a"], np.array([[1.5]], np.float32))
    assert (second.name, second.arrays["b"].tolist()) == ("t.parquet:2", [1])


def test_a_null_of_parquet_is_refused_with_row_and_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1.0, None], "b": [1, 2]}), tmp_path / "t.parquet")
    assert "t.parquet: row 2: column 'a': the value is missing" in refusal(tmp_path, [A, B])


def test_only_row_groups_with_wanted_rows_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, groups = parquet(tmp_path, 10, row_group_size=2), []
    samples, iterate = opened(source, [A, B]), pq.ParquetFile.iter_batches

    def noted(self: Any, size: int, row_groups: list[int]) -> Any:
        groups.extend(row_groups)
        return iterate(self, size, row_groups)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    assert [sample.arrays["b"].tolist() for sample in samples.part(4, 6)] == [[4], [5]]
    assert groups == [2]
    assert [sample.name for sample in samples.part(0, 10, 4)] == ["t.parquet:1", "t.parquet:5", "t.parquet:9"]


def test_lists_in_a_column_are_arrays(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [[1, 2, 3], [4, 5, 6]]}), tmp_path / "t.parquet")
    _, second = read(tmp_path, [X])
    np.testing.assert_array_equal(second.arrays["x"], [[4, 5, 6]])
    image = spec("x", np.uint8, ("N", 2, 2))
    pq.write_table(pa.table({"x": [[[1, 2], [3, 4]]]}), tmp_path / "t.parquet")
    (sample,) = read(tmp_path, [image])
    assert sample.arrays["x"].tolist() == [[[1, 2], [3, 4]]]


def test_lists_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [[1.0, 2.5, 3.0]]}), tmp_path / "t.parquet")
    assert "row 1: column 'x': contains values that are not int64" in refusal(
        tmp_path, [spec("x", np.int64, ("N", 3))]
    )
    pq.write_table(pa.table({"x": [[[1], [2, 3]]]}), tmp_path / "t.parquet")
    assert "contains lists of different lengths" in refusal(tmp_path, [spec("x", np.int64, ("N", 3, 1))])


def test_a_broken_parquet_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and nothing more")
    assert "t.parquet: is broken or cannot be read" in refusal(tmp_path, [X])


def test_files_of_one_table_have_the_same_columns(tmp_path: Path) -> None:
    saved(tmp_path, "a,b\n1,2\n", "1.csv")
    saved(tmp_path, "a,c\n1,2\n", "2.csv")
    assert "2.csv: has the columns a, c, and" in refusal(tmp_path, [A, B])
    saved(tmp_path, "{}", "3.jsonl")
    assert "contains .csv and .jsonl files; give files of one kind" in refusal(tmp_path, [A, B])


def test_lines_of_json_are_rows(tmp_path: Path) -> None:
    saved(tmp_path, json.dumps({"a": 1, "b": 2}), "t.jsonl")
    (sample,) = read(tmp_path, [A, B])
    assert sample.arrays["b"].tolist() == [2]


@pytest.mark.parametrize(
    ("recipe", "says"),
    [
        ("columns: {y: a}", "columns: 'y' is not an input of the model"),
        ("columns: {x: [a, d, c]}", "has no column 'd'; name one of a, b, c"),
        ("columns: {x: a}; constants: {x: none}", "constants: x: cannot be float32"),
        ("columns: {x: a}; constants: {b: 1.5}", "constants: b: cannot be int64"),
        ("columns: {x: a}; constants: {b: 1.0e+30}", "constants: b: cannot be int64"),
        ("columns: {x: a}; constants: {b: {value: 0, shape: [-1]}}", "shape: is [-1]; give a list"),
        ("columns: {x: [a, b, c], b: b}; mean: [1, 2]", "mean: 2 numbers for 3 columns; give one for each"),
        ("columns: {x: [a, b, c], b: b}; std: {a: 0}", "column 'a': mean 0 and std 0 scale nothing"),
        ("columns: {x: [a, b, c], b: b}; std: {d: 1}", "std: 'd' is not a column of an input; name one of a"),
        ("columns: {x: [a, a, c], b: b}; mean: {b: 1}", "input 'b' takes int64"),
        ("columns: {x: 3}", "columns: {'x': 3} is not allowed; give for inputs"),
    ],
)
def test_a_wrong_recipe_is_refused(table: Path, tmp_path: Path, recipe: str, says: str) -> None:
    assert says in refusal(table, [X, B], written(tmp_path, f"reader: table; {recipe}"))


PATIENTS = "id,age,height,note,diagnosis\n1,40,1.7,tall,0\n2,50,1.8,short,1\n"


def test_columns_are_asked_for_where_no_number_of_them_fits(tmp_path: Path) -> None:
    text = refusal(saved(tmp_path, PATIENTS), [spec("x", np.float32, ("N", "n"))])
    assert "the lines 'reader: table' and 'columns: {x: [COLUMN, ...]}' into recipe.yaml" in text
    assert text.endswith("there are id, age, height, note, diagnosis")


@pytest.mark.parametrize(
    ("size", "recipe"), [(2, "label: diagnosis"), ("n", "label: diagnosis; columns: {x: all}")]
)
def test_columns_that_are_excluded_go_to_no_input(tmp_path: Path, size, recipe: str) -> None:
    source, x = saved(tmp_path, PATIENTS), spec("x", np.float32, ("N", size))
    recipe = written(tmp_path, f"reader: table; exclude: [id, note]; {recipe}")
    assert read(source, [x], recipe)[1].arrays["x"].tolist() == [[50, np.float32(1.8)]]


def test_an_excluded_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    recipe = written(tmp_path, "reader: table; exclude: [idd]")
    text = refusal(saved(tmp_path, PATIENTS), [X], recipe)
    assert "exclude:" in text
    assert text.endswith("has no column 'idd'; it has id, age, height, note, diagnosis. Did you mean 'id'?")
