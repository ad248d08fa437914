"""The next command at the end of each command."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from qprof_onnx.cli.main import COMMANDS, main
from qprof_onnx.cli.render.endings.next_command import FOLLOWING, next_command

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
FILES = {
    **{"model": "my model.onnx", "output": "out.yaml", "data": "samples/", "quantized": "q.onnx"},
    **{"profile": "p.yaml", "old": "a.yaml", "new": "b.yaml", "target": "glow", "output_file": "t.onnx"},
}


@pytest.mark.parametrize("name", FOLLOWING)
@pytest.mark.parametrize("failed", [False, True])
def test_what_follows_a_command_is_a_command_with_its_options(name: str, failed: bool) -> None:
    text = next_command(name, {**FILES, "failed": failed})
    assert text is not None
    words = shlex.split(text)
    assert words[0] == "qprof"
    command = main.get_command(click.Context(main), words[1])
    assert command is not None
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_every_command_is_followed_by_one_or_shows_something_and_ends_there() -> None:
    ending = {"show", "schema", "explain", "instrument", "report"}
    assert COMMANDS.keys() - FOLLOWING.keys() == ending
    assert all(next_command(name, FILES) is None for name in ending)


@pytest.mark.parametrize(
    ("name", "found", "wanted"),
    [
        ("dump-profile", {}, "quantize 'my model.onnx' --profile out.yaml -o 'my model.int8.onnx'"),
        ("evaluate", {"sqnr": 22.6}, "evaluate 'my model.onnx' q.onnx --data samples/ --min-sqnr 21"),
        ("evaluate", {"failed": True}, "compare-layers 'my model.onnx' q.onnx --data samples/ --worst 10"),
        ("quantize", {"data": None, "preprocess": None}, "evaluate 'my model.onnx' out.yaml --data DATA"),
        (
            "quantize",
            {"preprocess": "imagenet", "sqnr": 30.0, "grade": "good"},
            "evaluate 'my model.onnx' out.yaml --data samples/ --preprocess imagenet --min-sqnr 29",
        ),
        (
            "sensitivity",
            {"keep_float_found": ("a", "b")},
            "quantize 'my model.onnx' --profile p.yaml -o 'my model.int8.onnx' --keep-float a --keep-float b",
        ),
        (
            "evaluate",
            {"failed": True, "data": "https://me:secret@host/set/?sig=secret"},
            "compare-layers 'my model.onnx' q.onnx --data https://host/set/ --worst 10",
        ),
        ("tune", {"failed": True}, "sensitivity 'my model.onnx' --profile p.yaml --data samples/"),
    ],
)
def test_the_next_command_has_the_users_files(name: str, found: dict[str, Any], wanted: str) -> None:
    assert next_command(name, {**FILES, **found}) == f"qprof {wanted}"


def test_it_is_told_on_stderr_and_not_after_json(profile: Path, tmp_path: Path) -> None:
    words = [
        "quantize",
        str(DIGITS / "model.onnx"),
        "--profile",
        str(profile),
        "-o",
        str(tmp_path / "q.onnx"),
    ]
    text, json = (CliRunner().invoke(main, [*words, *more]) for more in ([], ["--json"]))
    assert text.stderr.startswith("next      qprof evaluate ")
    assert json.stderr == ""
