"""A quantized model checked against its target, loaded and run once before it appears."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from ...profiles.base.output_files import FileBatch
from ..model.saving import save_model
from ..plan.plan import QuantPlan
from ..targets.conformance import check_conformity
from ..targets.loading import load_recipe
from ..targets.packaged import target_names
from ..targets.target import Recipe
from .runtimes import open_session, smoke_run


def check_target(model: ir.Model, plan: QuantPlan, recipe: Recipe | None, where: str) -> tuple[str, ...]:
    """Hold a written model against its target; a plan whose target is not packaged is held against none."""
    if recipe is None:
        recipe = load_recipe(plan.config.target) if plan.config.target in target_names() else None
    return () if recipe is None else check_conformity(model, recipe.target, f"{where} (not written)")


@dataclass(frozen=True)
class WrittenModel:
    """A model that is written and checked, and appears with the batch of files that it is in.

    Attributes:
        file: where it lies until it appears.
        size: of its files in bytes, external data included.
        notes: what could not be checked.
    """

    file: Path
    size: int
    notes: tuple[str, ...]


def write_checked(
    model: ir.Model,
    output: str | Path,
    original: Path,
    elements: Mapping[str, float],
    *,
    external: bool,
    batch: FileBatch,
) -> WrittenModel:
    """Write a model, load it in onnxruntime and run it once, before it appears under its name.

    Args:
        model: the quantized model.
        output: its file.
        original: the file of the float model.
        elements: how many a sample has of each input, as far as is known.
        external: whether the float model has external data.
        batch: the files with which it appears.

    Raises:
        ModelError: onnxruntime refuses it; nothing is written. ConfigError: it cannot be written.
    """
    temporary = save_model(model, output, external, batch)
    name = f"{output} (not written, quantized from {original})"
    session = open_session(_loadable(temporary), name)
    note = smoke_run(session, lambda: open_session(str(original), str(original)), name, elements)
    return WrittenModel(temporary, batch.size(temporary), () if note is None else (note,))


def _loadable(file: Path) -> str | bytes:
    """Return the path of a model, or its bytes where the path is not UTF-8: onnxruntime takes no other."""
    try:
        str(file).encode("utf-8")
    except UnicodeEncodeError:
        return file.read_bytes()
    return str(file)
