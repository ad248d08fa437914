"""Other readers of ONNX on what qprof writes: what they load, and what they compute.

    python tests/benchmarks/onnx_readers.py --work DIR [--environments DIR] [--readers tract,tvm]
        [--models digits,orientation] [--install] [--stages write,run,report] [--write]

In DIR are the models' data (made by real_models.py) and then cases, results and the tables (readers.md), with
what each reader said. --write puts tables, versions and date into READERS.md beside this script.
Each reader has an environment of its own in --environments; --install makes it.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from datetime import date
from pathlib import Path

from readers import cases, report, running
from readers.table import READERS, Reader

PAGE = Path(__file__).with_name("READERS.md")
BEGIN, END = "<!-- results: written by onnx_readers.py -->", "<!-- end of results -->"
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


def write(work: Path, operators: list[str], models: list[str]) -> None:
    """Write every case."""
    subjects = [subject for subject in cases.operators() if subject.name in operators]
    for subject in (*subjects, *cases.large_products(), *cases.trained(work, models)):
        for case in cases.write_cases(subject, list(cases.COLUMNS), work / "cases"):
            print(f"{case.subject}, {case.column}: {case.nodes[0]} of {case.nodes[1]} nodes", flush=True)


def run(name: str, work: Path, environments: Path, columns: list[str]) -> None:
    """Give the cases of these columns to a reader, and keep the outcomes."""
    reader = READERS[name]
    python = running.python_of(name, reader, environments)
    modules = {"NODE_MODULES": str(environments / "node" / "node_modules")}
    path = work / "results" / f"{name}.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    known = {(outcome["subject"], outcome["column"]) for outcome in found}
    cases_by_key = cases.read_cases(work / "cases")
    waiting = [case for key, case in cases_by_key.items() if key not in known and key[1] in columns]
    path.parent.mkdir(exist_ok=True)
    for outcome in running.outcomes(reader, python, waiting, modules):
        found.append(asdict(outcome))
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps(found, indent=0), encoding="utf-8")
        unfinished.replace(path)
    print(f"{name}: {sum(outcome['what'] == 'runs' for outcome in found)} of {len(found)} run", flush=True)


def results_of(work: Path) -> dict[str, list[running.Outcome]]:
    """Return what is known of each reader that was run."""
    results = {}
    for name in READERS:
        path = work / "results" / f"{name}.json"
        if path.exists():
            stored = json.loads(path.read_text(encoding="utf-8"))
            results[name] = [running.Outcome(**record) for record in stored]
    return results


def tables(results: dict[str, list[running.Outcome]], operators: list[str], models: list[str]) -> str:
    """Return the tables of models of one operator and of trained models as Markdown."""
    columns = list(cases.COLUMNS)
    parts = ["## Models of one operator", report.overview(results, [*operators, *cases.LARGE], columns)]
    for model in models:
        if any(outcome.subject == model for outcomes in results.values() for outcome in outcomes):
            parts += [f"## {TITLES.get(model, model)}", report.of_model(results, model, columns)]
    return "\n\n".join(parts)


def troubles(results: dict[str, list[running.Outcome]], operators: list[str], models: list[str]) -> str:
    """Return what each reader does not read, with its messages, as Markdown."""
    subjects = (*operators, *cases.LARGE, *models)
    parts = []
    for name, outcomes in results.items():
        known = [outcome for outcome in outcomes if outcome.subject in subjects]
        parts += [f"## What {name} does not read", report.troubles(known, list(cases.COLUMNS))]
    return "\n\n".join(parts)


def made_with(names: Iterable[str], environments: Path) -> str:
    """Return the date, and the version of each reader in its environment, as Markdown."""
    rows = [["reader", "version"], ["---"] * 2]
    for name in names:
        reader = READERS[name]
        if reader.node:
            package = environments / "node" / "node_modules" / reader.node[0] / "package.json"
            version = json.loads(package.read_text(encoding="utf-8"))["version"]
        else:
            python = running.python_of(name, reader, environments)
            asked = f"from importlib.metadata import version; print(version({reader.version!r}))"
            done = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True)
            version = done.stdout.strip()
        rows.append([reader.title, version])
    return f"Made on {date.today()}, on {platform.machine()}, with these versions:\n\n{report.lines(rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--environments", type=Path)
    parser.add_argument("--readers", default=",".join(READERS))
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--operators", default=",".join(OPERATORS))
    parser.add_argument("--columns", default=";".join(cases.COLUMNS), help="of the table, with ; between")
    parser.add_argument("--stages", default="write,run,report")
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--write", action="store_true", help="write READERS.md anew")
    given = parser.parse_args()
    environments = given.environments or given.work / "environments"
    stages, models, operators = (
        [word for word in text.split(",") if word] for text in (given.stages, given.models, given.operators)
    )
    if "write" in stages:
        write(given.work, operators, models)
    for name in given.readers.split(",") if "run" in stages else ():
        if given.install:
            install(name, READERS[name], environments)
        run(name, given.work, environments, given.columns.split(";"))
    if "report" in stages:
        results = results_of(given.work)
        shown = tables(results, operators, models)
        text = f"{shown}\n\n{troubles(results, operators, models)}\n"
        (given.work / "readers.md").write_text(text, encoding="utf-8")
        if given.write:
            page = PAGE.read_text(encoding="utf-8")
            before, after = page.partition(BEGIN)[0], page.partition(END)[2]
            written = f"{before}{BEGIN}\n\n{made_with(results, environments)}\n\n{shown}\n\n{END}{after}"
            PAGE.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
