"""Where the names of a model's classes come from."""

from __future__ import annotations

import json
from pathlib import Path

import onnx_ir as ir
import pytest
from qprof_onnx.profiles.samples.objects import PreprocessedData
from qprof_onnx.profiles.samples.samples import set_title
from qprof_onnx.quantizer.plugins.report.class_names import ClassNames


def model_in(folder: Path, **metadata: str) -> ir.Model:
    """Return a model of that folder with these metadata."""
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 17})
    model = ir.Model(graph, ir_version=10, metadata_props=metadata)
    set_title(model, folder / "model.onnx")
    return model


@pytest.mark.parametrize(
    "metadata",
    [
        {"names": "{0: 'cat', 1: 'dog'}"},
        {"names": "['cat', 'dog']"},
        {"id2label": '{"0": "cat", "1": "dog"}'},
        {"character": "cat\ndog"},
    ],
)
def test_exporters_write_names_into_the_metadata(metadata: dict[str, str], tmp_path: Path) -> None:
    assert ClassNames(model_in(tmp_path, **metadata)).of(2) == {0: "cat", 1: "dog"}


def test_names_of_another_number_of_classes_are_not_taken(tmp_path: Path) -> None:
    assert not ClassNames(model_in(tmp_path, names="['cat', 'dog']")).of(3)
    assert not ClassNames(model_in(tmp_path, names="{0: 'cat', 2: 'dog'}")).of(2)


def test_the_config_of_hugging_face_beside_the_model_has_names(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {"0": "no", "1": "yes"}}))
    assert ClassNames(model_in(tmp_path)).of(2) == {0: "no", 1: "yes"}
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}))
    assert not ClassNames(model_in(tmp_path)).of(2)


def test_a_file_beside_the_data_comes_before_the_metadata(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("left\nright\n")
    model = model_in(tmp_path / "other", names="['cat', 'dog']")
    assert ClassNames(model, str(tmp_path)).of(2) == {0: "left", 1: "right"}


def test_labels_beside_the_model_are_names_and_numbers_are_none(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("on\noff\n")
    assert ClassNames(model_in(tmp_path)).of(2) == {0: "on", 1: "off"}
    (tmp_path / "labels.txt").write_text("1\n0\n")
    assert not ClassNames(model_in(tmp_path)).of(2)


def test_folders_of_pictures_are_the_classes_where_nothing_else_says(tmp_path: Path) -> None:
    for name in ("90", "0", "180"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "a.png").write_bytes(b"")
    data = PreprocessedData(str(tmp_path / "data"), "imagenet")
    assert ClassNames(model_in(tmp_path), data).of(3) == {0: "0", 1: "90", 2: "180"}
    assert not ClassNames(model_in(tmp_path), data).stated(3)
    named = model_in(tmp_path, character="up\nleft\ndown")
    assert ClassNames(named, data).of(3) == {0: "up", 1: "left", 2: "down"}


def test_the_truth_may_have_names(tmp_path: Path) -> None:
    assert ClassNames(model_in(tmp_path), None, ("benign", "malignant")).of(2)[1] == "malignant"
