"""Every parameter of a command that names a file says whether it is read or written."""

from __future__ import annotations

import shutil
from dataclasses import fields
from pathlib import Path

import click
import pytest
from qprof_onnx.cli.main import COMMANDS, main
from qprof_onnx.cli.options import DataRead, FileCommand, FileRead, FileWritten, FolderWritten
from qprof_onnx.profiles.runner.settings import RunSettings

from .running import qprof

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
LIKE_FILES = (".onnx", ".yaml", ".json", ".svg", "FILE", "DIR", "MODULE")
"""What the metavar of a parameter has that takes a path, or leads to one."""


def parameters(name: str) -> list[click.Parameter]:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return command.params


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_compares_what_it_writes_with_what_it_reads_and_the_weights_of_models(name: str) -> None:
    files = [p for p in parameters(name) if isinstance(p.type, FileRead | FileWritten | DataRead)]
    assert not files or isinstance(main.get_command(click.Context(main), name), FileCommand)
    for parameter in parameters(name):
        kind = parameter.type
        if isinstance(kind, FileRead):
            assert kind.is_model == (".onnx" in (parameter.metavar or "")), parameter.name
        elif isinstance(kind, click.Path | click.File):
            assert isinstance(kind, FileWritten | FolderWritten), parameter.name
        elif any(part in (parameter.metavar or "") for part in LIKE_FILES):
            assert isinstance(kind, DataRead), parameter.name


def test_the_defaults_of_a_run_are_those_of_its_settings() -> None:
    """An option that is not given is not handed on: the record alone has the default, and help tells it."""
    defaults = {field.name: field.default for field in fields(RunSettings)}
    options = [p for p in parameters("dump-profile") if p.name in defaults and isinstance(p, click.Option)]
    assert all(not option.to_info_dict()["default"] for option in options)
    told = {o.name: o.help or "" for o in options}
    assert told["keep_samples"].endswith("[default: 128]")
    numbers = {name: default for name, default in defaults.items() if isinstance(default, float)}
    assert all(told[name].endswith(f"[default: {default}]") for name, default in numbers.items())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("modle.onnx", "model.onnx", "--data", "d"),
            "modle.onnx: no such file or folder; check the path. Did you mean 'model.onnx'?",
        ),
        (
            ("model.onnx", "none/q.onnx", "--data", "d"),
            "none/q.onnx: no such file or folder; check the path. There is no folder 'none'.",
        ),
        (
            ("model.onnx", "model.onnx", "--data", "d", "--labels", "lables.txt"),
            "--labels: lables.txt: no such file or folder; check the path. Did you mean 'labels.txt'?",
        ),
        (
            ("model.onnx", "model.onnx", "--data", "held/"),
            "held/: no such folder or file; check the path, or "
            "give FILE.py:FUNCTION. Did you mean 'heldout'?",
        ),
        (
            ("nowhere.onnx", "model.onnx", "--data", "d"),
            "nowhere.onnx: no such file or folder; check the path.",
        ),
    ],
)
def test_a_file_that_is_not_there_is_told_with_its_option_and_the_nearest_name(
    words: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(DIGITS / "model.onnx", "model.onnx")
    Path("labels.txt").write_text("0\n")
    Path("heldout").mkdir()
    result = qprof("evaluate", *words)
    assert (result.exit_code, result.stderr) == (2, f"error: {told}\n")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--cost-model", "off"], "cost_model=off"),
        (["--tolerance=1%"], "tolerance=1%"),
        (["--min-output-sqnr", "-1"], "min_output_sqnr=-1"),
    ],
)
def test_an_option_that_is_only_a_setting_is_read_as_set_with_a_note(words: list[str], line: str) -> None:
    model = str(DIGITS / "model.onnx")
    result = qprof("quantize", model, "--as", "weight-only-8", "-o", "/nowhere/q.onnx", *words)
    assert f"note: {words[0].split('=')[0]} is a setting now: --set {line}\n" in result.stderr
    assert "No such option" not in result.stderr
