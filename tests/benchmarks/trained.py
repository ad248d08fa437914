"""Models that a kept script in `training/` trains, and archives that their data are read from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from frame import WORK
from record import RealModel


def trained_model(name: str, data: str, helpers: tuple[str, ...] = (), **facts: Any) -> RealModel:
    """Return the record of a model that the script of its name in `training/` wrote into the work folder.

    Args:
        name: of the model.
        data: what it was trained on, for the table.
        helpers: as those of the record, beside this module.
        facts: the record's other fields.
    """
    script = name.replace("-", "_")

    def path(folder: Path) -> Path:
        file = folder.parent / "trained" / f"{script}.onnx"
        if not file.exists():
            raise SystemExit(
                f"{file.name} is missing: run tests/benchmarks/training/{script}.py --work DIR first"
            )
        return file

    return RealModel(name, f"training/{script}.py, {data}", path=path, helpers=("trained", *helpers), **facts)


def archive(pattern: str) -> Path:
    """Return the archive in the work folder whose name fits.

    Raises:
        SystemExit: there is none.
    """
    found = sorted(Path(os.environ[WORK]).glob(pattern))
    if not found:
        raise SystemExit(f"no {pattern} in the work folder; see tests/benchmarks/README.md")
    return found[0]
