"""examples/notebooks: whole, with the outputs of a run, in names that exist; the quickest one is executed.

All six are executed by `examples/notebooks/run.py`, which needs the packages that hold their models.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import qprof_onnx as qprof

nbformat = pytest.importorskip("nbformat", reason="of the extra test-all")

FOLDER = Path(__file__).parent.parent / "examples" / "notebooks"
NAMES = ("detection", "ocr", "pictures", "sentences", "speech", "tabular")
MACHINE = re.compile(r"(?<![\w.])/(home|root|work|tmp|usr|opt|private|Users|var)/|site-packages|[A-Z]:\\\\")
"""Paths of the machine that a notebook was run on."""


def notebook(name: str) -> Any:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def code_of(name: str) -> list[str]:
    return [cell.source for cell in notebook(name).cells if cell.cell_type == "code"]


def test_the_list_has_each_notebook() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(NAMES)
    listed = re.findall(r"^\| \[(\w+)\]\(\1\.ipynb\)", (FOLDER / "README.md").read_text("utf-8"), re.M)
    assert sorted(listed) == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_valid_and_says_first_what_to_install(name: str) -> None:
    found = notebook(name)
    nbformat.validate(found)
    assert found.cells[0].cell_type == "markdown"
    assert re.search(r"^Install from a checkout: `pip install '?\.", found.cells[0].source, re.M)
    assert set(found.metadata) == {"kernelspec", "language_info"}


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_was_run_from_its_first_cell_to_its_last_without_an_error(name: str) -> None:
    cells = [cell for cell in notebook(name).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    shown = " ".join(output.get("data", {}).get("text/html", "") for output in outputs)
    assert re.search(r"<b>(good|fair)( \(weights only[^)]*\))?: ", shown), "shows a verdict"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_the_machine_is_in_a_notebook(name: str) -> None:
    text = (FOLDER / f"{name}.ipynb").read_text("utf-8")
    assert not [text[m.start() - 40 : m.end() + 40] for m in MACHINE.finditer(text)]
    assert len(text) < 250_000


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_quantizes_with_data_reports_and_uses_public_names_alone(name: str) -> None:
    tree = ast.parse("\n".join(code_of(name)))
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "qprof"
    }
    assert used <= set(qprof.__all__)
    assert {"quantize", "report", "load_profile"} <= used
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == "qprof_onnx"]


def test_the_ten_lines_are_ten() -> None:
    (core,) = [cell for cell in notebook("pictures").cells if "core" in cell.metadata.get("tags", ())]
    assert len([line for line in core.source.splitlines() if line.strip()]) <= 10


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_the_notebook_on_a_table_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "notebook"}
    for number, source in enumerate(code_of("tabular")):
        exec(compile(source, f"tabular, cell {number}", "exec"), namespace)
    assert namespace["result"].verdict.grade == "good"
    assert namespace["poor"].verdict.grade == "poor"
    assert "layer0" in namespace["poor"].verdict.cause[0].sentence
    assert namespace["safe"].verdict.grade == "good"
    assert (tmp_path / "report" / "report.html").exists()
