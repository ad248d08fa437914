"""Run one loader over cases, in the loader's own environment: python worker.py LOADER.py < folders > results.

Each line that comes in is the folder of a case; each line that goes out is a record in JSON: what the loader
said; outputs are in a file. A loader has the function `load(model, feed)` of a path and of arrays by name;
it returns a function of such arrays that returns the outputs in the model's order.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what readers print is not an answer
    sys.path.append(str(Path(sys.argv[1]).parent))  # one loader may use another
    spec = importlib.util.spec_from_file_location("loader", sys.argv[1])
    assert spec is not None
    assert spec.loader is not None
    loader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loader)
    for line in sys.stdin:
        folder = Path(line.strip())
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(
                shutil.copytree(folder, Path(scratch) / "case")
            )  # onnx2tf changes the file that it reads
            record = answer(loader, copy, Path(sys.argv[2]) / f"{sys.argv[3]}.npz")
        record["seconds"] = round(time.monotonic() - started, 2)
        answers.write(json.dumps(record) + "\n")
        answers.flush()


def answer(loader: Any, folder: Path, outputs: Path) -> dict[str, object]:
    """Return what became of a case: refused when loaded, failed when run, or the outputs in a file."""
    names = json.loads((folder / "case.json").read_text(encoding="utf-8"))["inputs"]
    with np.load(folder / "inputs.npz") as stored:
        feed = {name: stored[str(i)] for i, name in enumerate(names)}
    try:
        run = loader.load(str(folder / "model.onnx"), feed)
    except BaseException as error:  # a panic of Rust is no Exception
        return {"what": "refuses", "said": f"{type(error).__name__}: {error}"}
    try:
        found = [np.asarray(array) for array in run(feed)]
    except BaseException as error:
        return {"what": "fails", "said": f"{type(error).__name__}: {error}"}
    np.savez(outputs, **{str(i): array for i, array in enumerate(found)})
    return {"what": "runs", "said": ""}


if __name__ == "__main__":
    main()
