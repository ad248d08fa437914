"""A folder as exporters write it is a model: which of its files is meant, and its tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from qprof_onnx.profiles.base.errors import ConfigError, ModelError
from qprof_onnx.quantizer.model.files import model_file
from qprof_onnx.quantizer.model.folders import model_in
from qprof_onnx.quantizer.model.output_paths import FilesRead, check_outputs


def folder(path: Path, *names: str) -> Path:
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(b"")
    return path


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("model.onnx", "other.onnx", "model.onnx_data"), "model.onnx"),
        (("onnx/model.onnx", "onnx/model_q4.onnx"), "onnx/model.onnx"),
        (("decoder_model.onnx", "decoder_model_merged.onnx"), "decoder_model_merged.onnx"),
        (("net.onnx", "config.json"), "net.onnx"),
    ],
)
def test_the_file_of_a_folder_has_a_usual_name_or_is_the_only_one(
    tmp_path: Path, names: tuple[str, ...], expected: str
) -> None:
    assert model_in(folder(tmp_path, *names)) == tmp_path / expected
    with model_file(tmp_path) as path:
        assert path == tmp_path / expected


def test_the_settings_of_genai_name_the_decoder(tmp_path: Path) -> None:
    folder(tmp_path, "model.onnx", "decoder.onnx")
    settings = {"model": {"type": "llama", "decoder": {"filename": "decoder.onnx", "head_size": 64}}}
    (tmp_path / "genai_config.json").write_text(json.dumps(settings))
    assert model_in(tmp_path) == tmp_path / "decoder.onnx"
    (tmp_path / "genai_config.json").write_text("{")
    assert model_in(tmp_path) == tmp_path / "model.onnx"


def test_several_files_without_a_usual_name_are_listed(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"only .onnx file, and this folder contains none; name the file"):
        model_in(folder(tmp_path, "config.json"))
    with pytest.raises(ModelError, match=r"contains several \(a.onnx, b.onnx\); name the file"):
        model_in(folder(tmp_path, "a.onnx", "b.onnx"))


def test_the_model_in_a_folder_is_not_written_over(tmp_path: Path) -> None:
    folder(tmp_path, "model.onnx")
    with pytest.raises(ConfigError, match="model"):
        check_outputs([tmp_path / "model.onnx"], FilesRead(models=(tmp_path,)))
    check_outputs([tmp_path / "model.int8.onnx"], FilesRead(models=(tmp_path,)))
