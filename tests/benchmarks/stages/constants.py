"""In which range does a tuned constant decide nothing? The column `holds` of `docs/printed.py tuned`.

    python tests/benchmarks/run.py constants digits magika --work DIR

Each call of `tuned` in the source is tried 20 % smaller and 25 % larger, in its module and in those that
import its name, on the profile of variant "qprof". A plan changes if its nodes or its tensors do, with check
samples run as a user has it. `holds` has the values of which none changed the plan of any model.
"""

from __future__ import annotations

import ast
import importlib
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner
from frame import Row, Rows, Stage, table
from qprof_onnx.cli.main import main as qprof
from workbench import Workbench

MOVED = (0.8, 1.25)
"""Factors of a constant."""
Constant = tuple[str, str, float]
"""Module, name and value."""


def constants() -> Iterator[Constant]:
    """Yield the tuned constants that are single numbers."""
    for room in ("quantizer", "profiles"):
        (root,) = map(Path, importlib.import_module(f"qprof_onnx.{room}").__path__)
        for file in sorted(root.rglob("*.py")):
            for line in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(line, ast.Assign) and ast.unparse(line.value).startswith("tuned("):
                    module = ".".join(("qprof_onnx", room, *file.relative_to(root).with_suffix("").parts))
                    name = ast.unparse(line.targets[0])
                    value = getattr(importlib.import_module(module), name)
                    if isinstance(value, int | float):
                        yield module, name, value


@contextmanager
def moved(constant: Constant, value: float) -> Iterator[None]:
    """Give a constant another value, in every module that has it under its name."""
    _, name, old = constant
    holders = [one for key, one in list(sys.modules.items()) if key.startswith("qprof_onnx.")]
    holders = [one for one in holders if vars(one).get(name) is old]
    for one in holders:
        setattr(one, name, value)
    try:
        yield
    finally:
        for one in holders:
            setattr(one, name, old)


def decided(bench: Workbench, folder: Path) -> Any:
    """Return what the plan of a model says of its nodes and tensors."""
    plan = folder / "plan.yaml"
    words = [
        "quantize",
        bench.path,
        "--profile",
        bench.profile(),
        "-o",
        folder / "q.onnx",
        "--save-plan",
        plan,
    ]
    plan.unlink(missing_ok=True)
    CliRunner().invoke(qprof, [str(word) for word in words])
    read = yaml.load(plan.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader) if plan.exists() else {}
    return {part: value for part, value in read.items() if part not in ("origin", "findings")}


def rows(name: str, given: Namespace) -> Iterator[Row]:
    """Yield a row for each constant and factor: whether the plan of a model changes."""
    bench = Workbench(name, given.work)
    with tempfile.TemporaryDirectory() as place:
        before = decided(bench, Path(place))
        for constant in list(constants()):
            module, called, value = constant
            for factor in MOVED:
                with moved(constant, type(value)(value * factor)):
                    changed = decided(bench, Path(place)) != before
                yield {"name": f"{module}.{called}", "value": value, "factor": factor, "changed": changed}


def page(rows: Rows) -> str:
    """Return the range of each constant in which no plan changes, and the models whose plans change."""
    found: dict[str, list[tuple[str, Row]]] = {}
    for model, some in rows.items():
        for row in some:
            found.setdefault(row["name"], []).append((model, row))
    lines = []
    for name, entries in found.items():
        value, changed = entries[0][1]["value"], {row["factor"] for _, row in entries if row["changed"]}
        low, high = (value * (1.0 if factor in changed else factor) for factor in MOVED)
        of = sorted({model for model, row in entries if row["changed"]})
        lines.append((name.removeprefix("qprof_onnx."), value, f"{low:g} to {high:g}", ", ".join(of)))
    return table(("constant", "value", "holds", "plans that change"), lines)


STAGE = Stage(rows, {"constants": page})
