"""`measure_target`: the times of a target's kernels on this machine."""

from __future__ import annotations

from pathlib import Path

from ....profiles.base.tool import Progress
from ...api.keywords import PathLike
from ...model.output_paths import FilesRead, check_outputs
from ...targets.cost_table import CostTable, save_table
from ...targets.loading import load_recipe
from ...targets.target import Recipe
from .kernel_times import measured_costs


def measure_target(
    target: Recipe | str | Path, output: PathLike, *, threads: int = 1, progress: Progress | None = None
) -> CostTable:
    """Measure the times of a target's kernels on this machine, and write the table to a JSON file."""
    check_outputs([output], FilesRead((), (target,)))
    recipe = target if isinstance(target, Recipe) else load_recipe(target)
    table = measured_costs(recipe.target, threads, progress)
    save_table(table, Path(output))
    return table
