"""The data.yaml of Ultralytics as data: which pictures its splits name, and which boxes belong to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import DataError
from qprof_onnx.profiles.samples.objects import PreprocessedData
from qprof_onnx.profiles.samples.picture_files import box_files, for_evaluation, is_data_yaml
from qprof_onnx.profiles.samples.samples import open_samples
from qprof_onnx.profiles.samples.values import InputSpec

Image = pytest.importorskip("PIL.Image", reason="of the extra test-all")

INPUT = InputSpec("images", np.dtype(np.float32), (1, 3, 16, 16))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a data set of three pictures to train on, two to validate on, with boxes."""
    for split, names in (("train", "abc"), ("val", "de")):
        for kind in ("images", "labels"):
            (tmp_path / "set" / kind / split).mkdir(parents=True)
        for number, name in enumerate(names):
            Image.new("RGB", (20, 10), (40 * number, 80, 120)).save(
                tmp_path / f"set/images/{split}/{name}.jpg"
            )
            (tmp_path / f"set/labels/{split}/{name}.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    return tmp_path


def written(folder: Path, text: str) -> str:
    """Write a data.yaml and return its path."""
    (folder / "data.yaml").write_text(text + "\nnc: 1\nnames: [thing]\n")
    return str(folder / "data.yaml")


def names(source: str) -> list[str]:
    return [sample.name for sample in open_samples(PreprocessedData(source, "yolo"), (INPUT,))]


TRAIN, VAL = [f"images/train/{name}.jpg" for name in "abc"], [f"images/val/{name}.jpg" for name in "de"]


def test_the_pictures_of_train_are_taken_where_no_split_is_named(folder: Path) -> None:
    source = written(folder, "path: set\ntrain: images/train\nval: images/val")
    assert is_data_yaml(source)
    assert names(source) == names(f"{source}:train") == TRAIN
    assert names(f"{source}:val") == VAL


@pytest.mark.parametrize("given", ["str", "path", "recipe"])
def test_models_are_compared_on_val(folder: Path, given: str) -> None:
    source = written(folder, "path: set\ntrain: images/train\nval: images/val")
    data = {"str": source, "path": Path(source), "recipe": PreprocessedData(source, "yolo")}[given]
    found = for_evaluation(data)
    assert (found.source if isinstance(found, PreprocessedData) else found) == f"{source}:val"
    assert for_evaluation(f"{source}:train") == f"{source}:train"
    assert for_evaluation(str(folder)) == str(folder)


def test_a_split_is_folders_or_a_list_of_pictures(folder: Path) -> None:
    (folder / "set" / "some.txt").write_text("./images/train/b.jpg\nimages/val/e.jpg\n")
    source = written(folder, "path: set\ntrain: [images/val, images/train]\nval: some.txt")
    assert names(source) == [*VAL, *TRAIN]
    assert names(f"{source}:val") == ["images/train/b.jpg", "images/val/e.jpg"]


def test_without_a_path_the_folders_lie_beside_the_file_as_labelling_sites_write_them(folder: Path) -> None:
    source = written(folder / "set", "train: ../images/train\nval: ../images/val")
    assert names(source) == TRAIN


def test_boxes_lie_where_labels_stands_for_images(folder: Path) -> None:
    source = written(folder, "path: set\ntrain: images/train\nval: images/val")
    found = box_files(source)
    assert sorted(found) == [*TRAIN, *VAL]
    assert {boxes for _, boxes in box_files(f"{source}:val").values()} == {
        folder / "set/labels/val/d.txt",
        folder / "set/labels/val/e.txt",
    }


@pytest.mark.parametrize(
    ("text", "split", "message"),
    [
        ("path: nowhere\ntrain: images/train", "", r"path: nowhere: no such folder .* download the data set"),
        ("path: set\ntrain: images/none", "", r"train: images/none: no such folder or file"),
        (
            "path: set\nval: images/val",
            ":vall",
            r"no split 'vall'; choose one that it has: val\. Did you mean 'val'\?",
        ),
        ("scale: 2", "", r"lists no pictures; as data it is the data.yaml of a data set"),
        ("train: [", "", r"cannot be read as YAML"),
    ],
)
def test_what_it_does_not_say_is_an_error_with_the_next_step(
    folder: Path, text: str, split: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        names(written(folder, text) + split)


def test_a_split_is_no_function_of_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(folder, "path: set\ntrain: images/train\nval: images/val")
    monkeypatch.chdir(folder)
    assert names("data.yaml:val") == VAL


@pytest.mark.parametrize(
    "text",
    [
        "train: " + "y" * 5000,
        'train: "a\\0b"',
        "path: " + "x" * 5000 + "\ntrain: images/train",
        "path: set\ntrain: list.txt",
        "path: set\ntrain: other.txt",
        "train: [1, {a: b}]",
        "train: " + "[" * 100_000,
    ],
)
def test_a_list_or_a_path_that_is_none_is_a_sentence(folder: Path, text: str) -> None:
    (folder / "set" / "list.txt").write_bytes(b"\xff\xfe\x00")
    (folder / "set" / "other.txt").write_bytes(b"a\0b\n" + b"x" * 5000)
    with pytest.raises(DataError):
        names(written(folder, text))
