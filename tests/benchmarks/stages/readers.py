"""Other readers of ONNX on what qprof writes: what they load, and what they compute.

    python tests/benchmarks/run.py readers cases --work DIR                     write the cases
    python tests/benchmarks/run.py readers tract tvm --work DIR --install       give them to readers
    python tests/benchmarks/run.py readers --work DIR --known --write           the page of what is known

A subject is a reader (`readers/table.py`), which has an environment of its own in --environments; --install
makes it. Behind the tables, what each reader said is printed.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict
from datetime import date
from pathlib import Path

from frame import Row, Rows, Stage, table
from readers import cases, report, running
from readers.table import READERS, Reader

MODELS = "digits,orientation,magika,transformer"
TITLES = {
    "orientation": "orientation, a mobile net of 73 nodes",
    "transformer": "A transformer layer of 59 nodes",
}
OPERATORS = (
    *(
        "Conv",
        "ConvTranspose",
        "Gemm",
        "MatMul",
        "LSTM",
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Pow",
        "Where",
        "Concat",
    ),
    *("AveragePool", "GlobalAveragePool", "MaxPool", "ReduceMean", "Relu", "Clip", "LeakyRelu", "PRelu"),
    *("Sigmoid", "Tanh", "HardSwish", "Gelu", "Erf", "Exp", "Sqrt", "Softmax", "LayerNormalization"),
    *("Reshape", "Transpose", "Slice", "Split", "Gather", "Resize", "Pad", "DepthToSpace"),
)
"""What convolutional networks and transformers are made of."""


def install(name: str, reader: Reader, environments: Path) -> None:
    """Make the environment of a reader."""
    if reader.node:
        command = ["npm", "install", "--ignore-scripts", "--prefix", str(environments / "node"), *reader.node]
        subprocess.run(command, check=True)
    if reader.packages and not (environments / name).exists():
        subprocess.run([sys.executable, "-m", "venv", environments / name], check=True)
        python = running.python_of(name, reader, environments)
        subprocess.run([python, "-m", "pip", "install", "-q", *reader.packages], check=True)


def rows(name: str, given: Namespace) -> Iterator[Row]:
    """Write the cases, or yield a reader's version, then its outcome of each case of the chosen columns."""
    operators, models = given.operators.split(","), given.models.split(",")
    if name == "cases":
        chosen = [subject for subject in cases.operators() if subject.name in operators]
        for subject in (*chosen, *cases.large_products(), *cases.trained(given.work, models)):
            for case in cases.write_cases(subject, list(cases.COLUMNS), given.work / "cases"):
                print(f"{case.subject}, {case.column}: {case.nodes[0]} of {case.nodes[1]} nodes", flush=True)
        return
    reader, environments = READERS[name], given.environments or given.work / "environments"
    if given.install:
        install(name, reader, environments)
    yield {"version": version_of(name, reader, environments), "made": f"{date.today()}, {platform.machine()}"}
    python = running.python_of(name, reader, environments)
    modules = {"NODE_MODULES": str(environments / "node" / "node_modules")}
    waiting = [
        case
        for key, case in cases.read_cases(given.work / "cases").items()
        if key[1] in given.columns.split(";")
    ]
    for outcome in running.outcomes(reader, python, waiting, modules):
        yield asdict(outcome)


def version_of(name: str, reader: Reader, environments: Path) -> str:
    """Return the version of a reader in its environment."""
    if reader.node:
        package = environments / "node" / "node_modules" / reader.node[0] / "package.json"
        return str(json.loads(package.read_text(encoding="utf-8"))["version"])
    asked = f"from importlib.metadata import version; print(version({reader.version!r}))"
    python = running.python_of(name, reader, environments)
    return subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()


def page(rows: Rows) -> str:
    """Return versions, and the tables of models of one operator and of trained models."""
    shown = {name: some for name, some in rows.items() if name in READERS}
    found = {name: [running.Outcome(**row) for row in some[1:]] for name, some in shown.items()}
    columns, subjects = list(cases.COLUMNS), dict.fromkeys(o.subject for some in found.values() for o in some)
    single = [subject for subject in subjects if subject in (*OPERATORS, *cases.LARGE)]
    versions = [[READERS[name].title, some[0]["version"], some[0]["made"]] for name, some in shown.items()]
    parts = [table(["reader", "version", "run"], versions)]
    parts += ["## Models of one operator", report.overview(found, single, columns)]
    for model in subjects:
        if model not in single:
            parts += [f"## {TITLES.get(model, model)}", report.of_model(found, model, columns)]
    return "\n\n".join(parts)


def troubles(rows: Rows) -> str:
    """Return what each reader does not read, with its messages."""
    parts = []
    for name, some in rows.items():
        if name in READERS:
            outcomes = [running.Outcome(**row) for row in some[1:]]
            parts += [f"## What {name} does not read", report.troubles(outcomes, list(cases.COLUMNS))]
    return "\n\n".join(parts)


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--environments", type=Path, help="folder; DIR/environments if left out")
    parser.add_argument("--models", default=MODELS, help="of the cases")
    parser.add_argument("--operators", default=",".join(OPERATORS), help="of the cases")
    parser.add_argument("--columns", default=";".join(cases.COLUMNS), help="of the table, with ; between")
    parser.add_argument("--install", action="store_true")


STAGE = Stage(rows, {"READERS.md": page, "": troubles}, ("cases", *READERS), options)
