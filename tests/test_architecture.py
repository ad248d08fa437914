"""The rules of the house that a machine can hold: layers, commands, configurations, style, types."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from qprof_onnx.cli.main import COMMANDS, main
from qprof_onnx.quantizer.targets import load_recipe, target_names

ROOT = Path(__file__).parent.parent
LAYERS = {
    "profiles": {"profiles"},
    "quantizer": {"quantizer", "profiles"},
    "cli": {"cli", "quantizer", "profiles"},
}
"""Layer -> the layers that it may import."""
SOURCES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))
HEAVY = ("numpy", "onnx", "onnx_ir", "onnxruntime", "rich", "yaml")


def imported(text: str, package: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Yield each module that a source imports and the line; relative ones with the checkout as their root."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *filter(None, [node.module])])
            # `from . import x` imports the module x.
            names = [module] if node.module else [f"{module}.{alias.name}" for alias in node.names]
            yield from ((name.strip("."), node.lineno) for name in names)


def imports_of(path: Path) -> list[tuple[str, int]]:
    """Return what a source file of the checkout imports."""
    return list(imported(path.read_text(encoding="utf-8"), path.relative_to(ROOT).parent.parts))


def own_imports(path: Path) -> list[tuple[str, int]]:
    """Return the imports of modules of this checkout."""
    return [(name, line) for name, line in imports_of(path) if name.split(".")[0] in LAYERS]


def command_file(name: str) -> Path:
    """Return the file of a command."""
    return ROOT / "cli" / f"{name.replace('-', '_')}.py"


def command_object(name: str) -> click.Command:
    """Return a command as the group finds it."""
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return command


def test_the_reader_of_imports_sees_every_kind() -> None:
    lines = [
        "import a.b",
        "from ..profiles.errors import E",
        "from .. import cli",
        "from . import plan",
        "def f(): import c",
    ]
    found = {name for name, _ in imported("\n".join(lines), ("quantizer", "lowering"))}
    assert found == {"a.b", "quantizer.profiles.errors", "quantizer.cli", "quantizer.lowering.plan", "c"}
    assert dict(imported("from ..profiles.errors import E", ("quantizer",))) == {"profiles.errors": 1}
    assert dict(imported("from .. import cli", ("quantizer",))) == {"cli": 1}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_from_cli_to_quantizer_to_profiles(path: Path) -> None:
    layer = path.relative_to(ROOT).parts[0]
    upward = [
        f"{path}:{line} {name}" for name, line in own_imports(path) if name.split(".")[0] not in LAYERS[layer]
    ]
    assert not upward


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_inside_the_packages_are_relative(path: Path) -> None:
    assert not [name for name, _ in imports_of(path) if name.split(".")[0] == "qprof_onnx"]


def test_lowering_and_planner_meet_in_the_plan_alone() -> None:
    lowering = [
        name for path in (ROOT / "quantizer" / "lowering").rglob("*.py") for name, _ in own_imports(path)
    ]
    planner = [name for name, _ in own_imports(ROOT / "quantizer" / "planner.py")]
    assert "quantizer.plan" in lowering
    assert "quantizer.plan" in planner
    assert not [name for name in lowering if name.startswith("quantizer.planner")]
    assert not [name for name in planner if name.startswith("quantizer.lowering")]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_a_short_file_of_its_own(name: str) -> None:
    assert len(command_file(name).read_text(encoding="utf-8").splitlines()) < 60


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_help_with_an_example(name: str) -> None:
    text = command_object(name).get_help(click.Context(command_object(name), info_name=name))
    assert f"  qprof {name} " in text


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_tells_what_the_command_itself_tells(name: str) -> None:
    assert command_object(name).name == name
    assert command_object(name).get_short_help_str(limit=200) == COMMANDS[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_has_a_help_text(name: str) -> None:
    options = [p for p in command_object(name).params if isinstance(p, click.Option)]
    assert not [option.name for option in options if not option.help]


def test_every_command_in_the_folder_is_in_the_table() -> None:
    files = {path.stem for path in (ROOT / "cli").glob("*.py")}
    commands = {
        stem for stem in files if hasattr(importlib.import_module(f"qprof_onnx.cli.{stem}"), "command")
    }
    assert commands == {name.replace("-", "_") for name in COMMANDS}


def help_run() -> subprocess.CompletedProcess[str]:
    """Run `qprof --help` in a process of its own and print the heavy modules that it imported."""
    code = (
        "import sys\n"
        "from qprof_onnx.cli.main import main\n"
        "main(['--help'], prog_name='qprof', standalone_mode=False)\n"
        f"print('HEAVY', [name for name in {HEAVY} if name in sys.modules])"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_help_imports_nothing_heavy() -> None:
    result = help_run()
    assert result.stdout.splitlines()[-1] == "HEAVY []"
    assert all(name in result.stdout for name in COMMANDS)


def test_help_takes_less_than_a_fifth_of_a_second() -> None:
    seconds = []
    for _ in range(
        5
    ):  # processor time, and the fastest of five: other work on the machine is not our subject
        before = os.times()
        help_run()
        after = os.times()
        used = (after.children_user - before.children_user, after.children_system - before.children_system)
        seconds.append(sum(used))
    assert min(seconds) < 0.2


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "configs").glob("*.yaml")))
def test_a_configuration_loads_by_name_and_by_path(name: str) -> None:
    assert name in target_names()
    assert load_recipe(name) == load_recipe(ROOT / "configs" / f"{name}.yaml")


@pytest.mark.parametrize(
    "arguments",
    [("ruff", "check"), ("ruff", "format", "--check"), ("mypy",)],
    ids=["ruff check, docstrings of public functions included", "ruff format", "mypy --strict"],
)
def test_the_checkout_passes(arguments: tuple[str, ...]) -> None:
    result = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
