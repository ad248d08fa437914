"""The rules of the house that a machine can hold: layers, commands, configurations, style, types."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from textwrap import indent

import click
import pytest
from qprof_onnx.cli.main import COMMANDS, main, module_of
from qprof_onnx.cli.options import FiniteNumber, GroupedCommand, GroupedOption
from qprof_onnx.quantizer.targets.loading import load_recipe
from qprof_onnx.quantizer.targets.packaged import target_names

from .test_siblings import PLUGINS

ROOT = Path(__file__).parent.parent
LAYERS: tuple[tuple[str, ...], ...] = (
    ("cli/entry.py",),
    ("cli/main.py",),
    tuple(f"quantizer/plugins/{name}" for name in PLUGINS),
    ("cli/commands",),
    ("cli/options.py", "cli/schemas.py"),
    ("cli/console.py", "cli/interruptions.py"),
    ("quantizer/api",),
    ("quantizer/search",),
    ("quantizer/evaluation",),
    ("quantizer/planning", "quantizer/lowering"),
    ("quantizer/adjustments",),
    ("quantizer/noise", "quantizer/costs"),
    ("quantizer/plan",),
    ("quantizer/targets", "quantizer/prepare"),
    ("quantizer/operators",),
    ("quantizer/model", "quantizer/numerics"),
    ("profiles/runner",),
    ("profiles/instrumentation", "profiles/observers"),
    ("profiles/runtime",),
    ("profiles/samples",),
    ("profiles/records",),
    ("profiles/base",),
)
"""The rooms, from the top: a room imports rooms of lower lines only, and none of its own line."""
LEVELS = {room: level for level, line in enumerate(LAYERS) for room in line}
TOPS = ("profiles", "quantizer", "cli")
DOORS = {"quantizer/qprof_onnx/__init__.py", "quantizer/qprof_onnx/__main__.py"}
"""What is the import root once installed, and so above all rooms."""
SOURCES = sorted(
    path for top in TOPS for path in (ROOT / top).rglob("*.py") if str(path.relative_to(ROOT)) not in DOORS
)
MODULES = {
    path.relative_to(ROOT).with_suffix("").as_posix().removesuffix("/__init__"): path for path in SOURCES
}
ROOMS = sorted(room for room in LEVELS if not room.endswith(".py"))
BUDGETS = {"core": 49_392, "plug-ins": 22_865}
"""Lines of Python that the product has at most. A change may lower them, and none may raise them."""
HEAVY = ("numpy", "onnx", "onnx_ir", "onnxruntime", "rich", "yaml")
UNUSED = (
    "sympy.core",
    "onnx.reference",
    "tarfile",
    "qprof_onnx.quantizer.search",
    "qprof_onnx.quantizer.lowering",
    "qprof_onnx.quantizer.plan.plan",
)


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


@cache
def imports_of(path: Path) -> list[tuple[str, int]]:
    """Return what a source file of the checkout imports."""
    return list(imported(path.read_text(encoding="utf-8"), path.relative_to(ROOT).parent.parts))


def room_of(path: Path) -> str | None:
    """Return the room of a file, which the begin of its path names; None for what is in no room."""
    place = path.relative_to(ROOT).as_posix()
    parts = place.split("/")
    room = place if place in LEVELS else "/".join(parts[: 3 if "plugins" in parts else 2])
    return room if room in LEVELS else None


def rooms_used(path: Path) -> Iterator[tuple[str, int]]:
    """Yield each other room that a file imports something of when it runs, and the line."""
    for node in running_imports_of(path):
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


@cache
def running_imports_of(path: Path) -> tuple[ast.ImportFrom, ...]:
    """Return the relative imports of a source file but for those that only a type checker sees."""
    return tuple(running_imports(ast.parse(path.read_text(encoding="utf-8"))))


def commands() -> dict[str, click.Command]:
    """Return the commands as the group finds them."""
    found = {name: main.get_command(click.Context(main), name) for name in COMMANDS}
    return {name: command for name, command in found.items() if command is not None}


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


def test_a_file_imports_rooms_of_lower_layers_only() -> None:
    offenders = [
        f"{path.relative_to(ROOT)}:{line} imports {used}"
        for path in SOURCES
        for used, line in rooms_used(path)
        if (room := room_of(path)) is None or LEVELS[used] <= LEVELS[room]
    ]
    assert not offenders


def plugin_of(name: str) -> str:
    """Return the plug-in that a dotted name leads into; "" for a name of the core."""
    return name.split(".")[2] if name.startswith("quantizer.plugins.") else ""


def test_a_plugin_is_imported_by_itself_alone() -> None:
    offenders = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in SOURCES
        for name, line in imports_of(path)
        if plugin_of(name) not in ("", plugin_of(".".join(path.relative_to(ROOT).parts)))
    ]
    assert not offenders


def test_a_file_is_in_a_room() -> None:
    tops = {ROOT / top / "__init__.py" for top in (*TOPS, "quantizer/plugins")}
    assert not [path for path in SOURCES if room_of(path) is None and path not in tops]


def test_no_room_grows_beyond_its_budget() -> None:
    lines = Counter(dict.fromkeys(BUDGETS, 0))
    rooms: Counter[str] = Counter()
    for path in SOURCES:
        count = len(path.read_text(encoding="utf-8").splitlines())
        room = room_of(path) or "tops"
        rooms[room] += count
        lines["plug-ins" if "plugins" in path.relative_to(ROOT).parts else "core"] += count
    print(*(f"{count:7,} {room}" for room, count in sorted(rooms.items())), sep="\n")
    print(dict(lines))
    assert not {room: count for room, count in lines.items() if count > BUDGETS[room]}


def test_the_init_of_a_room_is_a_docstring_that_says_what_the_room_is() -> None:
    trees = {room: ast.parse((ROOT / room / "__init__.py").read_text(encoding="utf-8")) for room in ROOMS}
    assert not [room for room, tree in trees.items() if len(tree.body) != 1 or not ast.get_docstring(tree)]


def test_no_private_name_is_imported_from_another_module() -> None:
    compiled = {"_counter", "_channels", "_blocks"}
    offenders = [
        f"{path.relative_to(ROOT)}: {alias.name}"
        for path in SOURCES
        for node in running_imports_of(path)
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__") and alias.name not in compiled
    ]
    assert not offenders


def test_imports_inside_the_packages_are_relative() -> None:
    assert not [
        f"{path.relative_to(ROOT)}:{line}"
        for path in SOURCES
        for name, line in imports_of(path)
        if name.split(".")[0] == "qprof_onnx"
    ]


def test_a_command_has_help_with_an_example() -> None:
    texts = {
        name: command.get_help(click.Context(command, info_name=name)) for name, command in commands().items()
    }
    assert not [name for name, text in texts.items() if f"  qprof {name} " not in text]


def test_a_command_with_more_than_eight_options_lists_them_under_headings() -> None:
    for command in commands().values():
        options = [p for p in command.params if isinstance(p, click.Option)]
        if len(options) > 8:
            assert isinstance(command, GroupedCommand)
            assert not [o.name for o in options if not isinstance(o, GroupedOption)]


def test_every_option_of_a_command_has_a_help_text() -> None:
    assert not [
        f"{name} --{option.name}"
        for name, command in commands().items()
        for option in command.params
        if isinstance(option, click.Option) and not option.help
    ]


def test_every_command_in_the_folder_is_in_the_table() -> None:
    found = {f"qprof_onnx.{name.replace('/', '.')}" for name in MODULES if "commands" in name.split("/")[:-1]}
    commands = {name for name in found if hasattr(importlib.import_module(name), "command")}
    listed = {f"qprof_onnx.{module_of(name).module}" for name in COMMANDS}
    assert commands == listed, "give each command a line in COMMAND_GROUPS of cli/main.py"


def help_run(*names: str) -> subprocess.CompletedProcess[str]:
    """Run `qprof NAME --help` for each name in a process of its own; it tells which import what is heavy."""
    code = (
        "import sys\n"
        "from qprof_onnx.cli.main import main\n"
        f"for words in {[[*filter(None, [name]), '--help'] for name in names]}:\n"
        "    main(words, prog_name='qprof', standalone_mode=False)\n"
        f"    heavy = [name for name in {HEAVY} if name in sys.modules]\n"
        "    print(*(['HEAVY', *words, *heavy] if heavy else []))"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_help_imports_nothing_heavy() -> None:
    result = help_run("")
    assert "HEAVY" not in result.stdout
    assert all(name in result.stdout for name in COMMANDS)


def test_help_of_a_command_imports_nothing_heavy() -> None:
    assert not [line for line in help_run(*COMMANDS).stdout.splitlines() if line.startswith("HEAVY")]


def command_run(words: Sequence[object], code: str) -> str:
    """Run a command as `qprof` does, then code in the same process; return what both print."""
    whole = (
        "import sys\n"
        "from qprof_onnx.cli.entry import run\n"
        f"sys.argv = {['qprof', *map(str, words)]}\n"
        "try:\n"
        "    run()\n"
        f"finally:\n{indent(code, '    ')}"
    )
    return subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=True).stdout


def test_a_profile_is_made_without_what_other_commands_import(tmp_path: Path) -> None:
    digits = ROOT / "examples" / "digits"
    words = (
        "dump-profile",
        digits / "model.onnx",
        "--data",
        digits / "calibration",
        "-o",
        tmp_path / "p.yaml",
    )
    found = command_run(words, f"print('UNUSED', *(name for name in {UNUSED} if name in sys.modules))")
    assert found.splitlines()[-1] == "UNUSED"


def test_dimensions_with_names_can_be_computed_with_in_a_command() -> None:
    code = "import onnx_ir\nprint('sympy.core' in sys.modules, (onnx_ir.SymbolicDim('n') + 1).value)"
    assert command_run(["--version"], code).splitlines()[-1] == "False n + 1"


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


def test_every_option_that_is_a_float_refuses_what_is_not_finite() -> None:
    assert not [
        f"{name} --{option.name}: use FiniteNumber"
        for name, command in commands().items()
        for option in command.params
        if isinstance(option.type, click.types.FloatParamType | click.FloatRange)
        and not isinstance(option.type, FiniteNumber)
    ]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
def test_a_number_that_is_not_finite_is_refused_with_what_to_do(value: str) -> None:
    with pytest.raises(click.BadParameter, match="is not finite; give a number, or leave the option out"):
        FiniteNumber().convert(value, None, None)


def test_the_first_use_of_a_public_name_imports_no_sympy_and_leaves_the_interpreter_as_it_was() -> None:
    code = (
        "import gc, sys\n"
        "import qprof_onnx\n"
        "before = gc.get_threshold(), list(sys.meta_path)\n"
        "qprof_onnx.quantize\n"
        "assert (gc.get_threshold(), sys.meta_path) == before\n"
        "assert 'sympy.core' not in sys.modules\n"
        "import onnx_ir\n"
        "assert (onnx_ir.SymbolicDim('n') + 1).value == 'n + 1'\n"
        "from sympy import Symbol\n"
        "assert str(Symbol('x')) == 'x'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
