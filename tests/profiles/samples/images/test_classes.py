"""Classes of pictures by the folders in which they lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from qprof_onnx.profiles.base.errors import DataError
from qprof_onnx.profiles.samples.picture_files import noted_classes

Image = pytest.importorskip("PIL.Image", reason="of the extra test-all")


def photos(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (2, 2)).save(folder / name)
    return folder


def test_classes_are_numbered_in_alphabetical_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = photos(tmp_path, "dog/2.png", "cat/1.png", "dog/10.png", "ant/deep/3.png")
    (tmp_path / "bee").mkdir()  # no pictures: its number is kept
    found = noted_classes(source)
    assert "4 classes, numbered in alphabetical order: 0 'ant', 1 'bee', 2 'cat', 3 'dog'" in caplog.text
    assert found.names == ("ant", "bee", "cat", "dog")
    assert found.labels.tolist() == [0, 2, 3, 3]


def test_folders_that_are_named_by_the_numbers_from_0_on_have_these(tmp_path: Path) -> None:
    names = [f"{number}/a.png" for number in range(11)]
    assert noted_classes(photos(tmp_path / "a", *names)).labels.tolist() == list(range(11))
    assert noted_classes(photos(tmp_path / "b", "01/a.png", "00/a.png")).labels.tolist() == [0, 1]


def test_folders_of_other_numbers_are_numbered_in_their_order(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"{name}/a.png" for name in ("000", "090", "180", "270")]
    assert noted_classes(photos(tmp_path / "a", *names)).labels.tolist() == [0, 1, 2, 3]
    assert "4 classes, numbered in the order of the numbers: 0 '000', 1 '090', 2 '180'" in caplog.text
    assert "write them into classes.txt in that folder" in caplog.text
    source = photos(tmp_path / "b", "10/a.png", "2/a.png", "1/a.png")
    (source / "m.qprof").mkdir()  # of a model that was written into the folder
    assert noted_classes(source).labels.tolist() == [0, 1, 2]


def test_a_file_of_classes_gives_the_numbers(tmp_path: Path) -> None:
    source = photos(tmp_path, "cat/1.png", "dog/1.png")
    (tmp_path / "classes.txt").write_text("dog\nfox\ncat\n")
    assert noted_classes(source).labels.tolist() == [2, 0]
    (tmp_path / "classes.txt").write_text("cats\ndog\n")
    with pytest.raises(DataError, match=r"cat: is not a class of .*classes\.txt; .* Did you mean 'cats'"):
        noted_classes(source)


def test_a_picture_in_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"1\.png: lies in no folder of a class"):
        noted_classes(photos(tmp_path, "1.png", "cat/1.png"))
