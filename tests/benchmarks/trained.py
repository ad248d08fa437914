"""Models that a kept script in `training/` trains, and archives that their data are read from."""

from __future__ import annotations

import os
from pathlib import Path

from frame import WORK


def trained_file(folder: Path, script: str) -> Path:
    """Return the file that a script of `training/` wrote into the work folder.

    Raises:
        SystemExit: the script has not been run.
    """
    file = folder.parent / "trained" / f"{script}.onnx"
    if not file.exists():
        raise SystemExit(
            f"{file.name} is missing: run tests/benchmarks/training/{script}.py --work DIR first"
        )
    return file


def archive(pattern: str) -> Path:
    """Return the archive in the work folder whose name fits.

    Raises:
        SystemExit: there is none.
    """
    found = sorted(Path(os.environ[WORK]).glob(pattern))
    if not found:
        raise SystemExit(f"no {pattern} in the work folder; see tests/benchmarks/README.md")
    return found[0]
