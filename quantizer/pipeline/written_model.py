"""A quantized model checked against its target, loaded, run once, then moved into place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx_ir as ir

from ...profiles.base.errors import ConfigError
from ..model.saving import save_model
from ..plan.plan import QuantPlan
from ..runtime.sessions import open_session
from ..runtime.smoke_run import smoke_run
from ..targets.conformance import check_conformity
from ..targets.loading import load_recipe
from ..targets.packaged import target_names
from ..targets.target import Recipe


def check_target(model: ir.Model, plan: QuantPlan, recipe: Recipe | None, where: str) -> tuple[str, ...]:
    """Hold a written model against its target; a plan whose target is not packaged is held against none."""
    if recipe is None:
        recipe = load_recipe(plan.config.target) if plan.config.target in target_names() else None
    return () if recipe is None else check_conformity(model, recipe.target, f"{where} (not written)")


def save_checked(
    model: ir.Model, output: Path, original: Path, elements: Mapping[str, float], external: bool
) -> tuple[str, ...]:
    """Write a model that onnxruntime has loaded and run once: it lies in a folder of its own until then.

    `elements` says how many a sample has of each input, as far as is known; `external`, whether the float
    model has external data.

    Returns:
        A note when it could not be run.

    Raises:
        ModelError: onnxruntime refuses it; nothing is written. ConfigError: there is no such folder.
    """
    try:
        folder = TemporaryDirectory(prefix=".qprof-", dir=output.parent)
    except OSError as error:
        raise ConfigError(f"{output}: cannot be written: {error.strerror}; check the folder") from error
    with folder as made:
        save_model(model, Path(made, output.name), external)
        name = f"{output} (not written)"
        session = open_session(str(Path(made, output.name)), name)
        note = smoke_run(session, lambda: open_session(str(original), str(original)), name, elements)
        del session  # some systems do not move a file that is open
        # The model last: when it is there, its data is too.
        for file in sorted(Path(made).iterdir(), key=lambda file: file.name == output.name):
            file.replace(output.with_name(file.name))
    return () if note is None else (note,)
