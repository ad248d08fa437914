"""Runs the notebooks of this folder, each in an empty folder: `run.py [NAME ...] [--write]`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

HERE = Path(__file__).parent
SECONDS = 300
"""That a cell may take, on a machine that does other things too."""


def executed(file: Path) -> nbformat.NotebookNode:
    """Return a notebook with the outputs of a run in an empty folder."""
    notebook = nbformat.read(file, as_version=4)
    os.environ["TQDM_DISABLE"] = "1"  # bars are for who watches them: they are no outputs
    with tempfile.TemporaryDirectory(prefix="notebook-") as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=SECONDS, resources=resources, record_timing=False).execute()
    return stored(notebook)


def stored(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return a notebook as it is kept: without what differs from run to run and says nothing."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
    return notebook


def _joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Return outputs with the pieces of one stream as one: where it is cut is chance."""
    joined: list[nbformat.NotebookNode] = []
    streams: dict[str, nbformat.NotebookNode] = {}
    for output in outputs:
        if output.output_type == "stream" and output.name in streams:
            streams[output.name].text += output.text
            continue
        if output.output_type == "stream":
            streams[output.name] = output
        if {"image/jpeg", "image/png"} <= output.get("data", {}).keys():
            del output["data"]["image/png"]  # the larger one
        joined.append(output)
    return joined


def main() -> int:
    """Run what was asked for; return 1 where a cell failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="notebooks, as in: tabular ocr; all of them by default")
    parser.add_argument("--write", action="store_true", help="keep the outputs in the notebooks")
    given = parser.parse_args()
    files = [HERE / f"{name}.ipynb" for name in given.names] or sorted(HERE.glob("*.ipynb"))
    failed = 0
    for file in files:
        start = time.monotonic()
        try:
            notebook = executed(file)
        except CellExecutionError as error:
            failed = 1
            print(f"{file.stem}: FAILED\n{error}", file=sys.stderr)
            continue
        print(f"{file.stem}: {time.monotonic() - start:.1f} s", flush=True)
        if given.write:
            file.write_text(nbformat.writes(notebook, indent=1) + "\n", encoding="utf-8")
    return failed


if __name__ == "__main__":
    sys.exit(main())
