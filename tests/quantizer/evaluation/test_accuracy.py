import math

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import DataError
from qprof_onnx.quantizer.evaluation.accuracy import RowCounts, accuracy_of
from qprof_onnx.quantizer.metrics.intervals import mcnemar_p, paired_interval, rows_to_show
from qprof_onnx.quantizer.metrics.labels import load_labels
from scipy import stats


def test_the_paired_interval_is_bonett_and_price() -> None:
    # by hand: a = 11/102, b = 3/102; d = 8/102; half = 1.96 * sqrt((14/102 - (8/102)**2) / 102)
    half = 1.959963984540054 * math.sqrt((14 / 102 - (8 / 102) ** 2) / 102)
    assert paired_interval(10, 2, 100) == pytest.approx((8 / 102 - half, 8 / 102 + half), rel=1e-14)


@pytest.mark.parametrize(("only_float", "only_quantized"), [(0.06, 0.03), (0.10, 0.10), (0.30, 0.05)])
def test_the_interval_covers_the_true_drop_as_often_as_it_says(only_float, only_quantized) -> None:
    rows = 200
    shares = [only_float, only_quantized, 1.0 - only_float - only_quantized]
    counts = [(a, b, rows - a - b) for a in range(rows + 1) for b in range(rows + 1 - a)]
    likely = stats.multinomial.pmf(np.array(counts), rows, shares)
    intervals = np.array([paired_interval(a, b, rows) for a, b, _ in counts])
    drop = only_float - only_quantized
    covered = likely[(intervals[:, 0] <= drop) & (drop <= intervals[:, 1])].sum()
    assert likely.sum() == pytest.approx(1.0)
    assert 0.95 <= covered <= 0.97  # nominal 0.95; no draws, the probabilities of all counts are summed


def test_the_interval_takes_the_quantile_of_the_normal_distribution() -> None:
    low, high = paired_interval(30, 20, 1000)
    share_a, share_b = 31 / 1002, 21 / 1002
    error = np.sqrt((share_a + share_b - (share_a - share_b) ** 2) / 1002)
    assert (low, high) == pytest.approx(stats.norm.interval(0.95, share_a - share_b, error), rel=1e-9)


def test_few_rows_without_disagreement_still_leave_doubt() -> None:
    low, high = paired_interval(0, 0, 20)
    assert low < -0.05
    assert high > 0.05


def test_mcnemar_is_the_two_sided_binomial_test() -> None:
    # 8 against 1: 2 * (C(9,0) + C(9,1)) / 2**9
    assert mcnemar_p(8, 1) == pytest.approx(20 / 512, rel=1e-12)  # lgamma
    assert mcnemar_p(1, 8) == mcnemar_p(8, 1)


def test_equal_disagreement_has_p_value_one() -> None:
    assert mcnemar_p(0, 0) == 1.0
    assert mcnemar_p(5, 5) == 1.0


@pytest.mark.parametrize(("a", "b"), [(0, 1), (3, 0), (4, 9), (17, 17), (120, 80), (3000, 2900)])
def test_mcnemar_is_the_exact_binomial_test_of_scipy(a: int, b: int) -> None:
    assert mcnemar_p(a, b) == pytest.approx(stats.binomtest(a, a + b, 0.5).pvalue, rel=1e-9)  # lgamma


def test_mcnemar_of_large_counts_is_a_number() -> None:
    assert 0.0 <= mcnemar_p(60_000, 40_000) < 1e-100


def test_accuracy_and_drop_are_percent() -> None:
    found = accuracy_of("y", RowCounts(rows=200, both=180, only_float=8, only_quantized=2))
    assert (found.float_percent, found.quantized_percent, found.drop) == (94.0, 91.0, 3.0)
    assert found.drop_low < 3.0 < found.drop_high


def test_a_counts_takes_the_labels_from_where_it_stands() -> None:
    labels = np.array([1, 2, 3, 4])
    counts = RowCounts().added(labels, np.array([1, 2]), np.array([1, 0]))
    counts = counts.added(labels, np.array([0, 0]), np.array([3, 0]))
    assert counts == RowCounts(rows=4, both=1, only_float=1, only_quantized=1)


def test_another_number_of_answers_counts_as_wrong() -> None:
    assert RowCounts().added(np.array([1, 1]), np.array([1, 1]), np.array([1])) == RowCounts(2, 0, 2, 0)


def test_labels_are_read_from_text_and_from_npy(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("3\n\n +1 \n7\n")
    np.save(tmp_path / "a.npy", np.array([3, 1, 7], np.int16))
    assert load_labels(tmp_path / "a.txt").classes.tolist() == [3, 1, 7]
    assert load_labels(tmp_path / "a.npy").classes.tolist() == [3, 1, 7]


def test_a_bad_label_is_named_by_line(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("3\ncat\n")
    with pytest.raises(DataError, match=r"a\.txt, line 2: 'cat' is not an integer label"):
        load_labels(tmp_path / "a.txt")


def test_a_label_beyond_int64_is_refused(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("9" * 30)
    with pytest.raises(DataError, match="line 1"):
        load_labels(tmp_path / "a.txt")


ADVICE = r"; write it with numpy\.save"
HEADER = "{'descr': '<i8', 'fortran_order': False, 'shape': "


def npy(header: str, values: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + values


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy(HEADER + "(3,)"), "or its header is damaged"),
        (npy(HEADER + "(" * 90), "or its header is damaged"),
        (npy(HEADER + "(3,)}" + 10_000 * " "), "or its header is damaged"),
        (npy(HEADER + "(2.5,)}"), "or its header is damaged"),
        (npy(HEADER + "(10000000000000,)}", bytes(24)), "says 10000000000000 labels of int64, and 24 bytes"),
        (npy(HEADER + "(-3,)}", bytes(24)), "says -3 labels of int64, and 24 bytes follow"),
        (npy(HEADER + "(1, 1)}", bytes(8)), r"of integers, this is int64 of shape \[1, 1\]"),
        (npy(HEADER.replace("<i8", "<f4") + "(1,)}", bytes(4)), r"this is float32 of shape \[1\]"),
        (npy(HEADER.replace("<i8", "|O") + "(1,)}", bytes(8)), r"this is Python objects of shape \[1\]"),
        (b"PK\x03\x04 and so on", r"is a zip archive \(.npz\) and not one array"),
        (b"", "or its header is damaged"),
        (b"\x93NUMPY\x07\x00", "or its header is damaged"),
    ],
)
def test_an_array_that_holds_no_labels_is_refused_with_what_to_do(tmp_path, content, message) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(
        DataError, match=rf"a\.npy: .*{message}.*; (write it with numpy\.save|the file is damaged)"
    ):
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


def test_a_label_outside_the_classes_is_named_by_its_line(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("3\n\n101\n")
    labels = load_labels(tmp_path / "a.txt")
    labels.check_classes(102)
    labels.check_classes(None)
    with pytest.raises(
        DataError, match=r"line 3: label 101 is none of the output's 10 classes, 0 to 9; correct"
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


@pytest.mark.parametrize(
    ("counts", "limit"), [((0, 0, 500), 0.01), ((12, 8, 1000), 0.02), ((3, 0, 100), 0.1)]
)
def test_the_rows_that_would_show_a_limit_do(counts: tuple[int, int, int], limit: float) -> None:
    only_float, only_quantized, rows = counts
    needed = rows_to_show(*counts, limit)
    assert needed is not None
    scaled = [count * needed / rows for count in (only_float, only_quantized)]
    assert paired_interval(*scaled, needed)[1] == pytest.approx(limit, rel=0.05)  # whole rows


def test_no_number_of_rows_shows_a_limit_that_is_exceeded() -> None:
    assert rows_to_show(5, 2, 100, 0.03) is None
