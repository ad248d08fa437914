"""Where the names of a model's classes come from."""

from __future__ import annotations

import json
from pathlib import Path

import onnx_ir as ir
import pytest
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


def test_the_truth_may_have_names(tmp_path: Path) -> None:
    assert ClassNames(model_in(tmp_path), ("benign", "malignant")).of(2)[1] == "malignant"
