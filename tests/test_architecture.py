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
from qprof_onnx.cli.options.groups import GroupedCommand, GroupedOption
from qprof_onnx.cli.options.numbers import FiniteNumber
from qprof_onnx.quantizer.targets.loading import load_recipe
from qprof_onnx.quantizer.targets.packaged import target_names

ROOT = Path(__file__).parent.parent
LAYERS: tuple[tuple[str, ...], ...] = (
    ("cli/entry.py",),
    ("cli/main.py",),
    ("cli/commands",),
    ("cli/options", "cli/render"),
    ("cli/console.py", "cli/interruptions.py"),
    ("quantizer/front_door",),
    ("quantizer/report",),
    ("quantizer/one_shot", "quantizer/parts"),
    ("quantizer/pipeline", "quantizer/tuning", "quantizer/reference"),
    ("quantizer/scoring", "quantizer/verdict"),
    ("quantizer/speed", "quantizer/evaluation"),
    ("quantizer/exchange",),
    ("quantizer/planning", "quantizer/lowering"),
    ("quantizer/noise_budget",),
    (
        "quantizer/noise",
        "quantizer/equalization",
        "quantizer/rounding",
        "quantizer/costs",
        "quantizer/low_bits",
    ),
    ("quantizer/outputs", "quantizer/ranges", "quantizer/plan"),
    ("quantizer/targets", "quantizer/prepare", "quantizer/noise_runs"),
    ("quantizer/operators", "quantizer/cost_table", "quantizer/machine"),
    ("quantizer/metrics",),
    ("quantizer/runtime", "quantizer/differences"),
    ("quantizer/model", "quantizer/numerics"),
    ("profiles/runner",),
    ("profiles/instrumentation", "profiles/observers"),
    ("profiles/runtime",),
    ("profiles/samples",),
    ("profiles/readers",),
    ("profiles/storage",),
    ("profiles/records",),
    ("profiles/noise", "profiles/checks"),
    ("profiles/base",),
)
"""The rooms, from the top: a room imports rooms of lower lines only, and none of its own line."""
LEVELS = {room: level for level, line in enumerate(LAYERS) for room in line}
TOPS = ("profiles", "quantizer", "cli")
DOORS = {"quantizer/api/__init__.py"}
"""What is the import root once installed, and so above all rooms."""
SOURCES = sorted(
    path for top in TOPS for path in (ROOT / top).rglob("*.py") if str(path.relative_to(ROOT)) not in DOORS
)
MODULES = {
    path.relative_to(ROOT).with_suffix("").as_posix().removesuffix("/__init__"): path for path in SOURCES
}
ROOMS = sorted(room for room in LEVELS if not room.endswith(".py"))
MOST_MODULES = {"cli/commands": len(COMMANDS)}
"""A room has at most ten modules, but for the one with a module for each command."""
LONGEST = 400
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


def room_of(path: Path) -> str | None:
    """Return the room of a file, which the first two parts of its path name; None for what is in no room."""
    place = path.relative_to(ROOT).as_posix()
    room = place if place in LEVELS else "/".join(place.split("/")[:2])
    return room if room in LEVELS else None


def rooms_used(path: Path) -> Iterator[tuple[str, int]]:
    """Yield each other room that a file imports something of when it runs, and the line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in running_imports(tree):
        package = path.relative_to(ROOT).parent.parts
        base = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
        for alias in node.names:
            parts = "/".join(filter(None, base))
            target = MODULES.get(f"{parts}/{alias.name}") or MODULES.get(parts)
            room = None if target is None else room_of(target)
            if room is not None and room != room_of(path):
                yield room, node.lineno


def running_imports(tree: ast.AST) -> Iterator[ast.ImportFrom]:
    """Yield the relative imports but for those that only a type checker sees."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            yield node
        yield from running_imports(node)


def command_file(name: str) -> Path:
    """Return the file of a command."""
    return ROOT / "cli" / "commands" / f"{name.replace('-', '_')}.py"


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
def test_a_file_imports_rooms_of_lower_layers_only(path: Path) -> None:
    room = room_of(path)
    if room is None:
        assert path.name == "__init__.py"
        assert not list(rooms_used(path))
        return
    assert not [(used, line) for used, line in rooms_used(path) if LEVELS[used] <= LEVELS[room]]


def test_the_architecture_page_shows_the_layers() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    shown = page.partition("<!-- layers -->\n```\n")[2].partition("```")[0]
    assert shown == "".join(f"{', '.join(line)}\n" for line in LAYERS)


def test_a_file_is_in_a_room() -> None:
    tops = {ROOT / top / "__init__.py" for top in TOPS}
    assert not [path for path in SOURCES if room_of(path) is None and path not in tops]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_small_enough_to_be_seen_at_a_glance(room: str) -> None:
    for folder in [ROOT / room, *(f for f in (ROOT / room).iterdir() if f.is_dir() and f.name[0] != "_")]:
        modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(modules) <= MOST_MODULES.get(room, 10)
        assert not [
            path.name for path in modules if len(path.read_text(encoding="utf-8").splitlines()) > LONGEST
        ]


@pytest.mark.parametrize("room", ROOMS)
def test_the_docstring_of_a_room_says_what_it_is_and_nothing_else_is_in_its_init(room: str) -> None:
    tree = ast.parse((ROOT / room / "__init__.py").read_text(encoding="utf-8"))
    assert len(tree.body) == 1
    assert ast.get_docstring(tree)


@pytest.mark.parametrize("room", [room for room in ROOMS if not room.startswith("cli/")])
def test_the_docstring_of_a_room_names_the_rooms_that_it_imports(room: str) -> None:
    text = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text(encoding="utf-8"))) or ""
    line = " ".join(text[text.index("Imports: ") :].split())
    own = room.split("/", maxsplit=1)[0] + "/"
    used = {used for path in (ROOT / room).rglob("*.py") for used, _ in rooms_used(path)}
    names = sorted(used, key=lambda name: (LEVELS[name], name))
    expected = ", ".join(name.removeprefix(own).replace("/", ".") for name in names) or "none"
    assert line == f"Imports: {expected}."


def test_only_tests_import_the_reference_implementations() -> None:
    users = [path for path in SOURCES for room, _ in rooms_used(path) if room == "quantizer/reference"]
    assert not users


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_private_name_is_imported_from_another_module(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [alias.name for node in running_imports(tree) for alias in node.names]
    compiled = {"_counter", "_channels"}
    assert not [
        name for name in names if name.startswith("_") and not name.startswith("__") and name not in compiled
    ]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_inside_the_packages_are_relative(path: Path) -> None:
    assert not [name for name, _ in imports_of(path) if name.split(".")[0] == "qprof_onnx"]


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
def test_a_command_with_more_than_eight_options_lists_them_under_headings(name: str) -> None:
    options = [p for p in command_object(name).params if isinstance(p, click.Option)]
    if len(options) > 8:
        assert isinstance(command_object(name), GroupedCommand)
        assert not [o.name for o in options if not isinstance(o, GroupedOption)]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_has_a_help_text(name: str) -> None:
    options = [p for p in command_object(name).params if isinstance(p, click.Option)]
    assert not [option.name for option in options if not option.help]


def test_every_command_in_the_folder_is_in_the_table() -> None:
    files = {path.stem for path in (ROOT / "cli" / "commands").glob("*.py")} - {"__init__"}
    commands = {
        stem
        for stem in files
        if hasattr(importlib.import_module(f"qprof_onnx.cli.commands.{stem}"), "command")
    }
    assert commands == {name.replace("-", "_") for name in COMMANDS}


def help_run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run `qprof COMMAND --help` in a process of its own and print the heavy modules that it imported."""
    code = (
        "import sys\n"
        "from qprof_onnx.cli.main import main\n"
        f"main({[*command, '--help']}, prog_name='qprof', standalone_mode=False)\n"
        f"print('HEAVY', [name for name in {HEAVY} if name in sys.modules])"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_help_imports_nothing_heavy() -> None:
    result = help_run()
    assert result.stdout.splitlines()[-1] == "HEAVY []"
    assert all(name in result.stdout for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_imports_nothing_heavy(command: str) -> None:
    assert help_run(command).stdout.splitlines()[-1] == "HEAVY []"


@pytest.mark.parametrize(
    ("command", "limit"), [((), 0.1), *(((name,), 0.2) for name in COMMANDS)], ids=["qprof", *COMMANDS]
)
def test_help_is_fast(command: tuple[str, ...], limit: float) -> None:
    seconds = []
    for _ in range(
        5
    ):  # processor time, and the fastest of five: other work on the machine is not our subject
        before = os.times()
        help_run(*command)
        after = os.times()
        used = (after.children_user - before.children_user, after.children_system - before.children_system)
        seconds.append(sum(used))
    assert min(seconds) < limit


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


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_function_has_more_than_seven_parameters(path: Path) -> None:
    functions = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert not [node.name for node in functions if len(parameters(node.args)) > 7]


def parameters(arguments: ast.arguments) -> list[str]:
    """Return the names of all parameters but self and cls."""
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [argument.arg for argument in every if argument.arg not in ("self", "cls")]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_that_is_a_float_refuses_what_is_not_finite(name: str) -> None:
    for option in command_object(name).params:
        if isinstance(option.type, click.types.FloatParamType | click.FloatRange):
            assert isinstance(option.type, FiniteNumber), f"{option.name}: use FiniteNumber"


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
def test_a_number_that_is_not_finite_is_refused_with_what_to_do(value: str) -> None:
    with pytest.raises(click.BadParameter, match="is not finite; give a number, or leave the option out"):
        FiniteNumber().convert(value, None, None)
