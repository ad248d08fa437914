"""Settings that lie beside a model: what they may say, and what is passed over with a note."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from qprof_onnx.profiles.base.json_values import MAX_SETTINGS_BYTES, settings_beside
from qprof_onnx.profiles.samples.states import FloatModel
from qprof_onnx.quantizer.model.folders import model_in

NO_SETTINGS = {
    "nested deeply": "[" * 200_000,
    "nested mappings": '{"a":' * 200_000,
    "a list": "[]",
    "a number": "5",
    "null": "null",
    "a text": '"model.onnx"',
    "cut off": '{"model": {"decoder"',
    "a number of many digits": '{"head_dim": ' + "9" * 10_000 + "}",
    "not UTF-8": b'\xff\xfe{"model": 1}',
    "empty": "",
    "huge": '{"a": "' + " " * MAX_SETTINGS_BYTES + '"}',
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "f"
    made.mkdir()
    for name in ("f/model.onnx", "f/decoder.onnx", "outside.onnx"):
        (tmp_path / name).write_bytes(b"model")
    return made


def write(path: Path, content: str | bytes) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize("content", NO_SETTINGS.values(), ids=NO_SETTINGS)
def test_a_file_that_is_no_settings_is_passed_over_with_a_note(
    folder: Path, content: str | bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("genai_config.json", "config.json"):
        write(folder / name, content)
    assert model_in(folder) == folder / "model.onnx"
    assert FloatModel((), None, folder).setting("head_dim") is None  # type: ignore[arg-type]
    notes = [record.getMessage() for record in caplog.records]
    assert [note.split(":")[0] for note in notes] == [
        str(folder / "genai_config.json"),
        str(folder / "config.json"),
    ]
    assert all("passed over" in note and "\n" not in note and len(note) < 300 for note in notes)


def test_without_a_file_or_with_a_folder_of_its_name_there_is_nothing_to_say(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "config.json").mkdir()
    assert settings_beside(folder / "config.json") == settings_beside(folder / "none.json") == {}
    assert not caplog.records


OUTSIDE = ("../outside.onnx", "{parent}/outside.onnx", "link.onnx", "up/outside.onnx", "x/../../outside.onnx")


@pytest.mark.parametrize("filename", [*OUTSIDE, 5, ["a"], {}])
def test_a_name_that_leads_out_of_the_folder_is_passed_over(
    folder: Path, filename: object, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "link.onnx").symlink_to("../outside.onnx")
    (folder / "up").symlink_to("..")
    (folder / "x").mkdir()
    if isinstance(filename, str):
        filename = filename.format(parent=folder.parent)
    (folder / "genai_config.json").write_text(json.dumps({"model": {"decoder": {"filename": filename}}}))
    assert model_in(folder) == folder / "model.onnx"
    assert "passed over" in caplog.text


@pytest.mark.parametrize(
    "settings", [{}, {"model": []}, {"model": {"decoder": 3}}, {"model": {"decoder": {}}}]
)
def test_settings_that_name_no_file_say_nothing(
    folder: Path, settings: object, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "genai_config.json").write_text(json.dumps(settings))
    assert model_in(folder) == folder / "model.onnx"
    assert not caplog.records


def test_a_name_in_the_folder_is_taken_also_where_all_files_are_links_to_one_store(tmp_path: Path) -> None:
    settings = json.dumps({"model": {"decoder": {"filename": "decoder.onnx"}}})
    store, snapshot, plain = (tmp_path / name for name in ("blobs", "snapshot", "plain"))
    for made in (store, snapshot, plain):
        made.mkdir()
    for name, content in {"genai_config.json": settings, "decoder.onnx": "d", "model.onnx": "m"}.items():
        (store / f"of-{name}").write_text(content)
        (plain / name).write_text(content)
        (snapshot / name).symlink_to(f"../blobs/of-{name}")
    assert model_in(snapshot) == snapshot / "decoder.onnx"
    assert model_in(plain) == plain / "decoder.onnx"


@pytest.mark.parametrize("value", [True, -4, 0, 2.5, "64", None, [64], {}])
def test_a_size_of_another_type_is_no_size(folder: Path, value: object) -> None:
    (folder / "config.json").write_text(json.dumps({"head_dim": value, "n_head": 8}))
    model = FloatModel((), None, folder)  # type: ignore[arg-type]
    assert model.setting("head_dim") is None
    assert model.setting("head_dim", "n_head") == 8
