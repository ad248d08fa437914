"""Every parameter of a command that names a file says whether it is read or written."""

from __future__ import annotations

from dataclasses import fields

import click
import pytest
from qprof_onnx.cli.main import COMMANDS, main
from qprof_onnx.cli.options import DataRead, FileCommand, FileRead, FileWritten, FolderWritten
from qprof_onnx.profiles.runner.settings import RunSettings

LIKE_FILES = (".onnx", ".yaml", ".json", ".svg", "FILE", "DIR", "MODULE")
"""What the metavar of a parameter has that takes a path, or leads to one."""


def parameters(name: str) -> list[click.Parameter]:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return command.params


@pytest.mark.parametrize("name", COMMANDS)
def test_a_parameter_that_takes_a_path_says_whether_it_is_read_or_written(name: str) -> None:
    for parameter in parameters(name):
        kind = parameter.type
        if isinstance(kind, click.Path | click.File):
            assert isinstance(kind, FileRead | FileWritten | FolderWritten), parameter.name
        elif any(part in (parameter.metavar or "") for part in LIKE_FILES):
            assert isinstance(kind, DataRead), parameter.name


@pytest.mark.parametrize("name", COMMANDS)
def test_a_parameter_that_reads_a_model_protects_its_weights_too(name: str) -> None:
    for parameter in parameters(name):
        if isinstance(parameter.type, FileRead):
            assert parameter.type.is_model == (".onnx" in (parameter.metavar or "")), parameter.name


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_with_files_compares_what_it_writes_with_what_it_reads(name: str) -> None:
    files = [p for p in parameters(name) if isinstance(p.type, FileRead | FileWritten | DataRead)]
    assert not files or isinstance(main.get_command(click.Context(main), name), FileCommand)


def test_the_defaults_of_a_run_are_those_of_its_settings() -> None:
    """An option that is not given is not handed on: the record alone has the default, and help tells it."""
    settings = {field.name: field.default for field in fields(RunSettings)}
    options = [p for p in parameters("dump-profile") if p.name in settings and isinstance(p, click.Option)]
    assert all(not option.to_info_dict()["default"] for option in options)
    told = {o.name: o.help or "" for o in options}
    assert told["noise_samples"].endswith("[default: 8]")
    numbers = {name: default for name, default in settings.items() if isinstance(default, float)}
    assert all(told[name].endswith(f"[default: {default}]") for name, default in numbers.items())
