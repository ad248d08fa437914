from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.base.errors import DataError
from qprof_onnx.quantizer.evaluation.metrics.metric import MetricSource
from qprof_onnx.quantizer.evaluation.metrics.table import named_metric
from qprof_onnx.quantizer.evaluation.metrics.truth import load_labels


def test_labels_are_read_from_text_and_from_npy(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("3\n\n +1 \n7\n")
    np.save(tmp_path / "a.npy", np.array([3, 1, 7], np.int16))
    assert load_labels(tmp_path / "a.txt").classes.tolist() == [3, 1, 7]
    assert load_labels(tmp_path / "a.npy").classes.tolist() == [3, 1, 7]


HEADER = "{'descr': '<i8', 'fortran_order': False, 'shape': "


def npy(header: str, values: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + values


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy(HEADER + "(" * 90), "is not an .npy array"),
        (npy(HEADER + "(3,)}" + 10_000 * " "), "is not an .npy array"),
        (npy(HEADER + "(10000000000000,)}", bytes(24)), "is not an .npy array"),
        (npy(HEADER + "(-3,)}", bytes(24)), "is not an .npy array"),
        (npy(HEADER + "(1, 1)}", bytes(8)), r"of integers, this is int64 of shape \[1, 1\]"),
        (npy(HEADER.replace("<i8", "<f4") + "(1,)}", bytes(4)), r"this is float32 of shape \[1\]"),
        (npy(HEADER.replace("<i8", "|O") + "(1,)}", bytes(8)), "is not an .npy array"),
        (b"PK\x03\x04 and so on", r"it is a zip archive \(.npz\) and not one array"),
        (b"", "is not an .npy array"),
    ],
)
def test_an_array_that_holds_no_labels_is_refused_with_what_to_do(tmp_path, content, message) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(DataError, match=rf"a\.npy: .*{message}.*; write it with numpy\.save"):
        load_labels(tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            np.array([1, 2**63], np.uint64),
            "row 1: label 9223372036854775808 does not fit into int64; correct",
        ),
        (np.array([0, 3, -1], np.int8), "row 2: label -1 is negative, and classes count from 0; leave rows"),
    ],
)
def test_a_label_that_cannot_be_a_class_is_named_by_its_row(tmp_path, values, message) -> None:
    np.save(tmp_path / "a.npy", values)
    with pytest.raises(DataError, match=rf"a\.npy, {message}"):
        load_labels(tmp_path / "a.npy")


@pytest.mark.parametrize("text", ["1_0", "1.0", "0x3", "3 cat", "\u0663", "9" * 30])
def test_a_line_that_is_no_integer_is_refused(tmp_path, text) -> None:
    (tmp_path / "a.txt").write_text(f"3\n\n{text}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.txt, line 3: .* is not an integer label; write one integer a"):
        load_labels(tmp_path / "a.txt")


def test_a_table_without_the_name_of_its_column_is_told_how_to_name_it(tmp_path) -> None:
    (tmp_path / "a.csv").write_text("id,label\n1,0\n")
    with pytest.raises(
        DataError, match=r"a\.csv, line 1: .*; name its column, .*a\.csv:COLUMN, or write one"
    ):
        load_labels(tmp_path / "a.csv")


def test_a_label_outside_the_classes_is_named_by_its_line(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("3\n\n101\n")
    labels = load_labels(tmp_path / "a.txt")
    labels.check_classes(102)
    labels.check_classes(None)
    with pytest.raises(
        DataError, match=r"line 3: label 101 is not one of the output's 10 classes, 0 to 9; correct"
    ):
        labels.check_classes(10)


def test_labels_that_count_from_one_are_told(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("1\n10\n")
    with pytest.raises(
        DataError, match="10 classes are 0 to 9: they seem to count from 1; subtract 1 from each"
    ):
        load_labels(tmp_path / "a.txt").check_classes(10)


def test_a_binary_file_is_no_text_of_labels(tmp_path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not a text file"):
        load_labels(tmp_path / "a.txt")


def test_a_missing_file_of_labels_is_named(tmp_path) -> None:
    with pytest.raises(DataError, match=r"no\.txt: cannot read the labels"):
        load_labels(tmp_path / "no.txt")


def test_folders_of_some_classes_need_the_names_of_all(tmp_path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(b"")
    labels = load_labels(tmp_path)
    labels.check_classes(2)
    with pytest.raises(DataError, match=r"has folders of 2 classes, and the output has 5; .* classes\.txt"):
        labels.check_classes(5)
    (tmp_path / "classes.txt").write_text("bird\ncat\ncow\ndog\nfox\n")
    named = load_labels(tmp_path)
    named.check_classes(5)
    assert named.classes.tolist() == [1, 3]


def test_labels_may_be_a_column_of_a_table(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "t.csv").write_text("a,class,sick\n1,2,M\n2,0,B\n3,1,M\n")
    assert load_labels(f"{tmp_path}/t.csv:class").classes.tolist() == [2, 0, 1]
    assert not caplog.messages
    assert load_labels(f"{tmp_path}/t.csv:sick").classes.tolist() == [1, 0, 1]
    assert "2 classes, numbered in alphabetical order: 0 'B', 1 'M'" in caplog.text


def test_the_digest_of_a_metric_is_that_of_its_column_of_labels(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n0,1\n1,0\n")
    named, model = named_metric("top-1"), ir.Model(ir.Graph([], [], nodes=[]), ir_version=9)
    assert named is not None
    sources = (f"{tmp_path}/t.csv{column}" for column in ("", ":a", ":b"))
    digests = {MetricSource(named, one, None, None, model, {}, {}).digest("") for one in sources}
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("column", "says"),
    [("clas", "line 2: there is no column 'clas'; name one of a, class"), ("a", "row 1: has no class")],
)
def test_a_column_that_holds_no_classes_is_refused(tmp_path: Path, column: str, says: str) -> None:
    (tmp_path / "t.csv").write_text("a,class\n1,2\n,0\n")
    with pytest.raises(DataError, match=says):
        load_labels(f"{tmp_path}/t.csv:{column}")
